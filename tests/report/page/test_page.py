"""The page: its data adds up to the summary, its policy lets its own script and style in and nothing else, names stay text."""

import hashlib
import html
import json
import re
import shutil
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyprof.cli import main
from pyprof.report.memory.make import memory_of
from pyprof.report.page.cells import cells_of
from pyprof.report.page.data import Section, section_of
from pyprof.report.page.job import job_section
from pyprof.report.page.memory import memory_section
from pyprof.report.page.render import embedded, pieces, render
from pyprof.report.page.timeline import timeline_of
from pyprof.report.ranks.units import files_of
from pyprof.report.summary.make import kernels_of
from pyprof.tables.names import text_of
from pyprof.tables.units import human
from tests.given import slow
from tests.report.summary.test_summary import two_steps
from tests.timeline import overview_of
from tests.tiny import Nsys

GIVEN = (
    "kineto/h100_vit.json.gz", "kineto/mi300_resnet_checkpoint.json.gz", "nvprof/v100_lm/net.sql", "nvprof/v100_lm/net.dict",
    "nsys/h100_2gpu_train.nsys2026.2.sqlite", *slow("kineto/serving/vllm_decode_full.capture.json.gz"),
    "nsys/cpu_emit_nvtx_torch2.13.nsys2023.4.sqlite",
)  # fmt: skip
HOSTILE = ("</script><img src=x onerror=alert(1)>", "{{7*7}}", "<!--<script>", "a\x1b[31m\x00\u202eb", "'\";alert(1)//")


def hostile(path: Path) -> Path:
    """A capture whose kernels, layers and ops have names that would do something in a page which does not treat them as text."""
    n = Nsys()
    for at, name in enumerate(HOSTILE):
        begin = 1_000 + 1_000 * at
        n.range(f'{name} #pyprof{{"layer":1}}', begin, begin + 900)
        n.range(f'{name}(fp32[8,8], fp32[8,8]) #pyprof{{"mod":"torch"}}', begin + 10, begin + 800)
        n.kernel(name, begin + 20, begin + 100, begin + 700)
    return n.write(path)


def held(section: Section) -> None:
    """What must be true of the data of every section."""
    summary, cells = section.summary, section.charts["cells"]
    assert sum(cells["time_ns"]) + cells["rest"]["time_ns"] == summary.kernel_ns
    assert sum(cells["kernels"]) + cells["rest"]["kernels"] == summary.kernels
    assert sum(cells["calls"]) <= summary.kernels
    for part in ("flops", "bytes", "lost_of"):
        assert all(0 <= known <= ns for known, ns in zip(cells[f"{part}_ns"], cells["time_ns"], strict=True))
    if summary.flops is not None and not cells["rest"]["cells"]:
        assert sum(cells["flops"]) <= summary.flops
    by_phase: dict[str, int] = {}
    for phase, ns in zip(cells["phase"], cells["time_ns"], strict=True):
        by_phase[cells["phases"][phase]] = by_phase.get(cells["phases"][phase], 0) + ns
    assert by_phase == {name: ns for name, ns in summary.phases.items() if ns} or cells["rest"]["cells"]
    for code, table in (
        ("op", "ops"),
        ("kernel", "names"),
        ("verdict", "verdicts"),
        ("bound", "bounds"),
        ("source", "sources"),
    ):
        assert all(0 <= one < len(cells[table]) for one in cells[code])
    assert all(parent < at for at, parent in enumerate(cells["layers"]["parent"]))
    timeline = section.charts["timeline"]
    if timeline is not None:
        for number, device in enumerate(summary.devices):
            idle = sum(sum(part) for part in timeline["devices"][number]["idle"].values()) / 1000 / timeline["columns"]
            assert idle * timeline["wall_ns"] == pytest.approx(
                sum(device.idle_ns.values()), rel=0.02, abs=0.01 * timeline["wall_ns"]
            )


@pytest.mark.parametrize("name", GIVEN)
def test_the_data_of_every_capture_adds_up_to_its_summary(captures: Path, name: str) -> None:
    section = section_of(overview_of(captures / name), name)
    held(section)
    page = render([section])
    assert len(page) < 5_000_000 and page.count("<script") == 2 and name.rpartition("/")[2] in page


