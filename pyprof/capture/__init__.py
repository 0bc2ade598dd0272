"""Running a program so that a capture comes of it."""
