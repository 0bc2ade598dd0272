"""A kernel's own clock readings -> a buffer that one allocates, lets the kernel fill, calibrates, saves and loads.

    class Time(IntEnum):
        Load, Solve, Store = 1, 2, 3

    buffer = Buffer(Time, iterations=500, lanes=128, backend="quadrants")
    kernel(buffer.ticks, ...)            # in it: times[Time.Load, it, lane] = end - begin
    buffer.calibrate("tsc").save("timers.npz")
    print(buffer)                        # or: pyprof timers timers.npz

NumPy is enough: torch and Quadrants are imported where they hold the buffer. Nothing is computed from the readings here.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pyprof.columns.types import Ints
from pyprof.errors import InputError, NotACapture, UsageError
from pyprof.tables.files import whole_file
from pyprof.timers import clocks
from pyprof.timers.clocks import EMPTY

# counter: cycles, which each SM or core may count from an origin of its own; tsc: one count for all lanes; globaltimer: ns, one
# count for all lanes, in steps so long that a difference of 0 is possible.
CLOCKS = ("counter", "tsc", "globaltimer")
BACKENDS = ("numpy", "torch", "quadrants")
_VERSION = 1
_OPTIONAL = ("starts", "pairs", "sms")
_HINT = "write it with pyprof.timers.Buffer(...).save(FILE)"

Blocks: TypeAlias = type[IntEnum] | Mapping[str, int]
Held: TypeAlias = Any  # an array of the backend


class Buffer:
    """Durations of blocks in ticks, int64 of shape (largest block + 1, iterations, lanes).

    blocks: an IntEnum, or a mapping of names to numbers from 0. A lane is whatever runs side by side: a thread, a program, an
    environment. backend: what holds the arrays; device: of torch, its default otherwise. clock: one of CLOCKS; bits: 32 if the
    kernel reads the low word of its clock alone. kernel: its name, for a timeline.

    ticks: what the kernel fills by `ticks[block, iteration, lane] = end - begin`, both read by the same thread. Where no block
    has number 0, row 0 is the timer's own cost: two readings with nothing between them. More is optional, each array being made
    when it is first used: starts: as ticks, the reading at the begin of each block, for a timeline; pairs: (2, 2, lanes), at
    the begin and at the end of the kernel (clock, globaltimer) of each lane, to calibrate, and to place lanes beside each
    other; sms: (lanes,), on which SM each ran. whole: the block around all others; their shares are shares of it.
    hz: ticks a second, None unknown; cost: ticks between two readings with nothing between, where row 0 is not filled.

    Raises UsageError for what is not a buffer, ToolError if the backend is missing.
    """

    def __init__(  # noqa: PLR0913 - the options of a public class, each by its name
        self,
        blocks: Blocks,
        iterations: int,
        lanes: int = 1,
        backend: str = "numpy",
        *,
        device: str | None = None,
        clock: str = "counter",
        bits: int = 64,
        kernel: str = "",
        whole: int | None = None,
    ) -> None:
        items = blocks if isinstance(blocks, Mapping) else {name: int(block) for name, block in blocks.__members__.items()}
        self.names: dict[int, str] = {}
        for name, number in items.items():
            self.names.setdefault(int(number), str(name))
        if not self.names or min(self.names) < 0 or iterations < 1 or lanes < 1:
            raise UsageError(
                "a buffer needs blocks numbered from 0 or 1, an iteration and a lane", "Buffer(Time, iterations=100, lanes=32)"
            )
        if backend not in BACKENDS or clock not in CLOCKS or bits not in (32, 64):
            raise UsageError(
                f"there is no buffer with backend={backend!r}, clock={clock!r}, bits={bits}",
                f"backends: {', '.join(BACKENDS)}; clocks: {', '.join(CLOCKS)}; bits: 32, 64",
            )
        if whole is not None and int(whole) not in self.names:
            raise UsageError(f"whole={whole} is none of the blocks", "name the block that is around all others")
        self.shape = (max(self.names) + 1, iterations, lanes)
        self.backend, self.device, self.clock, self.bits, self.kernel = backend, device, clock, bits, kernel
        self.whole = None if whole is None else int(whole)
        self.hz: float | None = 1e9 if clock == "globaltimer" else None
        self.cost: float | None = None
        self._held: dict[str, Held] = {}
        self._held["ticks"] = self._new(self.shape)

    def __getattr__(self, name: str) -> Held:
        shapes = {"ticks": self.shape, "starts": self.shape, "pairs": (2, 2, self.shape[2]), "sms": (self.shape[2],)}
        if name.startswith("_") or name not in shapes:
            raise AttributeError(f"a buffer has no {name!r}")
        if name not in self._held:
            self._held[name] = self._new(shapes[name])
        return self._held[name]

    def __str__(self) -> str:
        from pyprof.timers.readings import readings_of, text

        return text(readings_of(self))

    def _new(self, shape: tuple[int, ...]) -> Held:
        if self.backend == "numpy":
            return np.full(shape, EMPTY, np.int64)
        if self.backend == "torch":
            from pyprof.timers.timing import torch_for

            torch = torch_for("a buffer of torch")
            return torch.full(shape, EMPTY, dtype=torch.int64, device=self.device)
        quadrants = clocks.quadrants()
        array = quadrants.ndarray(quadrants.i64, shape)
        array.from_numpy(np.full(shape, EMPTY, np.int64))
        return array

    def array(self, name: str = "ticks") -> Ints | None:
        """One of the arrays on the host, None if it was never used."""
        return None if name not in self._held else _on_host(self._held[name])

    def timer_cost(self) -> float | None:
        """Ticks between two readings with nothing between them: the median of row 0 where the kernel filled it, else `cost`."""
        row = np.empty(0) if 0 in self.names else _on_host(self.ticks)[0]
        row = row[row > 0]
        return float(np.median(row)) if len(row) else self.cost

    def ingest(self, ticks: object, **more: object) -> Buffer:
        """Take readings from elsewhere: NumPy, torch, anything that NumPy reads. more: starts, pairs, sms.

        An array of (blocks, iterations) is one lane. Raises UsageError for another shape, or for fractions.
        """
        for name, given in {"ticks": ticks, **more}.items():
            if name != "ticks" and name not in _OPTIONAL:
                raise UsageError(f"a buffer has no {name!r}", f"it has ticks, {', '.join(_OPTIONAL)}")
            values = _on_host(given)
            shape = np.shape(_on_host(getattr(self, name)))
            values = values[..., None] if values.ndim == len(shape) - 1 and shape[-1] == 1 else values
            if values.shape != shape or values.dtype.kind not in "iu":
                raise UsageError(
                    f"{name}: {values.dtype} {values.shape} does not fit int64 {shape}", "axes: block, iteration, lane"
                )
            self._held[name] = values.astype(np.int64)
        self.backend = "numpy"
        return self

    def calibrate(self, hz: float | str | None = None, *, pairs: object | None = None, cost: float | None = None) -> Buffer:
        """Set how many ticks a second has: by a number, by "tsc" (measured here, with Quadrants on a CPU), by "nominal"
        (the GPU's, as Quadrants reports it), or by pairs of (clock, globaltimer) at begin and end, by default the kernel's own.

        cost: ticks between two readings with nothing between. Raises UsageError if the pairs say nothing, ToolError if
        Quadrants is needed and not there.
        """
        if pairs is not None:
            given = np.asarray(pairs, np.int64)
            self.ingest(
                self.ticks, pairs=np.broadcast_to(given[..., None] if given.ndim == 2 else given, (2, 2, self.shape[2]))
            )
        if hz == "tsc":
            self.hz, measured = clocks.tsc()
            self.clock, cost = "tsc", measured if cost is None else cost
        elif hz == "nominal":
            self.hz = clocks.nominal()
        elif hz is not None:
            try:
                self.hz = float(hz)
            except ValueError:
                self.hz = np.nan
            if not 0 < self.hz < np.inf:
                raise UsageError(f"{hz!r} is no clock rate", 'a number of ticks a second, "tsc" or "nominal"')
        elif pairs is not None or cost is None:
            array = self.array("pairs")
            if array is None:
                raise UsageError("nothing to calibrate by", 'give hz=..., "tsc", "nominal", or fill buffer.pairs in the kernel')
            self.hz = clocks.rate_of(array, self.bits)
        self.cost = self.cost if cost is None else float(cost)
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything as .npz, which `load` and `pyprof timers` read. Raises InputError if that fails."""
        arrays: dict[str, npt.NDArray[Any]] = {name: _on_host(array) for name, array in self._held.items()}
        facts = {"clock": self.clock, "kernel": self.kernel, "bits": self.bits, "hz": self.hz, "cost": self.cost}
        numbers = {name: np.array(np.nan if value is None else value) for name, value in facts.items()}
        arrays |= numbers | {"whole": np.array(-1 if self.whole is None else self.whole), "pyprof_timers": np.array(_VERSION)}
        arrays |= {"numbers": np.array(list(self.names), np.int64), "names": np.array(list(self.names.values()), np.str_)}
        with whole_file(Path(path)) as stream:
            np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]  # its options are named as arrays are


