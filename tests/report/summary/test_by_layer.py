"""The summary's time by layer: wrappers of torch left out, siblings of one class as one, told below where most of the time is."""

from pathlib import Path

import pytest

from pyprof.commands.summary import summary_of
from pyprof.loading.load import load_capture
from pyprof.report.summary.breakdown import folded_layers
from tests.tiny import Nsys

Rows = list[tuple[str | None, str | None, int]]


def by_layer(capture: Path) -> tuple[str, str | None, Rows]:
    found = summary_of(str(capture))
    return found.around, found.around_cls, [(one.name, one.cls, one.time_ns) for one in found.layers]


def program(*calls: tuple[list[str], int]) -> Nsys:
    """A kernel of so many ns in each of these stacks of ranges; a text `path=Class` is a module's range."""
    n, at = Nsys(), 1_000
    for ranges, ns in calls:
        for depth, text in enumerate(ranges):
            path, _, cls = text.partition("=")
            n.range(f'{path} #pyprof{{"layer":"{cls}"}}' if cls else path, at + depth, at + 500 - depth)
        n.kernel("gemm", at + 100, at + 200, at + 200 + ns)
        at += 1_000 + ns
    return n


def test_layers_in_the_one_with_most(tmp_path: Path) -> None:
    calls: list[tuple[list[str], int]] = [(["Net=Net", "head=Linear"], 50)]
    for number in range(3):
        block = ["Net=Net", f"blocks.{number}=Block"]
        calls += [([*block, f"blocks.{number}.mlp=Linear"], 300), ([*block, f"blocks.{number}.attn=Attn"], 100), (block, 20)]
    assert by_layer(program(*calls).write(tmp_path / "net.sqlite")) == (
        "blocks.0..2", "Block",
        [("blocks.0..2.mlp", "Linear", 900), ("blocks.0..2.attn", "Attn", 300), ("blocks.0..2", "Block", 60), ("head", "Linear", 50)],
    )  # fmt: skip


def test_a_sequential_of_several_classes(tmp_path: Path) -> None:
    classes = ["Conv2d", "BatchNorm2d", "ReLU", "Conv2d", "Conv2d"]
    n = program(*([["Sequential=Sequential", f"{at}={cls}"], 100 + at] for at, cls in enumerate(classes)))
    found = by_layer(n.write(tmp_path / "net.sqlite"))
    assert found == ("", None, [("0..4", "Conv2d", 307), ("2", "ReLU", 102), ("1", "BatchNorm2d", 101)])


@pytest.mark.parametrize(
    ("ranges", "layer"),
    [
        (["DistributedDataParallel=DistributedDataParallel", "module=Net", "module.blocks.0=Block"], "blocks.0"),
        (["OptimizedModule=OptimizedModule", "_orig_mod=Net", "_orig_mod.blocks.0=Block"], "blocks.0"),
        (["OptimizedModule=OptimizedModule", "_orig_mod=DistributedDataParallel", "_orig_mod.module=Net"], "Net"),
        (["Net=Net", "block=CheckpointWrapper", "block._checkpoint_wrapped_module.fc=Linear"], "block.fc"),
        (["Net=Net", "module=Inner", "module.fc=Linear"], "module.fc"),  # called so by the user
        (["DistributedDataParallel=DistributedDataParallel"], None),
        (["train", "Torch-Compiled Region: 0/0", "## Call CompiledFxGraph fal4x ##"], "train"),
        (["DistributedDataParallel.forward", "entire_frame_compile (dynamo_timed)"], None),
    ],
)
def test_what_torch_puts_around_the_program_is_no_layer(tmp_path: Path, ranges: list[str], layer: str | None) -> None:
    found = load_capture(program((ranges, 100)).write(tmp_path / "net.sqlite"))
    assert [":".join(one.layer) or None for one in found.stacks] == [layer]


@pytest.mark.parametrize(
    ("names", "known", "right"),
    [
        ([".a_0", ".a_1", ".a_2"], {}, [".a_0..2"] * 3),  # the name says the class
        ([".a_0", ".a_1"], {}, [".a_0", ".a_1"]),
        ([":Step 1 to 2", ":Step 2 to 3", ":Step 3 to 4"], {}, [":Step * to *"] * 3),
        ([":load_1_w", ":load_2_w", ":load_9_w"], {}, [":load_1..9_w"] * 3),
        ([":0", ":1", ":2"], {}, [":0", ":1", ":2"]),  # of what classes is not known
        ([":0", ":1", ":2"], {"0": "A", "1": "A", "2": "A"}, [":0..2"] * 3),
        ([":conv1", ":conv2", ":conv3"], {}, [":conv1", ":conv2", ":conv3"]),
    ],
)
def test_siblings_of_one_class(names: list[str], known: dict[str, str], right: list[str]) -> None:
    assert [path for (path,) in folded_layers([(name,) for name in names], known)[0]] == right


def test_lists_of_unknown_classes_are_alike_where_their_layers_are() -> None:
    paths = [(":m", f".{at}", part) for at in range(3) for part in (".attn", ".mlp")] + [(":m", ".3", ".conv")]
    assert set(folded_layers(paths, {})[0]) == {(":m", ".0..2", ".attn"), (":m", ".0..2", ".mlp"), (":m", ".3", ".conv")}
