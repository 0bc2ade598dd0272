"""What is put stands in the stream, in order, whatever the stream is; what fails on the way is raised where it was put."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyprof.tables import sink as module
from pyprof.tables.sink import Text, sink

_TEXTS: list[Text] = ["first\n", memoryview("é\u2028\n".encode()), "", memoryview(b""), "lone \ud800\r\n", memoryview(b"last")]
_EXPECTED = "first\né\u2028\nlone ?\r\nlast"


def _put(stream: io.TextIOBase) -> None:
    stream.write("before\n")
    with sink(stream) as put:  # type: ignore[arg-type]
        for text in _TEXTS:
            put([text])
        put(_TEXTS)
    stream.write("after\n")


def test_into_a_file(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="utf-8", newline="") as stream:
        _put(stream)
    assert (tmp_path / "out").read_bytes().decode() == f"before\n{_EXPECTED * 2}after\n"


def test_into_a_pipe() -> None:
    read, write = os.pipe()
    with open(write, "w", encoding="utf-8", errors="replace", newline="") as stream:
        _put(stream)
    with open(read, "rb") as given:
        assert given.read().decode() == f"before\n{_EXPECTED * 2}after\n"


def test_into_memory() -> None:
    stream = io.StringIO(newline="")
    _put(stream)
    assert stream.getvalue() == f"before\n{_EXPECTED * 2}after\n".replace("?", "\ud800")


def _failing() -> Iterator[Text]:
    yield "some"
    raise LookupError("no more")


@pytest.mark.parametrize("after", [[], [["more"], ["and more"]]])
def test_what_making_texts_raises_is_raised(tmp_path: Path, after: list[list[str]]) -> None:
    with (
        (tmp_path / "out").open("w", encoding="utf-8") as stream,
        pytest.raises(LookupError, match="no more"),
        sink(stream) as put,
    ):
        put(_failing())
        for texts in after:
            put(texts)
    assert (tmp_path / "out").read_text() == "some"


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: int, _text: Text) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_write", full)
    with (
        (tmp_path / "out").open("w", encoding="utf-8") as stream,
        pytest.raises(OSError, match="No space"),
        sink(stream) as put,
    ):
        put(["text"])
        put(["more"])


def test_an_exception_inside_ends_the_writing(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="utf-8") as stream, pytest.raises(KeyboardInterrupt), sink(stream) as put:
        put(["text"])
        raise KeyboardInterrupt
    assert (tmp_path / "out").read_text() in ("", "text")


def test_what_is_written_in_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, text: write(file, text[:3]))
    with (tmp_path / "out").open("w", encoding="utf-8") as stream, sink(stream) as put:
        put(["a text of more than three characters", memoryview(b" and another")])
    assert (tmp_path / "out").read_text() == "a text of more than three characters and another"
