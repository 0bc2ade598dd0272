"""Compressed bytes -> their text, decompressed on another core while the text before is being read.

A thread does it: zlib and faster libraries (`isal`, `zlib_ng`, where they are installed) release the interpreter's lock. It
stays a few megabytes ahead, so that memory does not grow with the file. Knows nothing of the text's meaning.
"""

from __future__ import annotations

import threading
import zlib
from collections import deque
from importlib import import_module
from typing import Any, BinaryIO

MAGIC = b"\x1f\x8b"
_FASTER = ("isal.isal_zlib", "zlib_ng.zlib_ng")  # with zlib's interface
_READ_BYTES = 1 << 18
_PIECE_BYTES = 1 << 20
_AHEAD = 16  # pieces that wait to be read
_THREAD_BYTES = 24 << 20


class DamagedGzip(Exception):
    """The bytes are not what a compressor wrote, or end too early; the message tells which."""


class CutGzip(DamagedGzip):
    """The bytes end too early; all text before was handed over."""


class Gunzip:
    """The text of one or more gzip members. `close` it, also before the end.

    stream: the compressed file; nothing else may read it from here on.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._ready: deque[bytes] = deque()
        self._change = threading.Condition()
        self._ended = self._closed = False
        self._error: Exception | None = None
        self._piece, self._at = memoryview(b""), 0
        # A thread that ends before it has begun, for want of memory for its stack or first steps, is waited for without end.
        bytearray(_THREAD_BYTES)
        self._thread = threading.Thread(target=self._run, name="gunzip", daemon=True)
        self._thread.start()

    def read(self, size: int) -> bytes:
        """`size` bytes; fewer only at the end of the text. Raises as `readinto` does."""
        room = bytearray(size)
        return bytes(memoryview(room)[: self.readinto(memoryview(room))])

    def readinto(self, room: memoryview) -> int:
        """Fill the room; returns the number of bytes, fewer only at the end of the text.

        Raises DamagedGzip, and whatever reading the stream raises.
        """
        size = 0
        while size < len(room):
            try:
                if not self._has_more():
                    break
            except CutGzip:
                if not size:
                    raise
                break  # the next call raises it
            piece = self._piece[self._at : self._at + len(room) - size]
            room[size : size + len(piece)] = piece
            self._at += len(piece)
            size += len(piece)
        return size

    def close(self) -> None:
        """End the thread, once it has decompressed its current piece."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        self._thread.join()

    def _has_more(self) -> bool:
        if self._at < len(self._piece):
            return True
        with self._change:
            self._change.wait_for(lambda: self._ready or self._ended)
            self._piece, self._at = memoryview(self._ready.popleft() if self._ready else b""), 0
            self._change.notify_all()
        if not self._piece and self._error is not None:
            if isinstance(self._error, CutGzip):
                raise CutGzip(str(self._error))  # a kept one would keep the memory that was being filled
            raise self._error
        return bool(self._piece)

    def _run(self) -> None:
        try:
            self._decompress()
        except Exception as error:  # whatever it is, the reader of the text has to know
            self._error = error
        with self._change:
            self._ended = True
            self._change.notify_all()

    def _decompress(self) -> None:
        library = _fastest()
        member, data = library.decompressobj(zlib.MAX_WBITS | 16), b""
        whole, full = False, False  # whether a member ended and none began since; whether there may be more of the last bytes
        while full or (data := data or self._stream.read(_READ_BYTES)):
            if whole:
                data = data.lstrip(b"\0")  # as tapes and some copies fill a file up
                if not data:
                    continue
                if not MAGIC.startswith(data[:2]):
                    break  # no member follows: what some programs leave behind the last is no text
                member, whole = library.decompressobj(zlib.MAX_WBITS | 16), False
            try:
                text = member.decompress(data, _PIECE_BYTES)
            except library.error as error:
                raise DamagedGzip(str(error)) from error
            whole, data = member.eof, member.unused_data if member.eof else member.unconsumed_tail
            full = not whole and not data and len(text) == _PIECE_BYTES
            if not self._hand_over(text):
                return
        if not whole:
            raise CutGzip("it ends in the middle of the compressed data")

    def _hand_over(self, text: bytes) -> bool:
        """Give a piece to the reader when it has room; False if nobody wants more."""
        with self._change:
            self._change.wait_for(lambda: self._closed or len(self._ready) < _AHEAD)
            if text:
                self._ready.append(text)
                self._change.notify_all()
            return not self._closed


def _fastest() -> Any:
    for name in _FASTER:
        try:
            return import_module(name)
        except ImportError:
            continue
    return zlib
