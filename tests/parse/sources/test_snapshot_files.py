"""Pickles that are no snapshots, damaged or hostile: one line each, and nothing of them runs."""

import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest

from pyprof.cli import main
from pyprof.errors import InputError
from pyprof.parse.sources.snapshot import read
from tests.report.memory.snapshots import FORWARD, block, event, segment, write

HEAD = b"\x80\x04}\x94(\x8c\x08segments\x94"


class Calls:
    """Makes a folder where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def snapshot_of(value: object) -> bytes:
    return pickle.dumps({"segments": [], "device_traces": [[value]]}, 4)


HOSTILE = {
    "a class": snapshot_of(Path),
    "a set": snapshot_of({1, 2}),
    "bytes": snapshot_of(b"x" * 300),
    "a text of gigabytes": HEAD + b"\x8d" + struct.pack("<Q", 8 << 30),
    "a text of 4,294,967,295 bytes": HEAD + b"X\xff\xff\xff\xff",
    "the number 4,294,967,295": HEAD + b"r\xff\xff\xff\xff]ee.",
    "a tuple of other things": HEAD + b")" + b"\x85" * 100_000 + b"K\x00s.",
    "tuples in tuples": HEAD + b"K\x00\x85\x94" + b"h\x01h\x01\x86\x94" * 60 + b"K\x00su.",
    "lists in lists": HEAD + b"]\x94" * 1_000_000,
    "ends in the middle": HEAD + b"]\x94",
    "a damaged pickle": HEAD + b"]\x94uu.",
    "no opcode": HEAD + b"\xfe" * 400,
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_or_damaged_pickle_is_one_line(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(HOSTILE[what])
    assert main(["memory", str(path)]) == 1
    message, hint = capsys.readouterr().err.strip().splitlines()
    assert (what if what != "tuples in tuples" else "a tuple of other things") in message and hint.startswith("hint: ")


def test_nothing_of_a_pickle_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, protocol in enumerate((2, 4)):
        path = tmp_path / f"{protocol}.pickle"
        path.write_bytes(pickle.dumps({"segments": [Calls(tmp_path / f"made{number}")], "device_traces": []}, protocol))
        assert main(["memory", str(path)]) == 1 and "holds a" in capsys.readouterr().err
    assert not list(tmp_path.glob("made*"))


def many(count: int) -> bytes:
    """A trace of the same list of events under many names."""
    events = [event("alloc", 0, 1)] * count
    return pickle.dumps({"segments": [], "device_traces": [events] * count}, 4)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"device_traces": [[{**event("alloc", 0, 1), "size": -5}]]}, "a size of -5 bytes"),
        ({"device_traces": [[{**event("alloc", 0, 1), "size": 1 << 60}]]}, "a size of 1,152"),
        ({"device_traces": [[{**event("alloc", 0, 1), "addr": -1}]]}, "not as torch writes a snapshot"),
        ({"device_traces": [[{"action": "alloc", "size": "x"}]]}, "not as torch writes a snapshot"),
        ({"device_traces": [["alloc"]]}, "not as torch writes a snapshot"),
        ({"device_traces": {"a": 1}}, "not as torch writes a snapshot"),
        ({"segments": [{"address": 0}]}, "not as torch writes a snapshot"),
        ({"segments": [segment(block(0, -2))]}, "a size of -2"),
        ({"segments": []}, "nothing was allocated"),
        ([1, "segments"], "not a snapshot of torch's memory"),
    ],
)  # fmt: skip
def test_values_that_no_allocator_has(found: object, said: str, tmp_path: Path) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps(found if not isinstance(found, dict) else {"segments": [], **found}, 4))
    with path.open("rb") as stream, pytest.raises(InputError, match=said):
        read(stream, "s.pickle")


def test_one_list_under_many_names_is_not_counted_out(tmp_path: Path) -> None:
    (tmp_path / "s.pickle").write_bytes(many(3000))
    with (tmp_path / "s.pickle").open("rb") as stream, pytest.raises(InputError, match="more events than the file has bytes"):
        read(stream, "s.pickle")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_and_a_pipe_read_the_same(protocol: int, tmp_path: Path) -> None:
    path = write(tmp_path / "s.pickle", [segment(block(0, 5))], [event("alloc", 0, 5, 1, FORWARD)] * 300, protocol=protocol)
    with path.open("rb") as stream:
        [device] = read(stream, "s").devices
    assert len(device) == 300 and device.places[0].op == "mm" and device.places[0].line == "/home/u/net.py:7"


def test_other_commands_say_which_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "s.pickle", [segment(block(0, 5))], [])
    for command in ("summary", "prof", "gaps"):
        assert main([command, str(path)]) == 1
        assert capsys.readouterr().err.splitlines() == [
            f"pyprof: error: {path}: a snapshot of torch's memory, not a capture", f"hint: pyprof memory {path}",
        ]  # fmt: skip
