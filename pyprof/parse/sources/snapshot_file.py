"""A snapshot of torch's caching allocator (a pickle) -> its dicts and lists, without running anything.

A pickle is a program. Before it is unpickled its opcodes are checked against a list of those that make containers, texts and
numbers, by one regular expression; the unpickler itself refuses every class as well. What is left to a hostile file is
memory in proportion to its own size.
"""

from __future__ import annotations

import io
import pickle
import re
import sys
from functools import cache
from typing import IO, Any, NoReturn

from pyprof.errors import InputError, NotACapture

_MOST_TEXT = 1 << 20  # bytes of one text: a mangled C++ name has some thousands
_MOST_TEXTS = 64 << 20  # bytes of all texts of more than 255
_MOST_TOKEN = 300  # bytes of an opcode and its argument, but for long texts
_LEAST_FILLED, _FEW = 8, 1000  # bytes of the file for each list or dict, which takes 64 bytes of memory; so many may be empty
_HINT = "write it again: torch.cuda.memory._dump_snapshot(FILE)"
_NAMES = (b"device_traces", b"segments")
_START = re.compile(rb"\x80[\x02-\x05]")
# Opcodes and their arguments, the most frequent first.
_GET = rb"h.|j.{4}|\x94"  # GET, MEMOIZE
_NUMBER = rb"(?:K.|M.{2}|J.{4})"
# Tuples hold small numbers only: hashing tuples in tuples would exhaust the stack, or all time.
_TUPLES = _NUMBER + rb"(?:\x85|" + _NUMBER + rb"(?:\x86|" + _NUMBER + rb"\x87))|\)"
_PLAIN = (
    rb"[(}\]ea.usN\x88\x89]|q.|K.|M.{2}|J.{4}|G.{8}|\x95.{8}|\x80."  # containers, their items, None, PUT, numbers, FRAME, PROTO
    rb"|\x8a(?:\x08.{8}|\x07.{7}|\x06.{6}|\x05.{5}|\x09.{9}|\x04.{4}|\x03.{3}|\x02.{2}|\x01.|\x00)"  # LONG1
)
_SHORT_TEXTS = rb"\x8c(?:" + b"|".join(rb"\x%02x.{%d}" % (size, size) for size in range(256)) + b")"
_LONG_TEXT, _LONG_PUT, _STOP = ord("X"), ord("r"), ord(".")
_FORBIDDEN = {
    ord("c"): "a class", 0x93: "a class", ord("i"): "a class", ord("R"): "a call", 0x81: "an object", 0x92: "an object",
    ord("o"): "an object", ord("b"): "the state of an object", ord("P"): "a reference", ord("Q"): "a reference",
    0x82: "a class", 0x83: "a class", 0x84: "a class", 0x8D: "a text of gigabytes", 0x8E: "bytes", 0x8F: "a set",
    0x91: "a set", 0x96: "bytes", ord("B"): "bytes", ord("C"): "bytes", 0x85: "a tuple of other things than numbers",
    0x86: "a tuple of other things than numbers", 0x87: "a tuple of other things than numbers",
    ord("t"): "a tuple of other things than numbers",
}  # fmt: skip


class _Nothing(pickle.Unpickler):
    """Unpickles containers, texts and numbers."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"it wants the class {module_name}.{global_name}")


def is_snapshot(head: bytes) -> bool:
    """Whether the first bytes are those of a pickled snapshot."""
    return _START.match(head) is not None and any(name in head for name in _NAMES)


def read_pickle(stream: IO[bytes], name: str) -> tuple[dict[str, Any], int]:
    """The snapshot in a stream, and its size in bytes. Raises InputError if it is damaged or holds anything but containers,
    texts and numbers, NotACapture if it is something else."""
    head = stream.read(1 << 20)
    if not is_snapshot(head):
        raise NotACapture(f"{name}: not a snapshot of torch's memory", _HINT)
    _check(head, name, whole=False)
    data = head + stream.read()
    _check(data, name)
    try:
        framed = data[1] >= 4  # else opcode by opcode, which a buffer makes fast
        found = _Nothing(io.BytesIO(data) if framed else io.BufferedReader(io.BytesIO(data), 1 << 20)).load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, LookupError, MemoryError) as error:
        raise InputError(f"{name}: a damaged pickle: {str(error) or type(error).__name__}", _HINT) from error
    if not isinstance(found, dict) or not isinstance(found.get("segments", []), list):
        raise NotACapture(f"{name}: not a snapshot of torch's memory", _HINT)
    return found, len(data)


@cache
def _tokens() -> re.Pattern[bytes]:
    # Possessive, so that nothing is kept of the opcodes that matched; before Python 3.11 some at a time.
    times = b"++" if sys.version_info >= (3, 11) else b"{1,1000}"
    return re.compile(b"(?s:" + b"|".join((_GET, _TUPLES, _PLAIN, _SHORT_TEXTS)) + b")" + times)


def _check(data: bytes, name: str, *, whole: bool = True) -> None:
    """Raise InputError unless every opcode is on the list. whole: the data is complete, so it ends with STOP."""
    at, size, match, texts = 0, len(data), _tokens().match, 0
    while at < size:
        if (found := match(data, at)) is not None:
            at = found.end()
            continue
        code, argument = data[at], int.from_bytes(data[at + 1 : at + 5], "little")
        if code == _LONG_TEXT and argument <= _MOST_TEXT and texts <= _MOST_TEXTS:
            at += 5 + argument
            texts += argument
        elif code == _LONG_PUT and 2 * argument <= max(size, 1 << 22):  # the table of what was put grows with the number
            at += 5
        elif code in _FORBIDDEN or code in (_LONG_TEXT, _LONG_PUT):
            what = _FORBIDDEN.get(code, f"a text of {argument:,} bytes" if code == _LONG_TEXT else f"the number {argument:,}")
            raise _refused(name, f"{what} at byte {at:,}")
        else:
            break
    if whole and (at != size or data[-1] != _STOP):
        why = "it ends in the middle" if size - at < _MOST_TOKEN else "no opcode of a snapshot"
        raise InputError(f"{name}: a damaged pickle: {why}, at byte {min(at, size):,} of {size:,}", _HINT)
    if data.count(b"]") + data.count(b"}") > max(size // _LEAST_FILLED, _FEW):
        raise _refused(name, "lists in lists, or empty ones, without end")


def _refused(name: str, what: str) -> InputError:
    return InputError(f"{name}: holds {what}: a snapshot is containers, texts and numbers, so nothing of it is read", _HINT)
