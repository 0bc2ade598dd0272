"""`python probe.py torch` -> which torch is installed, as JSON; `python probe.py op` -> one op in its range, to be recorded.

Run by `pyprof doctor` in a process of its own, since importing a torch that is broken may end the process.
"""

from __future__ import annotations

import json
import os
import sys


def describe_torch() -> dict[str, object]:
    """version; cuda: the CUDA release that torch was built for, or None; devices: names of the GPUs that it can use."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = [torch.cuda.get_device_name(index) for index in range(count)]
    return {"version": torch.__version__, "cuda": torch.version.cuda, "devices": names}


def run_op() -> None:
    """A product of two matrices, recorded as one range."""
    import torch

    from pyprof.nvtx import instrument

    left, right = torch.ones(2, 3), torch.ones(3, 4)
    with instrument():
        torch.mm(left, right)


if __name__ == "__main__":
    # Import this pyprof, and nothing from this file's folder.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if sys.argv[1] == "torch":
        print(json.dumps(describe_torch()))
    else:
        run_op()
