"""`pyprof memory` on snapshots written by hand, whose whole truth fits on a screen; and on the given ones, to the byte."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyprof
from pyprof.cli import main
from pyprof.model.allocations import Action
from tests.report.memory.snapshots import (
    BACKWARD,
    FORWARD,
    MIB,
    STEP,
    block,
    event,
    freed,
    op,
    py,
    segment,
    write,
)


def device(path: Path, number: int = 0, at: str = "peak") -> dict[str, Any]:
    found = json.loads(pyprof.load(path).memory(at).json())
    return dict(found["devices"][number])


def named(one: dict[str, Any], by: str) -> dict[str | None, float]:
    """MiB by name."""
    return {group["name"]: group["bytes"] / MIB for group in one["by"][by]}


def mib(one: dict[str, Any], part: str, *keys: str) -> list[float | None]:
    return [None if one[part][f"{key}_bytes"] is None else one[part][f"{key}_bytes"] / MIB for key in keys]


def test_a_block_that_is_older_counts_until_it_is_freed_inside(tmp_path: Path) -> None:
    """At the start 8 + 4 older; the 8 are freed before anything comes: who forgets them finds the peak at the end."""
    events = [event("alloc", 20, 3, 1, FORWARD), *freed(0, 8, 2), event("alloc", 24, 5, 3, FORWARD)]
    one = device(write(tmp_path / "s.pickle", [segment(block(8, 4)), segment(block(20, 3)), segment(block(24, 5))], events))
    assert mib(one, "peak", "requested", "allocated", "older") == [15, 15, 12]
    assert (one["peak"]["event"], one["peak"]["time_ns"], one["peak"]["phase"]) == (0, 1000, "forward")
    assert mib(one, "end", "requested") == [12] and named(one, "kind") == {"older": 12, "unknown": 3}


def test_a_ring_that_was_cut_between_a_request_and_its_end(tmp_path: Path) -> None:
    """Before the first event 6 were let go: they are requested until the free completes, and not allocated."""
    events = [event("free_completed", 0, 6, 1), event("alloc", 10, 2, 2, FORWARD)]
    one = device(write(tmp_path / "s.pickle", [segment(block(10, 2)), segment(block(20, 1))], events), at="end")
    assert mib(one, "end", "requested", "allocated") == [3, 3] and one["at"]["event"] == 1
    assert one["peak"]["event"] is None and mib(one, "peak", "requested", "allocated", "older") == [7, 1, 7]


def test_a_free_that_is_not_complete_is_requested_and_no_longer_allocated(tmp_path: Path) -> None:
    events = [event("alloc", 0, 4, 1, FORWARD), event("free_requested", 0, 4, 2), event("alloc", 4, 1, 3, FORWARD)]
    held = segment(block(0, 4, "active_awaiting_free"), block(4, 1), block(5, 3, "inactive"))
    one = device(write(tmp_path / "s.pickle", [held], events))
    assert mib(one, "peak", "requested", "allocated", "reserved") == [5, 1, 8] and one["peak"]["event"] == 2
    assert mib(one, "end", "requested", "allocated", "awaiting_free", "free", "pinned_free") == [5, 1, 4, 3, 3]
    assert one["peak"]["max_allocated_bytes"] == 4 * MIB


def test_what_the_allocator_added_to_blocks_that_are_gone_is_unknown(tmp_path: Path) -> None:
    """Of the first the snapshot holds the block (4 for 3), of the second, freed, nothing; up to 1 MiB nothing is added."""
    for size, words in ((2, "5.0 MiB requested, at least 6.0 MiB allocated"), (1, "4.0 MiB requested, 5.0 MiB allocated")):
        events = [event("alloc", 0, 3, 1, FORWARD), event("alloc", 4, size, 2, FORWARD), *freed(4, size, 3)]
        path = write(tmp_path / "s.pickle", [segment(block(0, 4, requested=3), block(4, 4, "inactive"))], events)
        assert f"Peak {words}, 8.0 MiB reserved" in " ".join(str(pyprof.load(path).memory()).split())


def test_a_clock_that_went_back_gives_no_time(tmp_path: Path) -> None:
    events = [event("alloc", 0, 1, 50, FORWARD), event("alloc", 1, 1, 30, FORWARD)]
    report = pyprof.load(write(tmp_path / "s.pickle", [segment(block(0, 1), block(1, 1))], events)).memory()
    assert "Peak 2.0 MiB requested, 2.0 MiB allocated, 2.0 MiB reserved, in forward" in " ".join(str(report).split())


def test_two_streams_may_have_the_same_size_free_and_not_for_each_other(tmp_path: Path) -> None:
    events = [event("alloc", 0, 4, 1, FORWARD), event("oom", 0, 6, 2, FORWARD, stream=7, device_free=MIB)]
    del events[1]["addr"]
    held = [segment(block(0, 4)), segment(block(10, 8, "inactive")), segment(block(20, 2, "inactive"), stream=7)]
    [oom] = device(write(tmp_path / "s.pickle", held, events))["oom"]
    assert [oom[f"{key}_bytes"] / MIB for key in ("asked", "device_free", "free", "usable_free", "largest_free")] == [
        6,
        1,
        10,
        2,
        2,
    ]


def test_expandable_segments_are_mapped_and_unmapped(tmp_path: Path) -> None:
    events = [
        event("segment_map", 0, 4, 1), event("alloc", 0, 3, 2, FORWARD), event("segment_map", 4, 6, 3),
        *freed(0, 3, 4), event("segment_unmap", 0, 4, 5),
    ]  # fmt: skip
    held = segment(block(4, 6, "inactive"), is_expandable=True)
    one = device(write(tmp_path / "s.pickle", [held], events, allocator_settings={"expandable_segments": True}))
    assert mib(one, "peak", "requested", "reserved") == [3, 4] and one["peak"]["max_reserved_bytes"] == 10 * MIB
    assert mib(one, "end", "reserved", "whole_segments_free") == [6, 6]
    assert named(one, "kind") == {"temporaries": 3}


def test_out_of_memory_by_fragments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """10 MiB are free in pieces of 6 and 4, and 8 were asked for."""
    events = [event("alloc", 6, 2, 1, FORWARD), {**event("oom", 0, 8, 2, FORWARD), "device_free": 0}]
    held = segment(block(0, 6, "inactive"), block(6, 2), block(8, 4, "inactive"))
    path = write(tmp_path / "s.pickle", [held], events)
    [oom] = device(path)["oom"]
    assert (oom["event"], oom["pieces"], oom["line"], oom["op"]) == (1, 2, "/home/u/net.py:7", "mm")
    assert main(["memory", str(path)]) == 0
    out = capsys.readouterr().out
    assert "10.0 MiB were cached and free for it in 2 pieces, the largest 6.0 MiB: fragmented" in " ".join(out.split())
    assert "expandable_segments:True" in out


def test_pieces_at_the_time_are_not_those_at_the_end(tmp_path: Path) -> None:
    """When memory ran out a block of 4 lay in the segment, which is empty at the end; another segment came later."""
    events = [event("alloc", 2, 4, 1), event("oom", 0, 9, 2), *freed(2, 4, 3), event("segment_alloc", 50, 20, 4)]
    held = [segment(block(0, 8, "inactive")), segment(block(50, 20, "inactive"))]
    [oom] = device(write(tmp_path / "s.pickle", held, events))["oom"]
    assert (oom["free_bytes"], oom["largest_free_bytes"], oom["pieces"]) == (4 * MIB, 2 * MIB, 2)
    assert oom["reserved_bytes"] == 8 * MIB


def test_two_devices(tmp_path: Path) -> None:
    held = [segment(block(0, 5)), segment(block(0, 7), device=1)]
    path = write(tmp_path / "s.pickle", held, [event("alloc", 0, 5, 1, FORWARD)], [event("alloc", 0, 7, 1, BACKWARD)], [])
    found = [device(path, number) for number in (0, 1)]
    assert [(one["device"], one["peak"]["requested_bytes"] // MIB, one["peak"]["phase"]) for one in found] == [
        (0, 5, "forward"), (1, 7, "backward"),
    ]  # fmt: skip


def test_without_times_they_are_null(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    annotations = [{"stage": "START", "name": "Optimizer.step#SGD.step", "device": 0, "time_us": 5}]
    path = write(
        tmp_path / "s.pickle", [segment(block(0, 5))], [event("alloc", 0, 5, None, FORWARD)], external_annotations=annotations
    )
    one = device(path)
    assert (one["peak"]["time_ns"], one["peak"]["step"], one["peak"]["event"]) == (None, None, 0)
    assert main(["memory", str(path), "--at", "3ms"]) == 2 and "have no times" in capsys.readouterr().err


def test_a_step_of_training_by_kind_phase_layer_op_and_line(tmp_path: Path) -> None:
    """Activation 1, temporary 2, gradient 3, optimizer state 4; the peak is in the optimizer with its own temporary of 6."""
    model = [op("add_Tensor"), py(7, "forward", "/home/u/net.py"), py(12, "forward", "/v/site-packages/torch/nn/modules/x.py")]
    events = [
        event("alloc", 0, 5, 1, model), event("alloc", 10, 1, 2, FORWARD), *freed(10, 1, 3, FORWARD), event("alloc", 20, 3, 4, BACKWARD),
        *freed(0, 5, 5, BACKWARD), event("alloc", 30, 4, 11, STEP), event("alloc", 40, 6, 12, [op("mul_Tensor"), py(5)]),
        *freed(40, 6, 13), *freed(20, 3, 21),
    ]  # fmt: skip
    annotations = [
        {"stage": stage, "name": "Optimizer.step#AdamW.step", "device": 0, "time_us": time}
        for stage, time in (("START", 10), ("END", 15))
    ]
    path = write(tmp_path / "s.pickle", [segment(block(30, 4))], events, external_annotations=annotations)
    one = device(path)
    assert (
        named(one, "kind") == {"temporaries": 6, "optimizer state": 4, "gradients": 3} and one["peak"]["phase"] == "optimizer"
    )
    assert named(one, "phase") == {"optimizer": 10, "backward": 3} and one["peak"]["step"] == 0
    assert named(one, "op") == {"mul_Tensor": 6, "sqrt": 4, "mm": 3}
    assert named(one, "line") == {"/home/u/train.py:5": 6, "/home/u/optim.py:33": 4, None: 3}
    before = device(path, at="3us")
    assert named(before, "kind") == {"activations": 5, "gradients": 3} and before["at"]["event"] == 4
    assert named(before, "layer") == {"/home/u/net.py:7 forward": 5, None: 3}
    assert [(step["number"], step["peak_bytes"] // MIB, step["stayed_bytes"] // MIB) for step in one["steps"]] == [
        (0, 13, 7),
        (1, 7, -3),
    ]


def test_metadata_of_the_user_and_requests_that_are_rounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = {**event("alloc", 0, 1, 1, FORWARD, user_metadata="epoch 3"), "size": 700}
    gone = {**event("alloc", 9, 1, 2, FORWARD), "size": 700}
    held = segment({**block(0, 1), "size": 2048, "requested_size": 700}, block(1, 1, "inactive"))
    path = write(tmp_path / "s.pickle", [held], [small, gone, *({**one, "size": 700} for one in freed(9, 1, 3))])
    one = device(path)
    assert (one["peak"]["requested_bytes"], one["peak"]["allocated_bytes"]) == (1400, 2048 + 1024)
    assert main(["memory", str(path), "--table", "blocks", "-c", "bytes,allocated,metadata", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["700,2048,epoch 3", "700,1024,na"]


def test_private_pools_are_apart_and_events_that_are_missing_are_told(tmp_path: Path) -> None:
    events = [event("alloc", 0, 2, 1), event("alloc", 0, 3, 2), event("alloc", 30, 1, 3)]
    held = [segment(block(0, 3), block(3, 5, "inactive")), segment(block(10, 4, "inactive"), segment_pool_id=(0, 1))]
    one = device(write(tmp_path / "s.pickle", held, events))
    assert mib(one, "end", "reserved", "free", "private_free", "pinned_free") == [12, 5, 4, 5]
    assert len(one["notes"]) == 2 and "1 blocks were freed unrecorded" in one["notes"][1]


def test_without_a_history_only_the_end_is_known(tmp_path: Path) -> None:
    one = device(write(tmp_path / "s.pickle", [segment(block(0, 3))], [], protocol=2))
    assert one["peak"]["requested_bytes"] is None and mib(one, "end", "requested") == [3] and "no history" in one["notes"][0]
    assert named(one, "kind") == {"older": 3}


GIVEN = {
    "training": ((7_013_335_044, 7_019_725_312, 6900.0, 4859.277, 9966, "optimizer"), 7_021_691_392, (6501.1, 6900.0, 398.9, 328.0)),
    "inference": ((1_736_962_048, 1_738_928_128, 1682.0, 1622.496, 292, "forward"), 1_738_928_128, (1624.4, 1682.0, 57.6, 44.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", GIVEN)
def test_given_snapshots_to_the_byte(name: str, captures: Path) -> None:
    path = captures / "memory" / f"gpt_medium_128_{name}.pickle"
    peak, most, end = GIVEN[name]
    report = pyprof.load(path).memory()
    one = report.to_dict()["devices"][0]  # type: ignore[index]
    found = one["peak"]
    assert (found["requested_bytes"], found["allocated_bytes"], found["event"], found["phase"]) == (*peak[:2], *peak[4:])
    assert [round(found[f"{key}_bytes"] / MIB, 3) for key in ("reserved", "older")] == [*map(pytest.approx, peak[2:4])]
    assert found["max_allocated_bytes"] == most
    keys = ("allocated", "reserved", "free", "whole_segments_free")
    assert [round(one["end"][f"{key}_bytes"] / MIB, 1) for key in keys] == [*end]
    replayed = report.devices[0].replay
    assert replayed.reserved is not None and replayed.allocated is not None and (replayed.allocated <= replayed.reserved).all()
    assert replayed.at(replayed.end)[0] == one["end"]["requested_bytes"] and not one["notes"]
    held, last = replayed.trace.blocks, replayed.lives.free >= len(replayed.trace)
    assert sorted(held.address.tolist()) == sorted(replayed.lives.address[last].tolist())
    assert int((replayed.trace.action == Action.ALLOC).sum()) == int((replayed.lives.alloc >= 0).sum())
    assert np.array_equal(np.sort(replayed.lives.size[last]), np.sort(held.requested))


def test_given_training_by_phase_and_line(captures: Path) -> None:
    one = device(captures / "memory" / "gpt_medium_128_training.pickle")
    phases, lines = named(one, "phase"), named(one, "line")
    assert [round(phases[name], 1) for name in ("backward", "optimizer", "forward")] == [1614.3, 195.3, 19.5]
    of = {str(name).rpartition("/")[2]: round(size, 1) for name, size in lines.items()}
    assert [of[line] for line in ("optimizer.py:80", "optimizer.py:76", "optimizer.py:77", "model.py:39")] == [
        117.2,
        39.1,
        39.1,
        19.5,
    ]
    assert sum(group["blocks"] for group in one["by"]["phase"] if group["name"]) == 226


def test_two_snapshots_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [
        str(write(tmp_path / f"{size}.pickle", [segment(block(0, size))], [event("alloc", 0, size, 1, FORWARD)]))
        for size in (5, 7)
    ]
    assert main(["diff", *files]) == 0
    assert "GPU 0: peak 5.0 MiB -> 7.0 MiB (+2.0 MiB)" in capsys.readouterr().out
    assert main(["diff", *files, "--where", "by=op", "-c", "name,before,after,change", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"mm,{5 * MIB},{7 * MIB},{2 * MIB}"
