"""Changes to the texts of ranges and names of kernels, and what must hold of all that reads one such text.

These readers take microseconds, so they are also tried alone, a text at a time, by the hundred thousand.
"""

from __future__ import annotations

import re
import time
from functools import cache
from random import Random

from pyprof.hardware import kernels, names
from pyprof.messages import one_line
from pyprof.model import calltext, markers, opcall
from pyprof.model import scheduler_steps as engine_steps

PIECES = (
    "9" * 30, "-1", "0", "1e9", "[", "]", "(", ")", "=", " ", "_", "\x1b[31m", "\u202e", "4294967296", "nan", "...+3", ", seq = 5", "{", "}", "sq", '"',
    ", sizes = [[", ", op_id = ", "<", ">", "::", "\\", "'", ",", "#pyprof{", "\x00", "\ud800", "in=[", "layer:", "bs=", "\n",
)  # fmt: skip
_ENCODABLE = tuple(piece for piece in PIECES if piece != "\ud800")
_CPU_SECONDS = 1.0
_LONGEST = 3 << 20
_DIGIT = re.compile(r"\d")
_MORE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>(int, F)",
    "_ZN2at6native27unrolled_elementwise_kernelINS0_11FillFunctorIfEESt5arrayIPcLm1EELi4EEEviT_T0_",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x3_tn_align8>(T1::Params)",
    "triton_red_fused__to_copy_add_native_layer_norm_12",
    "autograd::engine::evaluate_function: AddmmBackward0, seq = 5, op_id = 4, sizes = [[4, 2]], input_op_ids = [(3,0)]",
    "nccl:all_reduce, seq = 5, op_id = 77, sizes = [[4, 8]]",
    "encoder.layers.3 #pyprof{\"layer\":\"TransformerEncoderLayer\"}",
)  # fmt: skip


@cache
def corpus() -> tuple[str, ...]:
    """Texts of every kind that is read."""
    from tests.model.test_scheduler_steps import CASES
    from tests.test_unreadable import USERS

    return (*(text for text in USERS.values() if len(text) < 500 and text), *CASES, *_MORE)


def changed_text(random: Random, text: str, other: str) -> str:
    """A text with something put in, left out, repeated, or taken from another; now and then megabytes."""
    at = random.randrange(len(text) + 1)
    some = random.choice(_ENCODABLE)
    return random.choice((
        lambda: text[:at] + some + text[at:],
        lambda: text[:at] + text[at + random.randrange(1, 9) :],
        lambda: text[:at] + other[random.randrange(len(other) + 1) :],
        lambda: _DIGIT.sub(lambda digit: digit[0] if random.random() < 0.75 else str(int(10 ** (19 * random.random()))), text),
        lambda: text[:at] + text[at:] * random.choice((2, 50)),
        lambda: (text + some) * (1 + _LONGEST // len(text + some) if random.random() < 0.002 else 2),
    ))()  # fmt: skip


def make_text(random: Random) -> str:
    """One changed text."""
    text = random.choice(corpus())
    for _ in range(random.choice((1, 1, 2, 5))):
        if len(text) < 20_000:
            text = (
                changed_text(random, text, random.choice(corpus()))
                if random.random() < 0.999
                else text * (_LONGEST // max(len(text), 1))
            )
        if random.random() < 0.02:
            text = text.replace(random.choice(text or " "), random.choice(PIECES), 3)
    return text


def complaint_of(text: str) -> str | None:
    """What is wrong with how one text is read; None if nothing is."""
    limit, begin = _CPU_SECONDS + len(text) / 1e6, time.perf_counter()
    if (wrong := _complaint(text)) is not None or time.perf_counter() - begin < limit:
        return wrong
    own = time.process_time()  # which takes as long to ask for as a text to read
    _complaint(text)
    taken = time.process_time() - own
    return f"{taken:.1f} s for {len(text)} characters" if taken > limit else None


def _complaint(text: str) -> str | None:
    label, seq, op_id, keyed = markers.split_ids(text)
    marker = markers.decode(label, keyed=keyed, numbered=seq >= 0)
    marker.text.encode(), marker.name.encode()
    if not -1 <= op_id < 1 << 62 or not -1 <= seq < 1 << 62:
        return f"ids {seq}, {op_id}"
    if marker.call is not None:
        written = calltext.call_text(marker.call)
        if calltext.call_text(calltext.parse_call_text(written)) != written:
            return f"a call that is not read as it is written: {written[:500]!r}"
        for tensor in marker.call.tensors:
            if (tensor.nbytes or 0) < 0:
                return f"{tensor}: negative bytes"
    engine_steps.read(text), engine_steps.form(text)
    name = opcall.sound_text(text)
    if len(text) % 8 == 0:  # the rules of kernels take longer than all the rest
        name = opcall.sound_text(text)
        kernels.classify.__wrapped__(names.demangle(name)), names.short_name(name)
    if (shown := one_line(text)) and (not shown.isprintable() or len(shown) > 10_000):
        return f"shown as {shown[:300]!r}"
    return None
