"""Annotations of serving engines: what each form says, what follows from it exactly, and what stays unknown.

Texts as the engines write them (vLLM's gpu_worker, SGLang's model_runner and profile_utils, ATOM, TensorRT-LLM's py_executor).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.model.scheduler_steps import STEP_PHASES, EngineStep, Sums, read

VLLM_DECODE = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)"
VLLM_PREFILL = "execute_15360_context_15(sq15360sk15360sqsq15728640sqsk15728640)_generation_0(sq0sk0sqsq0sqsk0)"


def found(text: str) -> EngineStep:
    step = read(text)
    assert step is not None, text
    return step


# text: phase, requests, tokens, generated tokens, causal pairs
CASES = {
    VLLM_DECODE: ("decode", 32, 32, 32, 55086),
    VLLM_PREFILL: ("prefill", 15, 15360, 0, 15 * 1024 * 1025 // 2),
    # 6144 tokens of 2 prompts and 3 of 3 requests that generate
    "execute_6147_context_2(sq6144sk7144sqsq20971520sqsk23019520)_generation_3(sq3sk6144sqsq3sqsk6144)": (
        "mixed", 5, 6147, 3, 23019520 - (20971520 - 6144) // 2 + 6144),
    "execute_0_context_0(sq0sk0sqsq0sqsk0)_generation_0(sq0sk0sqsq0sqsk0)": ("idle", 0, 0, 0, 0),
    "execute_context_2(6144)_generation_3(3)": ("mixed", 5, 6147, 3, None),
    "execute_context_1(888_788544)_generation_0(0)": ("prefill", 1, 888, 0, None),  # and the sum of squares
    "execute_context_0(0)_generation_64(64)": ("decode", 64, 64, 64, None),
    "execute_context_0(0)_generation_64(128)": ("decode", 64, 128, None, None),  # two tokens a request: one was drafted
    "execute_new_3_cached_0": ("prefill", 3, None, 0, None),
    "execute_new_3_cached_29": (None, 32, None, None, None),  # the 29 may be in the middle of their prompts
    "execute_new_0_cached_29": (None, 29, None, None, None),
    "execute_diffusion_1_1024x1024": (None, 1, None, None, None),
    "step[EXTEND bs=15 toks=15360]": ("prefill", 15, 15360, 0, None),
    "step[DECODE bs=32]": ("decode", 32, 32, 32, None),
    "step[decode bs=1]": ("decode", 1, 1, 1, None),
    "step[prefill bs=2 toks=300]": ("prefill", 2, 300, 0, None),
    "step[mixed bs=5 ext=300 dec=3]": ("mixed", 5, 303, 3, None),
    "step[IDLE bs=0]": ("idle", 0, 0, 0, 0),
    "step[idle]": ("idle", 0, 0, 0, 0),
    "step[MIXED bs=2]": ("mixed", 2, None, None, None),
    "step[TARGET_VERIFY bs=8]": ("decode", 8, None, None, None),
    "step[DRAFT_EXTEND bs=8]": ("decode", 8, None, None, None),
    "step[VERIFY bs=8 c_sq=64 c_sqsq=512 c_sqsk=6138080 c_sk=767260]": ("decode", 8, 64, None, 6138080 - (512 - 64) // 2),
    "step[EXTEND bs=1 toks=1025 c_sqsq=1050625 c_sqsk=1050625 c_sk=1025]": ("prefill", 1, 1025, 0, 1025 * 1026 // 2),
    "step[DECODE bs=64 g_sqsq=64 g_sqsk=100032 g_sk=100032]": ("decode", 64, 64, 64, 100032),
    "step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]": ("decode", 64, 128, None, 262144 - 64),
    "step[MIXED bs=66 c=2 g=64 c_sq=2048 c_sk=2048 c_sqsq=2097152 c_sqsk=2097152 g_sq=64 g_sk=65600 g_sqsq=64 g_sqsk=65600]": (
        "mixed", 66, 2112, 64, 2 * 1024 * 1025 // 2 + 65600),
    "step[PREBUILT bs=4]": (None, 4, None, None, None),
    "prefill[bs=2 tok=14721 ctx=[7803, 6918]]": ("prefill", 2, 14721, 0, (7803 * 7804 + 6918 * 6919) // 2),
    "prefill[bs=2 tok=14000 ctx=[7803, 6918]]": ("prefill", 2, 14000, 0, None),  # 721 tokens of the two were cached
    "prefill[bs=6 tok=17408 ctx=[4096, 4096, 4096]...+3]": ("prefill", 6, 17408, 0, None),
    "prefill[bs=1 tok=100 ctx=8192]": ("prefill", 1, 100, 0, 100 * 8192 - 100 * 99 // 2),
    "decode[bs=117/128 tok=117 d=117]": ("decode", 117, 117, 117, None),
    "eager_decode[bs=3 tok=3 ctx=[5, 6, 7]]": ("decode", 3, 3, 3, None),
    "decode[bs=128 tok=384 p=2 d=126 sqsq=132612 sqsk=1114112 sk=258048 tbo=1]": (
        "mixed", 128, 384, None, 1114112 - (132612 - 384) // 2),
    "[Executor] _forward_step 600: 0 ctx reqs, 0 ctx tokens, 32 gen reqs": ("decode", 32, None, 32, None),
    "[Executor] _forward_step 601: 2 ctx reqs, 300 ctx tokens, 0 gen reqs": ("prefill", 2, 300, 0, None),
    "[Executor] _forward_step: 1 ctx reqs, 32 gen reqs": ("mixed", 33, None, 32, None),
    "execute_context_7": (None, None, None, None, None),
    "step[": (None, None, None, None, None),
}  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_what_each_form_says(text: str) -> None:
    step = found(text)
    assert (step.phase, step.requests, step.tokens, step.generated, step.pairs) == CASES[text]


@pytest.mark.parametrize(
    "text", ["", "execute_model", "step 3", "prefill", "decode[0]", "steps[DECODE bs=1]", "my step[DECODE bs=1]"]
)
def test_other_texts_are_none_of_an_engine(text: str) -> None:
    assert read(text) is None


def test_parts_are_told_apart_where_the_text_does() -> None:
    step = found("execute_context_2(6144)_generation_3(3)")
    assert step.context == Sums(2, 6144)
    assert step.generation == Sums(3, 3, None, 3)  # as many tokens as requests: one each
    assert found("step[MIXED bs=2]").context is None
    assert found("decode[bs=128 tok=384 p=2 d=126]").generation is None


def test_two_texts_of_one_step_say_what_either_does() -> None:
    detailed, plain = found(VLLM_PREFILL), found("step[EXTEND bs=15 toks=15360]")
    assert detailed.merged(plain) == plain.merged(detailed) == detailed
    executor = found("[Executor] _forward_step 1: 1 ctx reqs, 32 gen reqs")
    assert executor.merged(found("execute_context_1(300)_generation_32(32)")) == found(
        "execute_context_1(300)_generation_32(32)"
    )
    assert found("step[TARGET_VERIFY bs=32]").merged(found(VLLM_DECODE)).generated is None


@pytest.mark.parametrize("text", ["step[DECODE bs=15]", "step[EXTEND bs=14 toks=15360]", "step[EXTEND bs=15 toks=15361]"])
def test_texts_that_contradict_each_other_are_of_different_steps(text: str) -> None:
    assert found(VLLM_PREFILL).merged(found(text)) is None
    assert found(text).merged(found(VLLM_PREFILL)) is None


requests = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 100)), max_size=5)  # tokens computed, tokens before them


@given(requests, requests)
def test_pairs_are_those_under_the_mask(prompts: list[tuple[int, int]], generating: list[tuple[int, int]]) -> None:
    def sums(of: list[tuple[int, int]]) -> str:
        each = [(q, before + q) for q, before in of]
        total = [sum(q for q, _ in each), sum(k for _, k in each), sum(q * q for q, _ in each), sum(q * k for q, k in each)]
        return "{}(sq{}sk{}sqsq{}sqsk{})".format(len(of), *total)

    step = found(f"execute_1_context_{sums(prompts)}_generation_{sums(generating)}")
    both = prompts + generating
    # A token attends to those before it and to itself.
    assert step.pairs == sum(before + 1 + at for q, before in both for at in range(q))
    assert step.requests == len(both) and step.tokens == sum(q for q, _ in both)
    assert step.phase in STEP_PHASES
    for sums_ in (step.context, step.generation):
        assert sums_ is not None and None not in sums_


numbers = st.integers(0, 10**25).map(str) | st.sampled_from(["", "x", "-1", "1" * 5000])
PIECES = ["step[", "execute_", "context_", "_generation_", "(", ")", "]", " bs=", " toks=", " c=", " g=", " ext=", " dec=", " ctx=[",
          ", ", "MIXED", "DECODE", "prefill[bs=", "decode[bs=", " p=", "sq", "sk", "sqsq", "[Executor] _forward_step 1: ",
          " ctx reqs, ", " gen reqs"]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | numbers, max_size=20).map("".join) | st.text(max_size=40))
def test_no_text_is_an_error(text: str) -> None:
    step = read(text)
    assert step is None or step.phase is None or step.phase in STEP_PHASES
    assert step is None or all(number is None or 0 <= number < 1 << 62 for number in (step.requests, step.tokens))
