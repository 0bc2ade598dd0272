"""Reports for programs that ask for them one by one: `pyprof mcp`. Everything here only reads."""
