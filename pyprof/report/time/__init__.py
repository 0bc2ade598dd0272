"""Records -> the time of a window: steps, what is busy, gaps and their causes. One engine for every report."""
