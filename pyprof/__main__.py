"""`python -m pyprof` is `pyprof`."""

from __future__ import annotations

import sys

from pyprof.cli import main

sys.exit(main())