def test_what_two_steps_hold(tmp_path: Path) -> None:
    section = section_of(overview_of(two_steps().write(tmp_path / "net.sqlite")), "net.sqlite")
    held(section)
    cells = section.charts["cells"]
    assert [cells["ops"][op][0] for op in cells["op"]] == ["mm", "add"]
    assert cells["calls"] == [2, 2] and cells["time_ns"] == [40_000, 20_000]
    assert cells["flops"] == [2 * 2 * 512**3, 2 * 512**2]
    assert [cells["layers"]["name"][cells["layers"]["node"][path]] for path in cells["layer"]] == [".fc", ""]
    assert section.charts["roofs"]["arithmetic"] == [("fp32, cores", 19.5e12)]
    assert section.charts["roofs"]["l2"] == 5120 * 1410e6  # of A100's whitepaper
    timeline = section.charts["timeline"]
    assert timeline["steps"] == [[0, 100_000], [100_000, 200_000]] and timeline["gaps"][0]["time_ns"] == 50_000
    assert [gap["after"] for gap in timeline["gaps"]][:2] == ["mm", None]
    (stream,) = timeline["devices"][0]["streams"]
    busy = np.sum(list(stream["busy"].values()), axis=0)
    assert busy.sum() == 1000 * timeline["columns"] * 60_000 / 200_000
    assert busy[: timeline["columns"] // 20].sum() == 0, "nothing runs in the first 10 us"
    spans = timeline["spans"]
    assert spans["all"] and [spans["names"][op] for op in spans["op"]] == ["mm", "add", "mm", "add"]
    assert sum(spans["dur_ns"]) == 60_000 and spans["lane"] == [0] * 4
    assert section.sentences["all"].startswith("A step takes 100 us (median of 2); the GPU is busy 30 % of the time and idle")
    assert "The op with most of it is mm (67 %)." in section.sentences["layers"]
    assert "The layer with most of it is model.fc (67 %)." in section.sentences["layers"]
    assert "70 %" in section.sentences["idle"] and "of it comes just before" in section.sentences["idle"]
    places = section.charts["places"]
    assert sum(one["time_ns"] for one in places) == 140_000 and sum(one["gaps"] for one in places) == len(timeline["gaps"])
    assert all(sum(ns for _, ns in one["causes"]) == one["time_ns"] for one in places)
    assert {(one["op"], one["layer"]) for one in places} == {("mm", "model.fc"), ("add", ""), ("the window's end", "")}


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        ("torch.compile(model)", ["torch.compile(model)"]),
        ("f(x=1).to(d, n=True) and model.g(y=1): so", ["f(x=1).to(d, n=True)\nmodel.g(y=1)", "so"]),
        ("read it once: total += loss.detach(), .item() at the end",
         ["read it once: ", "total += loss.detach()", "`.item()` at the end"]),
        ("make it (torch.zeros(3, device=d)) or pin", ["make it (`torch.zeros(3, device=d)`) or pin"]),
        ("pad K 9 to 16, e.g. by hand", ["pad K 9 to 16, e.g. by hand"]),
    ],
)  # fmt: skip
def test_advice_is_cut_into_code_and_prose(do: str, expected: list[str]) -> None:
    cut = [piece if boxed else "".join(f"`{text}`" if code else text for code, text in piece) for boxed, piece in pieces(do)]
    assert cut == expected


def test_the_page_names_what_a_roofline_lacks(captures: Path) -> None:
    section = section_of(overview_of(captures / "nsys/h100_2gpu_train.nsys2026.2.sqlite"), "net.sqlite")
    said = section.sentences["roofline"]
    assert said.startswith(
        "Not known: the FLOPs and bytes of ops are known for 0 % of the time only, since their shapes were not"
    )
    assert "the peaks of the device are not known (--gpu NAME gives them)" in said
    assert "names no layers" in section.sentences["layers"]


def test_the_roofline_says_whether_it_is_near_and_where_most_is_lost(captures: Path) -> None:
    section = section_of(overview_of(captures / "kineto/h100_vit.json.gz"), "net.json.gz")
    reached = 100 - 100 * sum(section.charts["cells"]["lost_ns"]) / sum(section.charts["cells"]["lost_of_ns"])
    assert section.sentences["roofline"].startswith(f"Far from the roofline, at {reached:.0f} % of it: ")
    by_op = {op: sum(one.lost_ns or 0 for one in section.summary.ops if one.name == op) for op in ("linear", "layer_norm")}
    assert f"Most is lost in linear: {human(by_op['linear'], 'ns')} of the " in section.sentences["roofline"]


