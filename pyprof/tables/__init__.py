"""Output: values -> tables, and every file that pyprof writes."""
