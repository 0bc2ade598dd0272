"""Files of profilers -> Trace: one module per format; `pyprof.loading.formats` lists them."""
