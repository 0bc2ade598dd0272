"""A file system of one file that never answers a read, as of a server that is gone: FUSE's protocol, without a library.

    python -m tests.stalling_files FOLDER NAME        mount it there and serve until killed; needs root and /dev/fuse

Prints `mounted`, and `read` for each read that waits.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import struct
import sys

_IN = struct.Struct("<IIQQ16x")  # length, operation, number, node
_ATTRIBUTES = struct.Struct("<QQQQQQ10I")
_LOOKUP, _GETATTR, _OPEN, _READ, _STATFS, _RELEASE, _FLUSH, _INIT, _OPENDIR, _READDIR, _RELEASEDIR, _ACCESS = (
    *(1, 3, 14, 15, 17, 18, 25, 26, 27, 28, 29, 34),
)
_NO_REPLY = (2, 36, 42)  # forget, interrupt, batch forget
_ENOENT, _ENOSYS = 2, 38
_ASYNC_READ = 1
_GIVE_UP_S = 300  # whoever still waits, beyond the reach of SIGKILL, goes on
_FOLDER, _FILE, _SIZE = 1, 2, 1 << 20


def mount(folder: str) -> int:
    """The descriptor to serve. Raises OSError where that is not allowed."""
    descriptor = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={descriptor},rootmode=40000,user_id=0,group_id=0"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"stalling", os.fsencode(folder), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")
    return descriptor


def unmount(folder: str) -> None:
    """Also while somebody waits for it."""
    ctypes.CDLL(None).umount2(os.fsencode(folder), 2)  # MNT_DETACH


def serve(descriptor: int, name: str) -> None:
    """Answer everything but reads, until unmounted."""
    while True:
        try:
            request = os.read(descriptor, 1 << 18)
        except OSError:
            return
        _, operation, number, node = _IN.unpack_from(request)
        if operation == _READ:
            print("read", flush=True)
        if operation in (*_NO_REPLY, _READ):
            continue
        reply = _reply(operation, node, request[_IN.size :], name)
        error, body = (-reply, b"") if isinstance(reply, int) else (0, reply)
        os.write(descriptor, struct.pack("<IiQ", 16 + len(body), error, number) + body)


def _reply(operation: int, node: int, body: bytes, name: str) -> bytes | int:
    """What is answered, or the number of an error."""
    if operation == _INIT:
        _, _, ahead, _ = struct.unpack_from("<IIII", body)
        # Asynchronous reads, as every server has them: the kernel lets only who waits for one of these be killed.
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, ahead, _ASYNC_READ, 12, 9, 1 << 17, 1, 32, 0, 0)
    if operation == _LOOKUP:
        found = body.rstrip(b"\0") == os.fsencode(name)
        return struct.pack("<QQQQII", _FILE, 0, 60, 60, 0, 0) + _attributes(_FILE) if found else _ENOENT
    if operation == _GETATTR:
        return struct.pack("<QII", 60, 0, 0) + _attributes(node)
    if operation in (_OPEN, _OPENDIR):
        return struct.pack("<QII", 1, 0, 0)
    if operation == _STATFS:
        return bytes(80)
    return b"" if operation in (_RELEASE, _FLUSH, _ACCESS, _READDIR, _RELEASEDIR) else _ENOSYS


def _attributes(node: int) -> bytes:
    mode, size = (stat.S_IFDIR | 0o755, 0) if node == _FOLDER else (stat.S_IFREG | 0o644, _SIZE)
    return _ATTRIBUTES.pack(node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


if __name__ == "__main__":
    signal.alarm(_GIVE_UP_S)
    opened = mount(sys.argv[1])
    print("mounted", flush=True)
    serve(opened, sys.argv[2])
