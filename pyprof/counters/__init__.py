"""Measured counters -> FLOPs and bytes that a device executed, beside what the algorithm needs."""
