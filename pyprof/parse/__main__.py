"""`python -m pyprof.parse` is `pyprof parse`."""

from __future__ import annotations

import sys

from pyprof.cli import main

sys.exit(main(command="parse"))
