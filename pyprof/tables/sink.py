"""Text, or its bytes in UTF-8 -> a stream of text, in order. Into a file a thread of its own writes while the next is made."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, TypeAlias

Text: TypeAlias = str | memoryview
Put: TypeAlias = Callable[[Iterable[Text]], None]
_PATIENCE_S = 1.0  # with a file that does not answer when the work has ended by an exception


@contextmanager
def sink(stream: IO[str]) -> Iterator[Put]:
    """What writes texts to the stream inside the block, at whose end all are written. They may be asked for in another thread.

    Raises what asking for them or writing them raises, perhaps only when more is put or the block ends.
    """
    direct = getattr(stream, "encoding", None) == "utf-8" and hasattr(stream, "buffer")
    if direct and (number := _file(stream)) is not None:
        stream.flush()
        with _behind(number) as put:
            yield put
        return

    def put_now(texts: Iterable[Text]) -> None:
        for text in texts:
            if isinstance(text, str):
                stream.write(text)
            elif direct:
                stream.flush()
                stream.buffer.write(text)  # type: ignore[attr-defined]  # past the encoder
            else:
                stream.write(str(text, "utf-8"))

    yield put_now


def _file(stream: IO[str]) -> int | None:
    """The number of the file that a stream writes to, where it is one: a pipe or a terminal may keep its writer waiting."""
    with suppress(OSError, ValueError):  # it has none, or is closed
        number = stream.fileno()
        if stat.S_ISREG(os.fstat(number).st_mode):
            return number
    return None


@contextmanager
def _behind(file: int) -> Iterator[Put]:
    """The same by a thread that writes to an open file what was put, while the next is made."""
    from queue import Queue
    from threading import Thread

    waiting, failed = Queue[Iterable[Text] | None](), list[BaseException]()

    def work() -> None:
        if hasattr(signal, "pthread_sigmask"):  # signals are for the main thread
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        while (texts := waiting.get()) is not None:
            try:
                for text in texts:
                    if failed:
                        break
                    _write(file, text)
            except BaseException as error:
                failed.append(error)
            del texts
            waiting.task_done()

    def put(texts: Iterable[Text]) -> None:
        waiting.join()  # so that no more than one is in memory beside what is made
        if failed:
            raise failed[0]
        waiting.put(texts)

    thread = Thread(target=work, name="pyprof writer", daemon=True)
    thread.start()
    try:
        yield put
    except BaseException as error:
        failed.append(error)
        waiting.put(None)
        thread.join(_PATIENCE_S)
        raise
    waiting.put(None)
    thread.join()
    if failed:
        raise failed[0]


def _write(file: int, text: Text) -> None:
    rest = memoryview(text.encode("utf-8", "replace")) if isinstance(text, str) else text
    while rest:
        rest = rest[os.write(file, rest) :]
