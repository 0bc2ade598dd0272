"""A function and its arguments -> how long one call takes: `pyprof.timeit(fn, *args)`.

On a GPU between two events on the stream, on a CPU by the clock; each call with a cold cache. Knows nothing of captures.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyprof.errors import ToolError, UsageError

__all__ = ["Timing", "cache_bytes", "quantile", "timeit"]

_FEWEST, _MOST = 10, 10_000
_FLUSH_MOST = 512 << 20
_FLUSH_LEAST = 32 << 20


def quantile(values: tuple[float, ...], share: float) -> float:
    """The value below which this share of them lies, between neighbours in proportion. Raises ValueError for no values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@dataclass(frozen=True)
class Timing:
    """What was measured.

    device: `cpu`, or `cuda:N`; times_s: seconds of each call on the device, in order; host_s: seconds until each call returned;
    launched: what one call launched by name, kernels, copies and memsets on a GPU and outermost ops on a CPU, None where that
    could not be recorded.
    """

    device: str
    times_s: tuple[float, ...]
    host_s: tuple[float, ...]
    launched: dict[str, int] | None = None

    @property
    def median_s(self) -> float:
        """Half of the calls took less."""
        return quantile(self.times_s, 0.5)

    @property
    def p99_s(self) -> float:
        """One call in a hundred took longer."""
        return quantile(self.times_s, 0.99)

    @property
    def best_s(self) -> float:
        """The shortest call."""
        return min(self.times_s)

    @property
    def spread(self) -> float:
        """How far the middle half of the calls lies apart, as a share of the median: 0.02 is calm, 0.2 is not."""
        return (quantile(self.times_s, 0.75) - quantile(self.times_s, 0.25)) / self.median_s if self.median_s else 0.0

    @property
    def launches(self) -> int | None:
        """Launches of one call; None where that could not be recorded."""
        return None if self.launched is None else sum(self.launched.values())

    @property
    def host_bound(self) -> bool:
        """Whether the device waits: launching takes longer than the work. Always False on a CPU."""
        return self.device != "cpu" and quantile(self.host_s, 0.5) >= self.median_s

    def __str__(self) -> str:
        launches = "" if self.launches is None else f", {self.launches} launch{'' if self.launches == 1 else 'es'}"
        late = f", host-bound: {quantile(self.host_s, 0.5) * 1e6:.1f} us to launch" if self.host_bound else ""
        return (
            f"{self.median_s * 1e6:.1f} us median, {self.p99_s * 1e6:.1f} p99, spread {100 * self.spread:.0f} %, "
            f"{len(self.times_s)} calls{launches} on {self.device}{late}"
        )


def timeit(
    fn: Callable[..., Any],
    *args: Any,
    seconds: float = 0.3,
    warmup: float = 0.05,
    calls: int | None = None,
    flush: bool = True,
    device: str | None = None,
    launches: bool = True,
) -> Timing:
    """Time `fn(*args)`; for keyword arguments use functools.partial.

    seconds: measure for about so long, at least ten calls, or `calls` of them; warmup: seconds before that; flush: each call
    finds none of its data in the last cache; device: `cpu` or `cuda[:N]`, by default the GPU on which an argument lies, else
    the current one where the process uses CUDA, else the CPU; launches: count what one further call launches.

    An exception of the function passes through. Raises UsageError for numbers that measure nothing, ToolError where torch or
    the device is missing.
    """
    if seconds <= 0 or warmup < 0 or (calls is not None and calls < 1):
        raise UsageError("pyprof.timeit: seconds and calls must be positive", "pyprof.timeit(fn, x, calls=100)")
    torch = _torch()
    clock = _clock(torch, device or _device(torch, args), flush)
    with ExitStack() as stack:
        clock.enter(stack)
        once = _warm_up(clock, fn, args, warmup)
        count = calls or min(max(math.ceil(seconds / max(once, 1e-9)), _FEWEST), _MOST)
        times, hosts = clock.measure(fn, args, count)
        launched = clock.launched(fn, args) if launches else None
    return Timing(clock.device, times, hosts, launched)


def _torch() -> Any:
    try:
        import torch
        import torch.profiler
    except ImportError as error:
        raise ToolError("pyprof.timeit needs torch, which is not installed", "pip install torch") from error
    return torch


def _tensors(torch: Any, values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, torch.nn.Module):
            yield from value.parameters()
        elif isinstance(value, (list, tuple)):
            yield from _tensors(torch, value)


def _device(torch: Any, args: Any) -> str:
    tensors = list(_tensors(torch, args))
    for tensor in tensors:
        if tensor.device.type == "cuda":
            return str(tensor.device)
    return "cuda" if not tensors and torch.cuda.is_initialized() else "cpu"


