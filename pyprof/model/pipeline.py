"""Texts of torch.distributed.pipelining's ranges -> the action of a pipeline that each is: one microbatch through one stage.

schedules.py writes `PP:1F0` for microbatch 0 forward through stage 1; `B` is its backward, `I` and `W` the backward of inputs
and of weights apart. GPipe writes `Forward 0` and `Backward 0`. Sends, receives and FSDP's actions compute nothing.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ACTION = re.compile(r"PP:(?:(\d+)([FBIW])(\d+)|\(.+\)OVERLAP_F_B)")
_GPIPE = re.compile(r"(Forward|Backward) (\d+)")
FORWARD, BACKWARD, WEIGHT, OVERLAPPED = range(4)
_PARTS = {"F": FORWARD, "B": BACKWARD, "I": BACKWARD, "W": WEIGHT}


class StageAction(NamedTuple):
    """stage: -1 not written; part: FORWARD, BACKWARD, WEIGHT, OVERLAPPED (a forward and a backward); kind: its letter;
    microbatch: its number, -1 of OVERLAPPED."""

    stage: int
    part: int
    kind: str
    microbatch: int


def action_of(text: str) -> StageAction | None:
    """The action of a range, None if it is none."""
    if (found := _ACTION.fullmatch(text)) is not None:
        stage, kind, microbatch = found.groups()
        return (
            StageAction(-1, OVERLAPPED, text, -1)
            if kind is None
            else StageAction(int(stage), _PARTS[kind], kind, int(microbatch))
        )
    if (found := _GPIPE.fullmatch(text)) is not None:
        return StageAction(-1, _PARTS[found[1][0]], found[1][0], int(found[2]))
    return None