def test_advice_about_the_capture_alone_comes_after_why_there_is_no_other(captures: Path, tmp_path: Path) -> None:
    alone = shutil.copy(captures / "kineto/serving/vllm_decode_full.run.json.gz", tmp_path / "alone.json.gz")
    section = section_of(overview_of(Path(alone)), "run.json.gz")
    page = render([section])
    why = page.index(
        "<p>Nothing to advise: too little is recorded, ops are known of 3 % of the time. Most time is in the kernel "
    )
    more = page.index(". To see more:</p>")
    assert page.index("What to do first") < why < more < page.index("Graph nodes") and page.count("Nothing to advise") == 1


def test_the_least_cells_of_many_are_one_together(tmp_path: Path) -> None:
    overview = overview_of(two_steps().write(tmp_path / "net.sqlite"))
    cells = cells_of(overview.frame, kernels_of(overview), most=1)
    assert cells["time_ns"] == [40_000] and cells["rest"] == {"cells": 1, "time_ns": 20_000, "kernels": 2}


def test_a_timeline_of_few_columns_holds_the_same_time(tmp_path: Path) -> None:
    overview = overview_of(two_steps().write(tmp_path / "net.sqlite"))
    for files in (800, 200, 16, 1):
        timeline = timeline_of(overview, files)
        assert timeline is not None
        columns = timeline["columns"]
        (device,) = timeline["devices"]
        parts = [*device["idle"].values(), *(part for stream in device["streams"] for part in stream["busy"].values())]
        assert sum(map(sum, parts)) == pytest.approx(1000 * columns, abs=len(parts) * columns)


def test_the_policy_names_the_one_script_and_style_by_their_hashes(tmp_path: Path) -> None:
    page = render([section_of(overview_of(two_steps().write(tmp_path / "net.sqlite")), "net.sqlite")])
    found = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    assert found is not None
    policy = html.unescape(found[1])
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy and "http" not in policy
    for tag in ("script", "style"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r"<[^>]*\s(style|on\w+)=", page.partition("<script>")[0]), "the policy forbids them"
    assert not re.search(r'(src|href)="(?!#)', page.partition("<script>")[0])


def data_of(page: str) -> list[dict[str, Any]]:
    (content,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    found: list[dict[str, Any]] = json.loads(content)
    return found


def test_hostile_names_end_no_element(tmp_path: Path) -> None:
    name = "</title><script>alert(1)</script>.sqlite"
    page = render([section_of(overview_of(hostile(tmp_path / "net.sqlite")), name)])
    (data,) = data_of(page)
    assert [one[1] for one in data["cells"]["names"]] == [text_of(name) for name in HOSTILE]
    assert "onerror" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL).replace("&lt;img src=x onerror", "")
    assert (
        "<script>alert" not in page and "{{7*7}}" in page and "\x1b" not in page and "\x00" not in page and "\u202e" not in page
    )
    assert json.loads(embedded(list(HOSTILE))) == list(HOSTILE) and "<" not in embedded(list(HOSTILE))


def test_the_library_cannot_end_its_element() -> None:
    assets = Path(__file__).resolve().parents[3] / "pyprof/report/page/assets"
    for path in assets.glob("*.js"):
        assert not re.search(r"</script|<!--", path.read_text(encoding="utf-8"), re.IGNORECASE), path.name
    built = (assets / "d3.js").read_text(encoding="utf-8")
    packages = re.findall(r"[\w-]+@[\d.]+", built.partition("*/")[0])
    assert packages == re.findall(r"^== (\S+)$", (assets / "d3.LICENSE").read_text(encoding="utf-8"), re.MULTILINE)
    script = (assets.parents[3] / "scripts/build_page").read_text(encoding="utf-8")
    assert packages and all(package in script for package in packages), "built by that script"


