"""Clock readings for Triton kernels: `from pyprof.timers.triton import arrived, clock64, globaltimer, smid`.

    @triton.jit
    def kernel(x, ticks, ITERATIONS: tl.constexpr, LANES: tl.constexpr, N: tl.constexpr):
        begin = clock64()
        v = arrived(tl.load(x + tl.arange(0, N)))
        end = clock64()
        tl.store(ticks + 1 * ITERATIONS * LANES + tl.program_id(0), end - begin)      # block 1, iteration 0

`ticks` is the tensor of `Buffer(Time, ITERATIONS, LANES, backend="torch", device="cuda").ticks`. Every thread reads its clock,
and the first thread's reading is stored. Readings stay in their order among themselves, but a load is only issued before the
reading that follows it: its latency falls into the block that first uses the value, unless `arrived` waits for it. `clock64`
counts the cycles of one SM, so that readings compare within one program only; `globaltimer` is in ns, the same on all SMs, and
moves in steps of up to 1 us.

Under TRITON_INTERPRET=1 both read the host's clock in ns, `smid` is 0, and values have always arrived. Compiled for NVIDIA's
GPUs only. Importing this module imports triton.
"""

from __future__ import annotations

import time

from pyprof.errors import unusable

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise unusable("pyprof.timers.triton", "Triton", error, "pip install triton") from error


@triton.jit
def clock64():
    """The cycles that this SM has counted, int64."""
    return tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def globaltimer():
    """The GPU's time in ns, int64."""
    return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def smid():
    """The number of the SM that runs this program, int32."""
    return tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)


# A comparison with the value is not issued before the value is there, and a warp issues in order. What depends on its outcome
# sleeps for no time, in one case of 2^32; without that the comparison would be removed.
@triton.jit
def arrived(value):
    """The value, of 16, 32 or 64 bits an element, once it is in registers: loads before it end before a reading after it."""
    if value.dtype.primitive_bitwidth == 64:
        asm64: tl.constexpr = "{ .reg .pred p; mov.b64 $0, $1; setp.eq.b64 p, $1, 0x7ff80badc0ffee00; @p nanosleep.u32 0; }"
        return tl.inline_asm_elementwise(asm64, "=l,l", [value], dtype=value.dtype, is_pure=False, pack=1)
    elif value.dtype.primitive_bitwidth == 32:
        asm32: tl.constexpr = "{ .reg .pred p; mov.b32 $0, $1; setp.eq.b32 p, $1, 0x7fc0badc; @p nanosleep.u32 0; }"
        return tl.inline_asm_elementwise(asm32, "=r,r", [value], dtype=value.dtype, is_pure=False, pack=1)
    else:
        tl.static_assert(value.dtype.primitive_bitwidth == 16, "arrived takes elements of 16, 32 or 64 bits")
        asm16: tl.constexpr = "{ .reg .pred p; mov.b32 $0, $1; setp.eq.b32 p, $1, 0x7fc0badc; @p nanosleep.u32 0; }"
        return tl.inline_asm_elementwise(asm16, "=r,r", [value], dtype=value.dtype, is_pure=False, pack=2)


if not isinstance(clock64, triton.runtime.JITFunction):  # the interpreter, which has no inline assembly

    def clock64():  # noqa: D103
        return tl.full([], time.perf_counter_ns(), tl.int64)

    def smid():  # noqa: D103
        return tl.full([], 0, tl.int32)

    def arrived(value):  # noqa: D103
        return value

    globaltimer = clock64
