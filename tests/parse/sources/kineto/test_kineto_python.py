"""pyprof.parse.sources.kineto.python: which frame is the user's."""

from typing import Any

import numpy as np
import pytest

from pyprof.model.trace import Strings
from pyprof.parse.sources.kineto.python import LIBRARY, NEVER, USER, Frames, rank_of, source_of_stack


@pytest.mark.parametrize(
    ("frame", "rank"),
    [
        ("train.py(40): step", USER),
        ("/home/me/torch/train.py(40): step", USER),
        ("/home/me/copy.py(3): f", USER),
        ("transformers/models/vit/modeling_vit.py(117): forward", USER),
        ("/opt/lib/python3.11/site-packages/timm/layers.py(9): forward", USER),
        ("torchvision/models/resnet.py(63): forward", USER),
        ("my(odd) file.py(7): f(x)", USER),
        ("triton/kernels.py(7): add", USER),
        ("contextlib.py(78): inner", LIBRARY),
        ("quadrants/lang/kernel.py(650): launch_kernel", LIBRARY),
        ("/src/triton/python/triton/backends/nvidia/driver.py(8): __call__", LIBRARY),
        ("/usr/lib/python3.11/copy.py(3): deepcopy", LIBRARY),
        ("torch/nn/modules/module.py(1773): _wrapped_call_impl", NEVER),
        ("torch/_ops.py(1112): __call__", NEVER),
        ("/opt/lib/python3.11/site-packages/torch/optim/sgd.py(9): step", NEVER),
        ("/src/pytorch/torch/nn/functional.py(9): relu", NEVER),
        ("pyprof/nvtx/wrapper.py(9): call", NEVER),
        ("<built-in function linear>", NEVER),
        ("<string>(1): <module>", NEVER),
        ("nn.Module: Linear_0", NEVER),
        ("", NEVER),
    ],
)
def test_ranks(frame: str, rank: int) -> None:
    assert rank_of(frame)[0] == rank


def test_the_line_is_part_of_the_source() -> None:
    assert rank_of("a/train.py(40): step") == (USER, "a/train.py:40")


def test_call_stacks_begin_with_the_innermost() -> None:
    torch_ = "/x/site-packages/torch/nn/modules/conv.py(443): forward"
    assert source_of_stack(f"{torch_};inner.py(3): f;outer.py(9): <module>") == "inner.py:3"
    assert source_of_stack(f"{torch_};copy.py(3): f;outer.py(9): <module>") == "outer.py:9"
    assert source_of_stack(f"{torch_};copy.py(3): f") == "copy.py:3"
    assert source_of_stack(torch_) == source_of_stack("") == ""


def put(frames: Frames, thread: Any, start: Any, end: Any, names: list[str], ids: list[int], parents: list[int]) -> None:
    columns = {
        "thread": thread,
        "start": start,
        "end": end,
        "name": [*map(frames.names.__getitem__, names)],
        "id": ids,
        "parent": parents,
    }
    frames.add({name: np.array(values) for name, values in columns.items()})


def test_the_innermost_user_frame_open_at_each_time() -> None:
    strings = Strings()
    frames = Frames(strings)
    rows = [
        (0, 0, 100, "main.py(1): <module>"), (0, 10, 40, "net.py(5): forward"), (0, 15, 30, "torch/nn/functional.py(2): relu"),
        (0, 50, 60, "copy.py(7): deepcopy"), (1, 0, 100, "torch/autograd/x.py(1): run"),
    ]  # fmt: skip
    thread, start, end, names = (list(column) for column in zip(*rows, strict=True))
    put(frames, thread, start, end, names, [*range(len(rows))], [-1] * len(rows))
    asked = [(0, 5), (0, 12), (0, 20), (0, 35), (0, 45), (0, 55), (0, 100), (1, 5), (2, 5)]
    found = frames.sources(np.array([t for t, _ in asked]), np.array([when for _, when in asked]))
    main, net = "main.py:1", "net.py:5"
    assert [strings[code] for code in found.tolist()] == [main, net, net, net, main, main, "", "", ""]


def test_frames_that_begin_together_are_told_apart_by_their_order() -> None:
    strings = Strings()
    frames = Frames(strings)
    put(frames, [0, 0], [0, 0], [9, 9], ["inner.py(1): f", "outer.py(1): f"], [2, 1], [1, -1])
    (found,) = frames.sources(np.zeros(1, int), np.zeros(1, int)).tolist()
    assert strings[found] == "inner.py:1"