def test_the_command_writes_one_page_and_the_same_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = two_steps().write(tmp_path / "one.sqlite"), two_steps().write(tmp_path / "other.sqlite")
    pages = []
    for _ in range(2):
        assert main(["report", str(one), str(other), "-o", str(tmp_path / "report.html")]) == 0
        pages.append((tmp_path / "report.html").read_text(encoding="utf-8"))
    captured = capsys.readouterr()
    assert captured.out == "" and "report.html: open it in a browser" in captured.err
    assert pages[0] == pages[1] and len(data_of(pages[0])) == 2
    assert "one.sqlite &rarr; other.sqlite" in pages[0] and "comparable: the same" in pages[0]
    assert str(tmp_path) not in pages[0], "only what tells the files apart is shown of their folders"


def test_a_folder_of_few_ranks_is_a_job_and_a_section_each(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(3):
        two_steps().write(folder / f"rank{rank}.sqlite")
    assert main(["report", str(folder), "-o", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert [one["name"] for one in data_of(page)] == [f"rank {rank}: rank{rank}.sqlite" for rank in range(3)]
    assert '<article id="job-1" class="job" aria-label="ranks">' in page and "3 ranks: times and utilisation are means" in page
    assert "have a section below" not in page and "Where the difference is" not in page


@pytest.mark.slow
def test_of_a_job_of_many_ranks_those_that_stand_out_have_a_section(captures: Path) -> None:
    files = files_of([str(captures / "kineto/v100_dlrm_8ranks")])
    job = job_section("job", files, lambda file: overview_of(Path(str(file))))
    assert [rank.number for rank in job.ranks] == [*range(8)] and job.summary.ranks == 8
    assert [job.ranks[at].number for at, _ in job.sections] == [7, 1, 5], (
        "of `pyprof ranks`: the late one, who waits, who idles"
    )
    assert job.ranks[7].why == "the others wait for it" and job.ranks[0].why == ""
    assert any(line.startswith("rank 7: last at 5 of 8 collectives") for line in job.lines)
    assert [table.name for table in job.tables] == ["ranks", "stragglers", "bandwidth"]
    for _, section in job.sections:
        held(section)
    page = render([job])
    assert page.count('<article id="capture-') == 3 and "3 of 8 ranks have a section below" in page
    assert page.count('<details class="whole" open>') == 1, "a long page begins short"
    assert len(re.findall(r'<td class="strip"><svg [^>]*width="100.00%"', page)) == 1, (
        "the longest bar is that of the longest rank"
    )


def test_two_jobs_are_compared_rank_by_rank(tmp_path: Path) -> None:
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        for rank in range(2):
            two_steps().write(tmp_path / name / f"rank{rank}.sqlite")
    jobs = [str(tmp_path / name) for name in ("before", "after")]
    assert main(["report", *jobs, "-o", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('class="job"') == 2 and "before &rarr; after" in page and "Kernel time, rank by rank" in page
    assert len(data_of(page)) == 4 and page.index('id="comparison"') < page.index('id="job-1"') < page.index('id="capture-1"')


def test_what_is_wrong_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = str(two_steps().write(tmp_path / "one.sqlite"))
    assert main(["report", one]) == 2 and "-o" in capsys.readouterr().err
    assert main(["report", one, "-o", one]) == 2
    assert main(["report", one, "-o", str(tmp_path / "nowhere" / "report.html")]) == 1
    assert main(["report", *[one] * 17, "-o", str(tmp_path / "report.html")]) == 2 and "at most 16" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["one.sqlite"]


@pytest.mark.parametrize("name", ["memory/gpt_medium_128_training.pickle", "kineto/h100_bert_small.json.gz"])
def test_the_memory_of_every_column_is_that_of_the_replay(captures: Path, name: str) -> None:
    report = memory_of(str(captures / name))
    device = next(one for one in report.devices if one.trace.device == 0)
    (chart,) = memory_section(report).charts
    assert chart["total"][chart["peak"]] == device.total == int(device.replay.counted.max())
    for stack in chart["by"].values():
        assert np.array_equal(np.sum(stack["bytes"], axis=0), chart["total"]), "colours add up to what is in use"
    blocks, at = chart["blocks"], chart["peak"]
    alive = [row for row in range(len(blocks["first"])) if blocks["first"][row] <= at <= blocks["last"][row]]
    kinds = {one.name: one.bytes for one in device.by("kind") if one.name != "older"}
    found: dict[str, int] = {}
    for row in alive:
        kind = blocks["kinds"][blocks["kind"][row]]
        found[kind] = found.get(kind, 0) + blocks["bytes"][row]
    assert {kind: size for kind, size in found.items() if kind != "older"} == kinds
