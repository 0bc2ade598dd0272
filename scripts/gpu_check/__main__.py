"""`python -m scripts.gpu_check` is `scripts/gpu_check/run`."""

from __future__ import annotations

import argparse
import sys

from pyprof.errors import PyprofError
from pyprof.messages import tell
from scripts.gpu_check import check


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="gpu_check", description=check.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    check.add_arguments(parser)
    try:
        return check.run(parser.parse_args())
    except PyprofError as error:
        tell(f"pyprof: error: {error}")
        tell(f"hint: {error.hint}")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
