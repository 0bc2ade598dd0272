"""A program compiled by torch.compile: its generated modules and kernels read, and what was launched matched with them."""
