"""pyprof.parse.sources.gunzip: the text that the gzip module gives, one line for what is damaged, an end at any time."""

import gzip
import io
import random
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from pyprof.parse.sources.gunzip import DamagedGzip, Gunzip

PIECE = 1 << 20
NOISE = random.Random(1).randbytes(2 * PIECE)
PACKED = gzip.compress(NOISE)


def text_of(packed: bytes, size: int = 70_000) -> bytes:
    with closing(Gunzip(io.BytesIO(packed))) as stream:
        return b"".join(iter(lambda: stream.read(size), b""))


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 20 * PIECE])
def test_texts_of_any_length(size: int) -> None:
    assert text_of(gzip.compress(bytes(size), 1)) == bytes(size)


def test_several_members_and_zeros_behind_them() -> None:
    packed = gzip.compress(NOISE[:PIECE], 1) + bytes(600) + gzip.compress(b"", 1) + gzip.compress(NOISE[PIECE:], 6) + bytes(5)
    assert text_of(packed) == NOISE == gzip.decompress(packed)


def test_so_many_bytes_as_were_asked_for() -> None:
    with closing(Gunzip(io.BytesIO(gzip.compress(NOISE, 1)))) as stream:
        assert [len(stream.read(3 * PIECE // 2)) for _ in range(3)] == [3 * PIECE // 2, PIECE // 2, 0]


@pytest.mark.parametrize(
    "packed",
    [
        PACKED[:-1],
        PACKED[:-9],
        PACKED[:1000],
        PACKED[:4],
        PACKED[:-8] + bytes(8),
        b"\x1f\x8b" + NOISE,
    ],
    ids=["end", "sums", "middle", "header", "wrong sums", "no gzip"],  # the bytes differ with the time
)
def test_damaged_files(packed: bytes) -> None:
    with pytest.raises(DamagedGzip):
        text_of(packed)


def test_what_is_no_gzip_behind_the_last_member_is_no_text() -> None:
    assert text_of(PACKED + b"abcdefghijklmnopqrstuvwxyz") == NOISE


def test_errors_of_the_file_reach_the_reader() -> None:
    stream = io.BytesIO(PACKED)
    stream.close()
    with pytest.raises(ValueError, match="closed"), closing(Gunzip(stream)) as text:
        text.read(1)


def test_it_ends_before_all_was_read() -> None:
    before = threading.active_count()
    stream = Gunzip(io.BytesIO(gzip.compress(bytes(100 * PIECE), 1)))
    stream.read(10)
    stream.close()
    assert threading.active_count() == before


# Children whose memory is full but for some room. One that waits without end is killed, and its exit code is not 0.
FULL = """
import gzip, io, mmap, os, resource, signal, sys
from pyprof.parse.sources.gunzip import Gunzip

packed, began = gzip.compress(bytes(100), 1), []
for room in [*range(8 << 20, 10 << 20, 128 << 10), 64 << 20]:
    if not (child := os.fork()):
        signal.alarm(10)
        resource.setrlimit(resource.RLIMIT_DATA, (96 << 20, -1))
        kept, back, size = [], mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE), 8 << 20
        while size >= 64:
            try:
                kept.append(bytearray(size))
            except MemoryError:
                size //= 2
        back.close()
        try:
            Gunzip(io.BytesIO(packed)).close()
        except MemoryError:
            os._exit(3)
        os._exit(0)
    began.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(*began)
"""


def test_a_full_memory_is_an_error_and_no_wait_without_end() -> None:
    done = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, check=True)
    *full, roomy = map(int, done.stdout.split())
    assert {*full} == {3} and roomy == 0
