"""One program under two recorders, or with and without autocast, op by op: real nsys, as pytest runs them: scripts/checks/run recorders."""
