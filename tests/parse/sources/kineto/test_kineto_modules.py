"""Calls of modules in small traces -> the paths of layers: by ids of callers, by time where these are lost, by the model's names."""

import random
from pathlib import Path
from typing import Any

import pytest

from pyprof.loading.load import load_capture, open_trace
from pyprof.model.markers import Kind
from tests.parse.sources.kineto.test_kineto import op, write, x

Event = dict[str, Any]


def frame(name: str, ts: float, dur: float, number: int, parent: int | None, **more: Any) -> Event:
    return x("python_function", name, ts, dur, **{"Python id": number, "Python parent id": parent}, **more)


def module(name: str, *where: Any, **more: Any) -> Event:
    return frame(f"nn.Module: {name}", *where, **more)


# Net > Block_0 > Linear_0, and Block_1 > Linear_1, each through the frame of a forward; an op in every one of them.
PROGRAM = [
    frame("net.py(1): main", 0, 100, 1, None),
    module("Net_0", 1, 98, 2, 1), frame("net.py(5): forward", 2, 96, 3, 2),
    module("Block_0", 10, 30, 4, 3), frame("net.py(9): forward", 11, 28, 5, 4), module("Linear_0", 12, 10, 6, 5),
    module("Block_1", 50, 30, 7, 3), frame("net.py(9): forward", 51, 28, 8, 7), module("Linear_1", 52, 10, 9, 8),
    op("aten::mm", 13, 5), op("aten::tanh", 25, 5), op("aten::mm", 53, 5), op("aten::sigmoid", 90, 5), op("aten::relu", 99.5, 0.2),
]  # fmt: skip
PATHS = [
    ("aten::mm", "Net_0.Block_0.Linear_0"), ("aten::tanh", "Net_0.Block_0"), ("aten::mm", "Net_0.Block_1.Linear_1"),
    ("aten::sigmoid", "Net_0"), ("aten::relu", ""),
]  # fmt: skip
NAMES = {
    "Net_0": [[0, ""]], "Block_0": [[0, "blocks.0"]], "Block_1": [[0, "blocks.1"]], "Linear_0": [[0, "blocks.0.fc"]],
    "Linear_1": [[0, "blocks.1.fc"]],
}  # fmt: skip


def layers(path: Path) -> list[tuple[str, str]]:
    """Each op with its layer."""
    records = load_capture(path)
    stacks = [records.stacks[code] for code in records["scope"].tolist()]
    return [
        (records.calls[code].name, ":".join(stack.layer)) for code, stack in zip(records["inner"].tolist(), stacks, strict=True)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_paths_follow_the_callers_whatever_the_order_of_events(tmp_path: Path, seed: int) -> None:
    events = PROGRAM[:]
    random.Random(seed).shuffle(events)
    assert layers(write(tmp_path, events)) == PATHS


def test_the_names_of_the_running_model(tmp_path: Path) -> None:
    expected = ["blocks.0.fc", "blocks.0", "blocks.1.fc", "Net", ""]
    assert layers(write(tmp_path, PROGRAM, pyprof_modules=NAMES)) == [
        (name, path) for (name, _), path in zip(PATHS, expected, strict=True)
    ]


def test_a_module_that_has_no_name_hangs_where_it_was_called(tmp_path: Path) -> None:
    names = {name: found for name, found in NAMES.items() if name != "Linear_1"}
    assert layers(write(tmp_path, PROGRAM, pyprof_modules=names))[2] == ("aten::mm", "blocks.1.Linear_1")


@pytest.mark.parametrize("names", [7, [], {"Net_0": 1}, {"Net_0": [["0", ""], [0], [0, None], "x"]}, {"": []}, None])
def test_names_that_are_none_are_as_if_there_were_none(tmp_path: Path, names: object) -> None:
    assert layers(write(tmp_path, PROGRAM, pyprof_modules=names)) == PATHS


def test_a_shared_module_has_the_name_nearest_to_its_caller(tmp_path: Path) -> None:
    shared = [event | {"name": "nn.Module: Linear_0"} if event["name"].endswith("Linear_1") else event for event in PROGRAM]
    names = NAMES | {"Linear_0": [[1, "other.fc"], [0, "blocks.0.fc"], [0, "blocks.1.fc"]]}
    found = layers(write(tmp_path, shared, pyprof_modules=names))
    assert [path for name, path in found if name == "aten::mm"] == ["blocks.0.fc", "blocks.1.fc"]


def test_ids_tell_apart_what_time_does_not(tmp_path: Path) -> None:
    """In whole microseconds an empty call may begin and end where its sibling ends."""
    events = [
        module("Net_0", 0, 20, 1, None), module("A_0", 1, 4, 2, 1), module("B_0", 5, 0, 3, 1), module("C_0", 5, 0, 4, 3),
        module("D_0", 5, 5, 5, 1), op("aten::mm", 5, 5), op("aten::tanh", 12, 1),
    ]  # fmt: skip
    trace = open_trace(write(tmp_path, events))
    found = {marker.name for marker in trace.markers if marker.kind == Kind.LAYER}
    assert found == {"Net_0", "Net_0.A_0", "Net_0.B_0", "Net_0.B_0.C_0", "Net_0.D_0"}
    assert layers(write(tmp_path, events)) == [("aten::mm", "Net_0.D_0"), ("aten::tanh", "Net_0")]


def test_callers_that_are_lost_are_found_by_time(tmp_path: Path) -> None:
    """Frames cut out of the trace: what is left hangs in the module around it, and is unknown only above all that is left."""
    cut = [event for event in PROGRAM if ": forward" not in event["name"]]
    assert layers(write(tmp_path, cut)) == PATHS
    headless = [event for event in PROGRAM if "Net_0" not in event["name"]]
    paths = [path.removeprefix("Net_0").removeprefix(".") for _, path in PATHS]
    assert layers(write(tmp_path, headless)) == [(name, path) for (name, _), path in zip(PATHS, paths, strict=True)]


def test_without_ids_time_tells_all(tmp_path: Path) -> None:
    bare = [event | {"args": {}} for event in PROGRAM]
    assert layers(write(tmp_path, bare)) == PATHS


def test_without_frames_layers_are_unknown(tmp_path: Path) -> None:
    path = write(tmp_path, [event for event in PROGRAM if event["cat"] == "cpu_op"], pyprof_modules=NAMES)
    assert {layer for _, layer in layers(path)} == {""}


def test_ids_in_a_ring_and_callers_on_other_threads(tmp_path: Path) -> None:
    ring = [module("A_0", 0, 90, 1, 2), module("B_0", 10, 20, 2, 1), frame("f.py(1): f", 10, 5, 3, 3), op("aten::mm", 12, 2)]
    assert layers(write(tmp_path, ring))[0][1].endswith("B_0")
    apart = [
        module("A_0", 0, 90, 1, None),
        module("B_0", 10, 20, 2, 1, tid=7),
        op("aten::mm", 12, 2, tid=7),
        op("aten::mm", 15, 1),
    ]
    assert [layer for _, layer in layers(write(tmp_path, apart))] == ["B_0", "A_0"]
