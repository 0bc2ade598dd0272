"""A folder that `pyprof run` puts first on PYTHONPATH; Python itself runs the module in it before the program."""