def _warm_up(clock: _CpuClock | _CudaClock, fn: Callable[..., Any], args: Any, seconds: float) -> float:
    """Call until the time is over, three times at least; returns what one call took with all that measuring adds to it."""
    begun, done = time.perf_counter(), 0
    while True:
        clock.measure(fn, args, 1)
        done += 1
        if done == 1:  # what the first call compiles and allocates is not the time of a call
            first = time.perf_counter()
        elif done >= 3 and time.perf_counter() - begun >= seconds:
            return (time.perf_counter() - first) / (done - 1)


# ---------------------------------------------------------------------------------------------- clocks


def cache_bytes(root: str = "/sys/devices/system/cpu/cpu0/cache") -> int | None:
    """Size of this CPU's last cache; None where the system does not tell."""
    sizes: dict[int, int] = {}
    for folder in sorted(Path(root).glob("index*")):
        try:
            level, size = int((folder / "level").read_text()), (folder / "size").read_text().strip()
            sizes[level] = int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return sizes[max(sizes)] if sizes else None


def _flush_bytes(cache: int | None) -> int:
    return min(max(2 * (cache or 0), _FLUSH_LEAST), _FLUSH_MOST)


class _CpuClock:
    """Times a call by the clock."""

    def __init__(self, torch: Any, flush: bool) -> None:
        self._torch, self.device = torch, "cpu"
        # Written as it is read, since a plain fill of that size goes past the caches.
        self._buffer = torch.zeros(_flush_bytes(cache_bytes()), dtype=torch.int8) if flush else None

    def enter(self, stack: ExitStack) -> None:
        """Nothing is to be prepared."""

    def measure(self, fn: Callable[..., Any], args: Any, count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Seconds of each of `count` calls, twice: the host is the device."""
        now, times = time.perf_counter, []
        for _ in range(count):
            if self._buffer is not None:
                self._buffer.add_(1)
            begun = now()
            fn(*args)
            times.append(now() - begun)
        return tuple(times), tuple(times)

    def launched(self, fn: Callable[..., Any], args: Any) -> dict[str, int] | None:
        """Ops that one call asks for, those inside other ops left out."""
        return _record(
            self._torch, [self._torch.profiler.ProfilerActivity.CPU], fn, args, lambda event: event.cpu_parent is None
        )


class _CudaClock:
    """Times the work of a call on its stream, between two events; the host runs ahead while the cache is flushed."""

    def __init__(self, torch: Any, device: str, flush: bool) -> None:
        if not torch.cuda.is_available():
            raise ToolError(f"{device}: torch has no GPU here", "pyprof.timeit(fn, device='cpu')")
        index = torch.device(device).index
        index = torch.cuda.current_device() if index is None else index
        self._torch, self.device, self._index = torch, f"cuda:{index}", index
        cache = getattr(torch.cuda.get_device_properties(index), "L2_cache_size", None)
        self._buffer = torch.empty(_flush_bytes(cache), dtype=torch.int8, device=self.device) if flush else None

    def enter(self, stack: ExitStack) -> None:
        """Make it the current device."""
        stack.enter_context(self._torch.cuda.device(self._index))

    def measure(self, fn: Callable[..., Any], args: Any, count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Seconds of each of `count` calls on the device, and until each returned."""
        cuda, now, hosts = self._torch.cuda, time.perf_counter, []
        events = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in range(count)]
        for begin, end in events:
            if self._buffer is not None:
                self._buffer.zero_()
            begin.record()
            begun = now()
            fn(*args)
            hosts.append(now() - begun)
            end.record()
        cuda.synchronize()
        return tuple(begin.elapsed_time(end) / 1e3 for begin, end in events), tuple(hosts)

    def launched(self, fn: Callable[..., Any], args: Any) -> dict[str, int] | None:
        """Kernels, copies and memsets of one call."""
        activity = self._torch.profiler.ProfilerActivity
        on_gpu = self._torch.autograd.DeviceType.CUDA
        return _record(self._torch, [activity.CPU, activity.CUDA], fn, args, lambda event: event.device_type == on_gpu)


def _clock(torch: Any, device: str, flush: bool) -> _CpuClock | _CudaClock:
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise UsageError(f"pyprof.timeit: no device {device!r}", "cpu, cuda or cuda:N")
    return _CpuClock(torch, flush) if kind == "cpu" else _CudaClock(torch, device, flush)


def _record(
    torch: Any, activities: list[Any], fn: Callable[..., Any], args: Any, counts: Callable[[Any], bool]
) -> dict[str, int] | None:
    """What torch.profiler sees of one call; None where it is recording already."""
    if torch.autograd._profiler_enabled():
        return None
    with torch.profiler.profile(activities=activities) as profiler:
        fn(*args)
        if len(activities) > 1:
            torch.cuda.synchronize()
    return dict(Counter(event.name for event in profiler.events() if counts(event)))