def load(path: str | os.PathLike[str]) -> Buffer:
    """Read what `Buffer.save` wrote. Raises InputError for another file."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as stored:
            if isinstance(stored, np.ndarray) or "pyprof_timers" not in stored:
                raise NotACapture(f"{path}: holds no block timers", _HINT)
            found = {name: stored[name] for name in stored.files}
        return _restored(found)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", _HINT) from error
    except (
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        UsageError,
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
    ) as error:
        raise InputError(f"{path}: damaged block timers: {error}", _HINT) from error


def _restored(found: Mapping[str, npt.NDArray[Any]]) -> Buffer:
    if int(found["pyprof_timers"]) != _VERSION:
        raise UsageError(f"version {int(found['pyprof_timers'])} is not {_VERSION}")
    ticks, whole = found["ticks"], int(found["whole"])
    _, iterations, lanes = ticks.shape
    names = dict(zip(map(str, found["names"].tolist()), found["numbers"].tolist(), strict=True))
    buffer = Buffer(
        names,
        iterations,
        lanes,
        clock=str(found["clock"]),
        bits=int(found["bits"]),
        kernel=str(found["kernel"]),
        whole=None if whole < 0 else whole,
    )
    buffer.ingest(ticks, **{name: found[name] for name in _OPTIONAL if name in found})
    hz, cost = float(found["hz"]), float(found["cost"])
    buffer.hz, buffer.cost = hz if 0 < hz < np.inf else None, cost if 0 <= cost < np.inf else None
    return buffer


def _on_host(array: Any) -> npt.NDArray[Any]:
    """An array of any backend as NumPy's."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
    return array.to_numpy() if hasattr(array, "to_numpy") else np.asarray(array)
