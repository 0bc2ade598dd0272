"""Records of many ranks -> which rank, op and layer others wait for, and what links carried; one rank in memory at a time."""
