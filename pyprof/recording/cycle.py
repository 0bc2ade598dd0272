"""`python -m pyprof.recording.cycle TRACE TABLE COUNT`: the ops that took most time in a trace -> a text file beside it.

`pyprof.capture` starts it for each cycle, so that reading the trace takes neither time nor memory of the measured program.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

from pyprof.errors import PyprofError

__all__ = ["main"]

_WIDTH = 150


def main() -> int:
    """Write the table, or one line with the reason why there is none. Returns 0."""
    from pyprof.loading import load_capture
    from pyprof.recording.top import print_top

    trace, table, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    os.nice(10)
    text = io.StringIO()
    try:
        print_top(load_capture(trace), text, count, _WIDTH)
        text.write(f"every row: python -m pyprof.prof -w {_WIDTH} {trace}\n")
    except PyprofError as error:
        text.write(f"no table: {error}\n")
    part = table.with_name(f".{table.name}.{os.getpid()}.part")
    part.write_text(text.getvalue(), encoding="utf-8")
    part.replace(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
