"""Files of profilers -> Trace: one module per format, which `pyprof.loading.load` lists."""
