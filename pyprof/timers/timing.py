"""A function and its arguments -> how long one call takes: `pyprof.timeit(fn, *args)`.

Measured on a GPU between two events on the stream, on a CPU by the clock; each call starts with a cold cache. Must not know
captures.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pyprof.errors import ToolError, UsageError, unusable
from pyprof.recording.torchprof import quiet

if TYPE_CHECKING:
    import torch
    from torch.autograd.profiler_util import FunctionEvent

Seconds: TypeAlias = tuple[float, ...]  # one for each call

_MIN_CALLS, _MAX_CALLS = 10, 10_000
_MIN_FLUSH_BYTES, _MAX_FLUSH_BYTES = 32 << 20, 512 << 20
_REMEMBERED, _MARGIN = 16, 1.5  # launching times that are remembered; the device waits longer by this factor
_EVENTS_S, _LONGEST_WAIT_S = 10e-6, 2e-3  # of recording two events; a call that waits for the device never ends launching
_CYCLES_PER_S = 2e9  # of a clock that few GPUs exceed


def quantile(values: Seconds, share: float) -> float:
    """The value below which a share (0 to 1) of the values lies, interpolated. Raises ValueError without values."""
    if not values:
        raise ValueError("no values")
    return float(np.quantile(values, share))


@dataclass(frozen=True)
class Timing:
    """The times of repeated calls.

    device: `cpu` or `cuda:N`; times_s: seconds of each call on the device, in order; host_s: seconds until each call returned;
    launched: what one call launched, counted by name (kernels, copies and memsets on a GPU, outermost ops on a CPU), None if
    that could not be recorded.
    """

    device: str
    times_s: Seconds
    host_s: Seconds
    launched: dict[str, int] | None = None

    @property
    def median_s(self) -> float:
        """The median time of a call."""
        return quantile(self.times_s, 0.5)

    @property
    def p99_s(self) -> float:
        """The time that one call in a hundred exceeds."""
        return quantile(self.times_s, 0.99)

    @property
    def best_s(self) -> float:
        """The shortest time of a call."""
        return min(self.times_s)

    @property
    def spread(self) -> float:
        """The interquartile range of the times over their median: 0.02 is a quiet machine, 0.2 is not."""
        return (quantile(self.times_s, 0.75) - quantile(self.times_s, 0.25)) / self.median_s if self.median_s else 0.0

    @property
    def launches(self) -> int | None:
        """The number of launches of one call; None if it could not be recorded."""
        return None if self.launched is None else sum(self.launched.values())

    @property
    def host_bound(self) -> bool:
        """Whether the device waits because launching takes longer than the work. False on a CPU."""
        return self.device != "cpu" and quantile(self.host_s, 0.5) >= self.median_s

    def __str__(self) -> str:
        launches = "" if self.launches is None else f", {self.launches} launch{'' if self.launches == 1 else 'es'}"
        late = f", host-bound: {quantile(self.host_s, 0.5) * 1e6:.1f} us to launch" if self.host_bound else ""
        return (
            f"{self.median_s * 1e6:.1f} us median, {self.p99_s * 1e6:.1f} p99, spread {100 * self.spread:.0f} %, "
            f"{len(self.times_s)} calls{launches} on {self.device}{late}"
        )


def timeit(  # noqa: PLR0913 - the options of a public function, each by its name
    fn: Callable[..., object],
    *args: object,
    seconds: float = 0.3,
    warmup: float = 0.05,
    calls: int | None = None,
    flush: bool = True,
    device: str | None = None,
    launches: bool = True,
) -> Timing:
    """Time `fn(*args)`; for keyword arguments use functools.partial.

    seconds: how long to measure, at least ten calls; calls: how many calls to measure instead; warmup: seconds of calls before;
    flush: clear the data of each call from the last cache; device: `cpu` or `cuda[:N]`, by default the GPU that holds an
    argument, else the current one if the process uses CUDA, else the CPU; launches: count what one further call launches.

    An exception of the function passes through. Raises UsageError for numbers that are not positive, ToolError if torch or the
    device is missing.
    """
    if seconds <= 0 or warmup < 0 or (calls is not None and calls < 1):
        raise UsageError("pyprof.timeit: seconds and calls must be positive", "for example pyprof.timeit(fn, x, calls=100)")
    torch = torch_for("pyprof.timeit")
    device = device or _device(torch, args)
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise UsageError(f"pyprof.timeit: unknown device {device!r}", "use cpu, cuda or cuda:N")
    clock: Clock = CpuClock(torch, flush) if kind == "cpu" else _CudaClock(torch, device, flush)
    with clock.current:
        once = _warm_up(clock, fn, args, warmup)
        count = calls or min(max(math.ceil(seconds / max(once, 1e-9)), _MIN_CALLS), _MAX_CALLS)
        times, hosts = clock.measure(fn, args, count)
        launched = _record(torch, clock.device != "cpu", fn, args) if launches else None
    return Timing(clock.device, times, hosts, launched)


def torch_for(purpose: str) -> ModuleType:
    """The package torch. Raises ToolError, which names what needs it, if it is not installed."""
    try:
        import torch
        import torch.profiler
    except ImportError as error:
        raise unusable(purpose, "torch", error, "pip install torch") from error
    module: ModuleType = torch
    return module


def _tensors(torch: ModuleType, values: Iterable[object]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, torch.nn.Module):
            yield from value.parameters()
        elif isinstance(value, (list, tuple)):
            yield from _tensors(torch, value)


def _device(torch: ModuleType, args: Iterable[object]) -> str:
    tensors = list(_tensors(torch, args))
    on_gpu = (str(tensor.device) for tensor in tensors if tensor.device.type == "cuda")
    return next(on_gpu, "cuda" if not tensors and torch.cuda.is_initialized() else "cpu")


def _warm_up(clock: Clock, fn: Callable[..., object], args: Sequence[object], seconds: float) -> float:
    """Call for that time, three times at least; returns the seconds of the last call, including the cost of measuring it."""
    begun, done = time.perf_counter(), 0
    while True:
        before = time.perf_counter()  # the first calls may compile, load and allocate
        clock.measure(fn, args, 1)
        done, now = done + 1, time.perf_counter()
        if done >= 3 and now - begun >= seconds:
            return now - before


def cache_bytes(root: str = "/sys/devices/system/cpu/cpu0/cache") -> int | None:
    """Size of this CPU's last-level cache; None if the system does not report it."""
    sizes: dict[int, int] = {}
    for folder in sorted(Path(root).glob("index*")):
        try:
            level, size = int((folder / "level").read_text()), (folder / "size").read_text().strip()
            sizes[level] = int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return sizes[max(sizes)] if sizes else None


