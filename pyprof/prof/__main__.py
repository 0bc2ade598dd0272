"""`python -m pyprof.prof` is `pyprof prof`."""

from __future__ import annotations

import sys

from pyprof.cli import main

sys.exit(main(command="prof"))
