"""Figures for a notebook: their numbers are the page's, unknown has a reason, names out of a capture stay text."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof.errors import InputError, install_extra
from pyprof.report.figures.base import hover, shown
from pyprof.report.figures.sums import sums_by_op
from tests.conftest import ROOT
from tests.given import slow
from tests.report.page.test_page import HOSTILE, hostile
from tests.report.summary.test_summary import two_steps
from tests.tiny import Nsys

FIGURES = ("plot_roofline", "plot_layers", "plot_timeline")
GIVEN = (
    "kineto/h100_vit.json.gz", *slow("kineto/mi300_resnet_checkpoint.json.gz"), "nvprof/v100_lm/net.sql", "nvprof/v100_lm/net.dict",
    "nsys/h100_2gpu_train.nsys2026.2.sqlite", "nsys/cpu_emit_nvtx_torch2.13.nsys2023.4.sqlite",
)  # fmt: skip
OURS = re.compile(
    r"</?(b|br|span|extra)( style=\"font-size: 13px\")?>"
)  # the elements that figures themselves have in their texts


def texts(figure: Any) -> list[str]:
    """Every text in a figure."""
    found: list[str] = []

    def search(part: object) -> None:
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, dict):
            for one in part.values():
                search(one)
        elif isinstance(part, (list, tuple)):
            for one in part:
                search(one)

    search({name: part for name, part in figure.to_dict().items() if name != "layout"})
    search({name: part for name, part in figure.to_dict()["layout"].items() if name != "template"})
    return found


def said(figure: Any) -> str:
    """Title, sentence and notes."""
    return " ".join([figure.layout.title.text, *(one.text for one in figure.layout.annotations)]).replace("<br>", " ")


def test_the_roofline_of_two_steps(tmp_path: Path) -> None:
    figure = pyprof.load(two_steps().write(tmp_path / "net.sqlite")).plot_roofline()
    cores, dram, l2, points = figure.data
    assert cores.name == "fp32, cores 19.5 TFLOP/s" and set(cores.y) == {19.5e12}
    assert dram.name == "DRAM 2.04 TB/s" and l2.name == "L2 7.22 TB/s", "of A100's data sheet and whitepaper"
    assert [y / x for x, y in zip(dram.x, dram.y, strict=True)] == pytest.approx([2039e9] * 2, rel=0.01)
    matrix = 4 * 512**2
    assert points.name == "unknown" or points.name == "forward"
    assert points.x == pytest.approx([2 * 512**3 / (3 * matrix), 512**2 / (3 * matrix)])
    assert points.y == pytest.approx([2 * 512**3 / 20e-6, 512**2 / 10e-6])
    assert points.marker.size == (40_000, 20_000) and points.marker.sizemode == "area", "area is time"
    about = points.hovertext[0].split("<br>")
    assert about[0] == "<b>mm</b>" and "shapes: M=512,N=512,K=512,fp32" in about and "layer: model.fc" in about
    assert "time: 40.0 us, 67 %" in about and "calls, kernels: 2, 2" in about and "FLOPs: 537 MFLOP" in about
    assert "bytes: 6.29 MB" in about and "rate: 13.4 TFLOP/s, 157 GB/s" in about
    assert "of the roofline: 69 %, bound by compute" in about
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"


def test_the_layers_of_two_steps(tmp_path: Path) -> None:
    figure = pyprof.load(two_steps().write(tmp_path / "net.sqlite")).plot_layers()
    (icicle,) = figure.data
    place = dict(zip(icicle.ids, icicle.labels, strict=True))
    found = {
        (place.get(parent), label): ns for label, parent, ns in zip(icicle.labels, icicle.parents, icicle.values, strict=True)
    }
    assert found == {
        (None, "all"): 60_000, ("all", "model"): 40_000, ("model", "fc"): 40_000, ("fc", "mm"): 40_000,
        ("mm", "ampere_sgemm_128x64_nn"): 40_000, ("all", "add"): 20_000, ("add", "vectorized_elementwise_kernel"): 20_000,
    }  # fmt: skip
    assert icicle.branchvalues == "total" and "model.fc (67 %)" in said(figure)


def test_the_timeline_of_two_steps(tmp_path: Path) -> None:
    figure = pyprof.load(two_steps().write(tmp_path / "net.sqlite")).plot_timeline()
    assert figure.layout.yaxis.ticktext == ("GPU 0, stream 7: 30 %", "GPU 0 idle: 70 %")
    bars = {trace.name: trace for trace in figure.data if trace.type == "bar"}
    busy = [trace for name, trace in bars.items() if not name.startswith("idle") and name != "longest gaps"]
    # 200 us in us: the width of a bar times its height (0.8 is busy all the time) is time.
    assert sum(w * y / 0.8 for trace in busy for w, y in zip(trace.width, trace.y, strict=True)) == pytest.approx(60, rel=1e-3)
    idle = [trace for name, trace in bars.items() if name.startswith("idle")]
    assert sum(w * y / 0.8 for trace in idle for w, y in zip(trace.width, trace.y, strict=True)) == pytest.approx(140, rel=1e-3)
    gaps = bars["longest gaps"]
    assert sum(gaps.width) == pytest.approx(140) and gaps.hovertext[0].startswith("<b>gap of 50.0 us</b>")
    assert "after it: mm" in gaps.hovertext[0] and "after it: the window's end" in " ".join(gaps.hovertext)
    (steps,) = (trace for trace in figure.data if trace.name == "steps")
    assert steps.x == (100, 100, None)


@pytest.mark.parametrize("name", GIVEN)
def test_figures_of_every_capture_show_the_numbers_of_its_summary(captures: Path, name: str) -> None:
    found = pyprof.load(captures / name)
    summary = found.summary()
    roofline, layers, timeline = (getattr(found, figure)() for figure in FIGURES)
    (icicle,) = layers.data
    assert icicle.values[icicle.parents.index("")] == summary.kernel_ns
    inside: dict[str, int] = {}
    for parent, ns in zip(icicle.parents, icicle.values, strict=True):
        inside[parent] = inside.get(parent, 0) + ns
    of = dict(zip(icicle.ids, icicle.values, strict=True))
    assert all(inside[parent] == of[parent] for parent in inside if parent), "parts add up to the whole, or plotly draws none"
    points = [trace for trace in roofline.data if trace.mode == "markers+text"]
    assert sum(sum(trace.marker.size) for trace in points) <= summary.kernel_ns
    if not points:
        assert "No op has both FLOPs and bytes that are known" in said(roofline)
    if summary.wall_ns is None:
        assert "The records do not say when they ran" in said(timeline)
    else:
        lanes = [text for text in timeline.layout.yaxis.ticktext if "idle" in text]
        assert len(lanes) == len(summary.devices)
    for figure in (roofline, layers, timeline):
        assert found.file.rpartition("/")[2] in said(figure)


def test_names_of_a_capture_are_text_in_every_figure(tmp_path: Path) -> None:
    n = Nsys()
    names = (
        *HOSTILE,
        "<b>bold</b>",
        '<a href="javascript:alert(1)">x</a>',
        "a&lt;b",
        r"$\href{javascript:alert(1)}{x}$",
        "%{x}",
    )
    for at, name in enumerate(names):
        begin = 1_000 + 1_000 * at
        n.range(f'{name} #pyprof{{"layer":1}}', begin, begin + 900)
        n.range(f'{name}(fp32[8,8], fp32[8,8]) #pyprof{{"mod":"torch"}}', begin + 10, begin + 800)
        n.kernel(name, begin + 20, begin + 100, begin + 700)
    n.rows["TARGET_INFO_GPU"].append((0, "<b>GPU</b>", 0, 108, 8, 0))
    found = pyprof.load(n.write(tmp_path / "a<b>$x$.sqlite"))
    for figure in FIGURES:
        every = texts(getattr(found, figure)())
        assert not any("<" in OURS.sub("", text) or "$" in text for text in every), figure
    (icicle,) = found.plot_layers().data
    assert {"&lt;b&gt;bold&lt;/b&gt;", "a&amp;lt;b"} <= set(icicle.labels)
    assert "a&lt;b&gt;&#36;x&#36;.sqlite" in found.plot_timeline().layout.title.text


def test_texts_are_escaped_and_broken() -> None:
    assert shown("<a href='x'>&lt;$1$") == "&lt;a href='x'&gt;&amp;lt;&#36;1&#36;"
    assert hover("a<b", [("x", "1"), ("y", None), ("z", "")]) == "<b>a&lt;b</b><br>x: 1"
    assert hover("t", [("name", "k" * 200)]).count("<br>") == 3


def test_a_capture_without_a_device_says_what_cannot_be_drawn(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyprof.hardware.cpus.peak", lambda: None)
    found = pyprof.load(data / "kineto_cpu.json.gz")
    roofline = found.plot_roofline()
    assert {trace.mode for trace in roofline.data} == {"markers+text"}, "points, no ceilings"
    assert "the peaks of this CPU are not measured, so there are no ceilings: pyprof doctor --calibrate" in said(roofline)
    assert "op time" in said(found.plot_layers())
    assert [text.partition(":")[0] for text in found.plot_timeline().layout.yaxis.ticktext] == ["CPU", "CPU idle"]


def test_the_roofline_against_another_device(tmp_path: Path) -> None:
    found = pyprof.load(two_steps().write(tmp_path / "net.sqlite"))
    assert found.plot_roofline(gpu="H100 SXM").data[0].name == "fp32, cores 66.9 TFLOP/s"
    with pytest.raises(InputError):
        found.plot_roofline(gpu="no such")


def test_without_flops_the_roofline_says_so(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel("unheard_of", None, 2000, 2200)
    found = pyprof.load(n.write(tmp_path / "net.sqlite"))
    figure = found.plot_roofline()
    assert (
        not figure.data
        and "No op has both FLOPs and bytes" in said(figure)
        and "no point for 1 op with 200 ns (100 %)" in said(figure)
    )
    assert found.plot_layers().data[0].labels == ("all", "no op known", "unheard_of")


def test_sums_of_cells_are_known_where_nearly_all_is(tmp_path: Path) -> None:
    cells = pyprof.load(hostile(tmp_path / "net.sqlite"))._section.charts["cells"]
    sums = sums_by_op(cells)
    assert sum(one.time_ns for one in sums) == sum(cells["time_ns"])
    assert all(one.known_flops is None and one.flops_per_s is None and one.peak is None for one in sums)


def test_without_plotly_figures_alone_are_one_error_with_a_hint(tmp_path: Path) -> None:
    path = two_steps().write(tmp_path / "net.sqlite")
    code = f"""
import sys
sys.modules["plotly"] = None
import pyprof
found = pyprof.load({str(path)!r})
found._repr_html_(), found.compare(found)
for name in {FIGURES!r}:
    try:
        getattr(found, name)()
    except pyprof.PyprofError as error:
        print(type(error).__name__, error, "|", error.hint)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    line = f"ToolError a figure needs plotly, which is not installed | {install_extra('notebook')}"
    assert done.stdout.splitlines() == [line] * 3
