"""A folder that `pyprof run` puts first on PYTHONPATH: Python runs the module `sitecustomize` in it before the program."""