def _flush_bytes(cache: int | None) -> int:
    return min(max(2 * (cache or 0), _MIN_FLUSH_BYTES), _MAX_FLUSH_BYTES)


class CpuClock:
    """Times a call by the clock, with caches cleared before it where `flush`. current: what must be entered around calls."""

    def __init__(self, torch: ModuleType, flush: bool) -> None:
        self.device = "cpu"
        self.current: AbstractContextManager[object] = nullcontext()
        # Read and written, since a plain fill of that size bypasses the caches.
        self._buffer = torch.zeros(_flush_bytes(cache_bytes()), dtype=torch.int8) if flush else None

    def measure(self, fn: Callable[..., object], args: Sequence[object], count: int) -> tuple[Seconds, Seconds]:
        """Seconds of each of `count` calls, twice, since the host is the device."""
        now, times = time.perf_counter, []
        for _ in range(count):
            if self._buffer is not None:
                self._buffer.add_(1)
            begun = now()
            fn(*args)
            times.append(now() - begun)
        return tuple(times), tuple(times)


class _CudaClock:
    """Times the work of a call on its stream between two events.

    The host should have queued a call before the device comes to it: the device clears its cache meanwhile, and waits for as
    long as launching took when the queue was empty.
    """

    def __init__(self, torch: ModuleType, device: str, flush: bool) -> None:
        if not torch.cuda.is_available():
            raise ToolError(f"{device}: torch has no GPU here", "use pyprof.timeit(fn, device='cpu')")
        index = torch.device(device).index
        index = torch.cuda.current_device() if index is None else index
        self._torch, self.device = torch, f"cuda:{index}"
        self.current: AbstractContextManager[object] = torch.cuda.device(index)
        cache = getattr(torch.cuda.get_device_properties(index), "L2_cache_size", None)
        self._buffer = torch.empty(_flush_bytes(cache), dtype=torch.int8, device=self.device) if flush else None
        self._launching_s: deque[float] = deque(maxlen=_REMEMBERED)

    def measure(self, fn: Callable[..., object], args: Sequence[object], count: int) -> tuple[Seconds, Seconds]:
        """Seconds of each of `count` calls on the device, and on the host until each returned."""
        cuda, now, hosts = self._torch.cuda, time.perf_counter, []
        events = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in range(count)]
        for begin, end in events:
            if self._buffer is not None:
                self._buffer.zero_()
            if self._launching_s:  # keep the device busy until the call is likely to be in its queue
                wait_s = min(_MARGIN * quantile(tuple(self._launching_s), 0.5) + _EVENTS_S, _LONGEST_WAIT_S)
                cuda._sleep(int(wait_s * _CYCLES_PER_S))
            begin.record()
            begun = now()
            fn(*args)
            hosts.append(now() - begun)
            end.record()
        cuda.synchronize()
        if count == 1:  # of several calls the later ones wait for a place in the queue
            self._launching_s.append(hosts[0])
        return tuple(begin.elapsed_time(end) / 1e3 for begin, end in events), tuple(hosts)


Clock: TypeAlias = CpuClock | _CudaClock


def _record(torch: ModuleType, gpu: bool, fn: Callable[..., object], args: Sequence[object]) -> dict[str, int] | None:
    """The outermost ops of one call, or its work on the GPU, counted by name; None if torch.profiler is in use already."""
    if torch.autograd._profiler_enabled():
        return None
    activity, on_gpu = torch.profiler.ProfilerActivity, torch.autograd.DeviceType.CUDA
    activities = [activity.CPU, activity.CUDA] if gpu else [activity.CPU]
    with quiet(), torch.profiler.profile(activities=activities) as profiler:
        fn(*args)
        if gpu:
            torch.cuda.synchronize()
    events: Iterable[FunctionEvent] = profiler.events()
    return dict(Counter(e.name for e in events if (e.device_type == on_gpu if gpu else e.cpu_parent is None)))
