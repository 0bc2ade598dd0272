"""Output: values -> tables, and every file that pyprof writes; `formats` lists the output formats."""
