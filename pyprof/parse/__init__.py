"""Stage 2: a capture becomes records, one for each kernel."""
