"""Records of many ranks -> which rank, op and layer others wait for, bandwidth of collectives; one rank in memory at a time."""
