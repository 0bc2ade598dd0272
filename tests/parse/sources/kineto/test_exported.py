"""Markers in the timelines that pyprof writes: read back to the same."""

import math

import msgspec
import pytest

from pyprof.model.calltext import call_text
from pyprof.model.markers import Kind, Marker, decode
from pyprof.model.opcall import UNKNOWN, DTypeArg, OpCall, TensorSpec
from pyprof.parse.sources.kineto.exported import MarkerFields

HALF = TensorSpec((4, 8), "float16", (8, 1))
OPEN = TensorSpec((3,), "float32")  # strides not recorded
COLLECTIVE = OpCall("c10d", "record", (), (("collective", "broadcast"), ("input", OPEN)), dispatcher=True, described=False)
CALLS = (
    OpCall("aten", "mm", (HALF, HALF), dispatcher=True),
    OpCall("aten", "cat", ([HALF, OPEN], 1, None, UNKNOWN), dispatcher=True),
    OpCall(
        "aten",
        "add",
        (OPEN, -1.5, True, "text", DTypeArg("bfloat16"), (1,), [1.0, math.inf]),
        (("alpha", 2j),),
        dispatcher=True,
    ),
    OpCall("aten", "relu", dispatcher=True, described=False),
    OpCall("autograd", "torch::CppNode<a::b, f(x)>", (HALF,), dispatcher=True),
    COLLECTIVE,
)
TEXTS = (
    'linear(fp32[64,32], fp32[16,32]) #pyprof{"mod":"torch.nn.functional","autocast":"cuda:bf16","src":["a.py:1","b.py:2"]}',
    'blocks.0 #pyprof{"layer":"Block"}', 'step 3 #pyprof{"step":3}', 'AdamW.step #pyprof{"optimizer":"AdamW"}',
    "{'mod': 'torch', 'op': 'add', 'args': [{'name': '', 'type': 'float', 'value': 'nan'}]}",
    "{'traceMarker': ['net.py:4']}", "layer:conv", "aten::mm, sizes = [[2, 3], [3, 4]]", "a text of the user",
)  # fmt: skip


def again(marker: Marker) -> Marker:
    text = msgspec.json.encode(MarkerFields.of(marker))
    return msgspec.json.decode(text, type=MarkerFields).marker()


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_ops_of_torch_profiler_come_back_whole(call: OpCall) -> None:
    marker = Marker(Kind.DISPATCH, call.name, call.name, call)
    assert repr(again(marker)) == repr(marker) and call_text(again(marker).call or call) == call_text(call)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("keyed", "numbered"), [(False, False), (True, False), (True, True)])
def test_texts_of_nvtx_come_back_by_decoding_them(text: str, keyed: bool, numbered: bool) -> None:
    marker = decode(text, keyed=keyed, numbered=numbered)
    assert repr(again(marker)) == repr(marker) and MarkerFields.of(marker).kind is None


def test_a_module_keeps_its_path_and_a_launch_its_lines() -> None:
    for marker in (
        Marker(Kind.LAYER, "Net_0.Block_1", "Net_0.Block_1", scope="module"),
        Marker(Kind.TRACE, "", "launch"),
        Marker(Kind.USER, "aten::mm", "aten::mm"),
        Marker(Kind.STEP, "ProfilerStep#7", "seven", src=("net.py:1",), own=True, step=7),
    ):
        assert again(marker) == marker
