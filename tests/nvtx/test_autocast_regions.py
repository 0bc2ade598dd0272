"""Autocast: what a marker says of the region around an op, and our lists of ops against those of the installed torch."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from nvtx_recording import Recorder
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from pyprof.model.autocast import run_call, treatment, treatments
from pyprof.model.opcall import DTypeArg, OpCall
from pyprof.nvtx.describe import describe_call

LOW = torch.bfloat16


def test_an_op_in_a_region_is_read_with_the_types_in_which_it_ran(recorder: Recorder) -> None:
    x, w = torch.randn(4, 8), torch.randn(16, 8, requires_grad=True)
    recorder.clear()
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            y = F.linear(x, w)
            F.relu(y)
            with torch.autocast("cpu", enabled=False):
                F.linear(x, w)
    F.linear(x, w)
    assert recorder.calls() == [
        "linear(bf16[4,8], bf16[16,8]^)", "relu(bf16[4,16]^)", "linear(fp32[4,8], fp32[16,8]^)",
        "linear(fp16[4,8], fp16[16,8]^)", "relu(fp16[4,16]^)", "linear(fp32[4,8], fp32[16,8]^)",
        "linear(fp32[4,8], fp32[16,8]^)",
    ]  # fmt: skip
    assert '{"mod":"torch.nn.functional","autocast":"cpu:bfloat16","src":' in recorder.texts[0]
    assert recorder.texts[0].startswith("linear(fp32[4,8], fp32[16,8]^)")
    assert '"autocast":' not in recorder.texts[-1]


def test_regions_belong_to_threads_and_devices(recorder: Recorder) -> None:
    x = torch.randn(4, 8)

    def call() -> torch.Tensor:
        return torch.mm(x, x.t())

    recorder.clear()
    with torch.autocast("cpu", dtype=LOW):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        call()
    torch.set_autocast_enabled("cuda", True)
    try:
        call()
    finally:
        torch.set_autocast_enabled("cuda", False)
    found = [text for text in recorder.calls() if text.startswith("mm")]
    assert found == ["mm(fp32[4,8], fp32[8,4]{1,8})", "mm(bf16[4,8], bf16[8,4]{1,8})", "mm(fp32[4,8], fp32[8,4]{1,8})"]


def test_tensors_of_devices_without_autocast_are_left_alone(recorder: Recorder) -> None:
    x = torch.empty(4, 8, device="meta")
    recorder.clear()
    with torch.autocast("cpu", dtype=LOW):
        torch.mm(x, x.t())
        torch.cat([x, x])
        torch.zeros(3)
        torch.einsum("ij->j", torch.nn.Parameter(torch.ones(2, 2)))
    assert not any(
        '"autocast":' in text for text in recorder.texts if "meta" in text or text.startswith(("mm", "cat", "zeros"))
    )
    assert '"autocast":' in recorder.texts[-1]


def test_lists_and_keyword_arguments_are_asked_too(recorder: Recorder) -> None:
    x, y = torch.randn(4, 8), torch.randn(4, 8, dtype=LOW)
    recorder.clear()
    with torch.autocast("cpu", dtype=LOW):
        torch.cat([y, x])
        torch.mm(input=x, mat2=x.new_ones(8, 2))
    assert [text for text in recorder.calls() if "new_ones" not in text] == [
        "cat([fp32[4,8], fp32[4,8]])",
        "mm(input=bf16[4,8], mat2=bf16[8,2])",
    ]


def test_compiled_and_scripted_programs_are_as_they_were(recorder: Recorder) -> None:
    def net(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=LOW):
            return F.linear(x, w).relu() @ w

    x, w = torch.randn(4, 8), torch.randn(8, 8)
    plain = net(x, w)
    explained = torch._dynamo.explain(net)(x, w)
    assert explained.graph_break_count == 0
    assert torch.equal(torch.compile(net, backend="eager", fullgraph=True)(x, w), plain)
    with torch.autocast("cpu", dtype=LOW):
        assert torch.equal(torch.compile(F.linear, backend="eager", fullgraph=True)(x, w), F.linear(x, w))
        with pytest.warns((DeprecationWarning, FutureWarning)):  # the latter from torch 2.14 on
            traced = torch.jit.trace(lambda x, w: F.linear(x, w), (x, w))
        assert torch.equal(traced(x, w), F.linear(x, w))


def registered(key: str) -> set[str]:
    return {name[len("aten::") :].partition(".")[0] for name in torch._C._dispatch_get_registrations_for_dispatch_key(key)}


@pytest.mark.parametrize(("device", "key"), [("cuda", "AutocastCUDA"), ("cpu", "AutocastCPU")])
def test_every_op_of_torchs_lists_is_in_ours(device: str, key: str) -> None:
    """And no other, but for those whose parts are on a list."""
    ours = treatments()[device]
    # This one autocast of CUDA refuses to run.
    assert registered(key) - set(ours) == ({"binary_cross_entropy"} if device == "cuda" else set())
    inside = {name for name, how in ours.items() if how in ("products", "unknown", "mixed")} | {"lstm"}
    inside |= {"linalg_matrix_sqrth"} | ({"cholesky", "qr"} if device == "cpu" else set())  # new in torch 2.14, gone from it
    if device == "cuda":
        inside |= {"linalg_norm", "gru", "rnn_tanh", "rnn_relu", "square", "_cudnn_rnn"}
    assert set(ours) - registered(key) == inside - registered(key)


def test_treatments_of_cuda_are_those_of_torchs_header() -> None:
    header = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
    if not header.is_file() or "AT_FORALL_PROMOTE" not in (text := header.read_text()):
        pytest.skip("this torch has no lists in its headers")
    for how, macro in {
        "lower": "LOWER_PRECISION_FP",
        "fp32": "FP32",
        "dtype": "FP32_SET_OPT_DTYPE",
        "promote": "PROMOTE",
    }.items():
        body = re.search(rf"#define AT_FORALL_{macro}\(_\)((?:.*\\\n)*.*\n)", text)
        assert body is not None
        names = set(re.findall(r"_\((\w+)", body[1]))
        assert {treatments()["cuda"].get(name) for name in names} == {how}


class Casts(TorchDispatchMode):
    """What was cast of some tensors before an op used them, and whether any op was asked for fp32."""

    def __init__(self, watched: list[torch.Tensor]) -> None:
        super().__init__()
        self.place = {id(tensor): place for place, tensor in enumerate(watched)}
        self.casts: dict[int, str] = {}
        self.asked = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        dtype = (kwargs or {}).get("dtype")
        mixed = dtype in (torch.float32, LOW)  # ops cast to other types by themselves
        if func is torch.ops.aten._to_copy.default and id(args[0]) in self.place and mixed:
            self.casts.setdefault(self.place[id(args[0])], str(dtype).removeprefix("torch."))
        self.asked |= dtype is torch.float32
        return func(*args, **(kwargs or {}))


@contextmanager
def region(device: str) -> Iterator[None]:
    """autocast(device), on a machine without that device."""
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, LOW)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, False)
        torch.clear_autocast_cache()


Types = Callable[[int], torch.dtype]
TYPES: dict[str, Types] = {
    "fp32": lambda i: torch.float32,
    "low": lambda i: LOW,
    "mixed": lambda i: (torch.float32, LOW)[i % 2],
}


def described(op: Any, args: Any, kwargs: Any) -> OpCall:
    module, _, name = op.name.rpartition(".")
    if module not in ("nn.functional", "linalg", "fft", "special", ""):
        module, name = "", op.name
    return describe_call(f"torch.{module}".rstrip("."), name, (), args, kwargs)


# Python functions that pad, add a dimension or call another op before the op on the list, and attention whose reference
# implementation casts once more: what is cast there is no argument of theirs.
ELSEWHERE = {"stft", "nn.functional.conv3d", "nn.functional.max_pool3d", "nn.functional.scaled_dot_product_attention"}


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.filterwarnings("ignore")
def test_torch_casts_what_we_say_that_it_casts(device: str) -> None:
    """Every op of torch's own database that we have a treatment for, on tensors that only pretend to be on the device."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.testing._internal.common_methods_invocations import op_db

    compared: dict[str, int] = {}
    wrong: dict[str, str] = {}
    for op in op_db:
        name = op.name.replace("nn.functional.", "").replace("linalg.", "linalg_").replace("fft.", "fft_")
        how = treatments()[device].get(name, "")
        if how in ("", "products", "unknown", "mixed") or torch.float32 not in op.supported_dtypes("cpu") or op.name == "lstm":
            continue
        for sample in list(op.sample_inputs("cpu", torch.float32))[:3]:
            for kind, types in TYPES.items():
                with FakeTensorMode(allow_non_fake_inputs=True):
                    watched: list[torch.Tensor] = []

                    def faked(value: Any, types: Types = types, watched: list[torch.Tensor] = watched) -> Any:
                        if not isinstance(value, torch.Tensor):
                            return value
                        dtype = types(len(watched)) if value.dtype is torch.float32 else value.dtype
                        watched.append(torch.empty_strided(value.shape, value.stride(), dtype=dtype, device=device))
                        return watched[-1]

                    args, kwargs = tree_map(faked, ((sample.input, *sample.args), sample.kwargs))
                    try:
                        with region(device), Casts(watched) as seen:
                            op(*args, **kwargs)
                    except Exception:  # torch refuses these types
                        continue
                    call = described(op, args, kwargs)
                    ran, _ = run_call(call, device, "bfloat16")
                    places = [
                        place for place, tensor in enumerate(watched) if any(tensor is leaf for leaf in tree_leaves(args))
                    ]
                    places += [place for place in range(len(watched)) if place not in places]
                assert treatment(call, device) == how, (op.name, how)
                changes = {
                    place: after.dtype
                    for place, before, after in zip(places, call.tensors, ran.tensors, strict=True)
                    if before.dtype != after.dtype
                }
                asked = ("dtype", DTypeArg("float32")) in ran.kwargs and ran != call
                if not (seen.asked or changes == seen.casts if asked else changes == seen.casts):
                    wrong[op.name] = f"{kind}: {call} was said to run as {ran}, and torch cast {seen.casts}"
                compared[op.name] = compared.get(op.name, 0) + 1
    assert set(wrong) <= ELSEWHERE, "\n".join(wrong.values())
    assert len(compared) > 70, sorted(compared)
