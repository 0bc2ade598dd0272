"""How long something takes on this machine: a function, a recorded op, the machine itself."""
