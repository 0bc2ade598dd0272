"""Timelines as Perfetto's own reader has them: the same slices, arrows and counters to the nanosecond, and nothing refused."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.perfetto import asked
from tests.report.trace.test_trace import Event, ns, of, small
from tests.report.trace.test_trace_captures import CAPTURES, written

REFUSED = "json_array(name, value) as one from stats where value > 0 and severity in ('error', 'data_loss')"
SLICES = "json_array(category, name, ts, dur) as one from slice"
ARROWS = "json_array(f.ts, f.category, t.ts, t.name) as one from flow join slice f on slice_out = f.id join slice t on slice_in = t.id"
COUNTERS = "json_array(t.name, c.ts, c.value) as one from counter c join track t on t.id = c.track_id"


def held(timeline: Path) -> None:
    """All that is written is in Perfetto's tables."""
    text = timeline.read_bytes()
    events: list[Event] = json.loads(text)["traceEvents"]
    refused, slices, arrows, counters = asked(text, [REFUSED, SLICES, ARROWS, COUNTERS])
    assert not refused
    drawn = [(e["cat"], e["name"], ns(e["ts"]), ns(e.get("dur", 0))) for e in events if e["ph"] in "Xi"]
    assert Counter(map(tuple, slices)) == Counter(drawn)
    ends: dict[int, dict[str, int]] = defaultdict(dict)
    for event in of(events, "ac2g"):
        ends[event["id"]][event["ph"]] = ns(event["ts"])
    assert Counter((one[0], one[2]) for one in arrows) == Counter((one["s"], one["f"]) for one in ends.values())
    assert {one[1] for one in arrows} <= {"cuda_runtime", "cuda_driver"}
    values: list[Any] = [value for e in events if e["ph"] == "C" for value in e["args"].values()]
    assert len(counters) == len(values) and sum(one[2] for one in counters) == pytest.approx(sum(values))


def test_perfetto_reads_a_step_as_it_is_written(tmp_path: Path) -> None:
    held(written(small().write(tmp_path / "net.sqlite"), tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", CAPTURES)
def test_perfetto_reads_timelines_of_captures(captures: Path, tmp_path: Path, name: str) -> None:
    held(written(captures / name, tmp_path))
