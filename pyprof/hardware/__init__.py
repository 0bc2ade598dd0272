"""The limits of GPUs and CPUs, and what the names of kernels mean."""
