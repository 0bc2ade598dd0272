"""On a GPU: what block timers say of a Triton kernel, beside CUDA events and the GPU's clock.

    python scripts/bench/timers_gpu.py [timers.npz]

Needs an NVIDIA GPU, torch and Triton. The kernel waits for a load and runs two loops, of which the second is twice as long as
the first. Printed is what was seen, then each check: the whole kernel by globaltimer is no longer than by CUDA events, the
blocks fill it, the second loop takes twice as long as the first, and the rate of the clock is one that a GPU has. The exit code
is 1 where a check fails.
"""

from __future__ import annotations

import sys
from enum import IntEnum

import torch
import triton
import triton.language as tl

from pyprof.timers import Buffer, readings
from pyprof.timers.triton import arrived, clock64, globaltimer, smid

STEPS, SIZE, WARM_UP = 20_000, 1024, 3


class Time(IntEnum):
    """The kernel's blocks."""

    LOAD = 1
    ONCE = 2
    TWICE = 3


@triton.jit
def timed(x, ticks, starts, pairs, sms, STEPS: tl.constexpr, LANES: tl.constexpr, SIZE: tl.constexpr):  # noqa: PLR0913
    """Row b of ticks and starts is block b, with one iteration."""
    lane = tl.program_id(0)
    tl.store(sms + lane, smid().to(tl.int64))
    tl.store(pairs + LANES + lane, globaltimer())
    first = clock64()
    begin = clock64()
    value = arrived(tl.load(x + lane * SIZE + tl.arange(0, SIZE)))
    loaded = clock64()
    for _ in range(STEPS):
        value = value * 0.999 + 1.0
    value = arrived(value)
    once = clock64()
    for _ in range(2 * STEPS):
        value = value * 0.999 + 1.0
    value = arrived(value)
    twice = clock64()
    tl.store(pairs + 3 * LANES + lane, globaltimer())
    tl.store(x + lane * SIZE + tl.arange(0, SIZE), value)
    tl.store(pairs + lane, first)
    tl.store(pairs + 2 * LANES + lane, twice)
    tl.store(ticks + lane, begin - first)
    tl.store(ticks + LANES + lane, loaded - begin)
    tl.store(ticks + 2 * LANES + lane, once - loaded)
    tl.store(ticks + 3 * LANES + lane, twice - once)
    tl.store(starts + LANES + lane, begin)
    tl.store(starts + 2 * LANES + lane, loaded)
    tl.store(starts + 3 * LANES + lane, once)


def main() -> int:
    """Run, print, check. Returns the exit code."""
    if not torch.cuda.is_available():
        print("torch has no GPU here", file=sys.stderr)
        return 1
    # one block a multiprocessor: of several that share one, the scheduler lets the older go first
    lanes = torch.cuda.get_device_properties(0).multi_processor_count
    buffer = Buffer(Time, 1, lanes, backend="torch", device="cuda", kernel="timed")
    x = torch.ones(lanes * SIZE, device="cuda")
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(WARM_UP):
        begin.record()
        timed[(lanes,)](x, buffer.ticks, buffer.starts, buffer.pairs, buffer.sms, STEPS, lanes, SIZE)
        end.record()
    torch.cuda.synchronize()
    event_ns = 1e6 * begin.elapsed_time(end)
    buffer.calibrate()
    if len(sys.argv) > 1:
        buffer.save(sys.argv[1])
    found = readings.readings_of(buffer)
    medians = readings.blocks(found).of("median_ns").values
    pairs = buffer.array("pairs")
    assert pairs is not None and buffer.hz is not None
    timer_ns = int(pairs[1, 1].max() - pairs[0, 1].min())
    lane_ns = float((pairs[1, 1] - pairs[0, 1]).mean())
    blocks_ns = float(found.ns.sum()) / lanes
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}\n{buffer}")
    print(f"clock {buffer.hz / 1e6:.1f} MHz, a reading takes {buffer.timer_cost()} ticks, {len(set(buffer.sms.tolist()))} SMs")
    print(
        f"kernel: {event_ns:.0f} ns by CUDA events, {timer_ns} by globaltimer; blocks {blocks_ns:.0f} of {lane_ns:.0f} a lane"
    )
    checks = {
        "globaltimer is within CUDA events": 0.5 * event_ns < timer_ns < 1.02 * event_ns + 2_000,
        "blocks fill their lanes": 0.9 < blocks_ns / lane_ns < 1.1,
        "the second loop takes twice the first": 1.8 < medians[2] / medians[1] < 2.2,
        "the clock's rate is a GPU's": 2e8 < buffer.hz < 4e9,
    }
    for name, holds in checks.items():
        print(f"{'ok' if holds else 'FAILED'}: {name}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
