"""Facts about GPUs and about the names of their kernels."""
