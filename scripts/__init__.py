"""What is done with a checkout; a package so that `scripts.gpu_check` is this one. The wheel does not have it."""
