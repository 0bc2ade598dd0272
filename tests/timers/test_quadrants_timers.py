"""A Quadrants kernel of three blocks, run on the CPU, that times itself with its own clock."""

# No `from __future__ import annotations`: Quadrants evaluates the annotations of its kernels.
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest

from pyprof.errors import ToolError
from pyprof.timers import Buffer, clocks, load, readings

pytestmark = pytest.mark.slow

ITERATIONS, LANES = 200, 4


class Time(IntEnum):
    ONE = 1
    FOUR = 2
    TWO = 3
    DEAD = 4


@pytest.fixture(scope="module")
def buffer() -> Buffer:
    qd = pytest.importorskip("quadrants", reason="needs quadrants")  # here, since importing it takes long
    qd.init(arch=qd.cpu, cpu_max_num_threads=1, log_level=qd.ERROR, offline_cache=False)

    @qd.kernel
    def timed(times: qd.types.NDArray[qd.i64, 3], starts: qd.types.NDArray[qd.i64, 3], state: qd.types.NDArray[qd.f64, 1]):  # type: ignore[no-untyped-def]
        for lane in range(times.shape[2]):
            qd.loop_config(serialize=True)
            for it in range(times.shape[1]):
                x = state[lane]
                before = qd.clock_counter()
                begin = qd.clock_counter()
                for _ in range(1000):
                    x = qd.sin(x) + 1.0
                one = qd.clock_counter()
                for _ in range(4000):
                    x = qd.sin(x) + 1.0
                four = qd.clock_counter()
                for _ in range(2000):
                    x = qd.sin(x) + 1.0
                two = qd.clock_counter()
                unused = x
                for _ in range(1000):
                    unused = unused * 0.999 + 1.0
                dead = qd.clock_counter()
                state[lane] = x
                times[0, it, lane] = begin - before
                times[1, it, lane] = one - begin
                times[2, it, lane] = four - one
                times[3, it, lane] = two - four
                times[4, it, lane] = dead - two
                starts[1, it, lane] = begin
                starts[2, it, lane] = one
                starts[3, it, lane] = four
                starts[4, it, lane] = two

    made = Buffer(Time, ITERATIONS, LANES, backend="quadrants", kernel="timed")
    timed(made.ticks, made.starts, np.ones(LANES))
    return made


def test_blocks_take_what_their_steps_take(buffer: Buffer, tmp_path: Path) -> None:
    buffer.calibrate("tsc").save(tmp_path / "timers.npz")
    found = readings.readings_of(load(tmp_path / "timers.npz"))
    table = readings.blocks(found)
    medians, flags, share = (table.of(key) for key in ("median_ticks", "flags", "share"))
    one, four, two, dead = medians.values.tolist()  # type: ignore[union-attr]
    assert 3.6 < four / one < 4.4 and 1.8 < two / one < 2.2 and dead < one / 10
    assert np.abs(share.values[:3] - [100 / 7, 400 / 7, 200 / 7]).max() < 3  # type: ignore[union-attr]
    assert [flags.pool[code] for code in flags.codes] == ["", "", "", "removed?"]  # type: ignore[union-attr]
    assert table.of("count").values.tolist() == [ITERATIONS * LANES] * 4  # type: ignore[union-attr]


def test_the_clock_is_that_of_this_cpu(buffer: Buffer) -> None:
    hz, cost = clocks.tsc()
    again, _ = clocks.tsc()
    assert 1e7 < hz < 1e10 and abs(again / hz - 1) < 0.01 and 0 < cost < 10_000
    # Lanes share the counter, and run here one after another: no reading begins before the one ahead of it has ended.
    found = readings.readings_of(buffer.calibrate("tsc"))
    assert found.together
    order = np.argsort(found.start_ns)
    ends = (found.start_ns + found.ns)[order]
    assert (found.start_ns[order][1:] >= ends[:-1] - 1).all()


def test_a_nominal_rate_is_that_of_a_gpu(buffer: Buffer) -> None:
    with pytest.raises(ToolError, match="no clock rate here"):
        buffer.calibrate("nominal")


def test_quadrants_must_be_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("quadrants", reason="needs quadrants")
    from quadrants.lang import impl

    monkeypatch.setattr(impl.get_runtime(), "_prog", None)
    with pytest.raises(ToolError, match="not initialised"):
        Buffer(Time, 1, backend="quadrants")
