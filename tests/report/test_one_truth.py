"""One engine of time: windows and steps of given cases and of small twins of them; records say what their capture says."""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from pyprof.cli import main
from pyprof.loading.load import load
from pyprof.parse.records.parquet.stored import HOST_KEY, POOL_ERRORS, read_host
from pyprof.report.diff.compare import Comparison
from pyprof.report.time.causes import CAUSES
from tests.given import slow
from tests.timeline import overview_of
from tests.tiny import Nsys

GEMM = "ampere_sgemm_128x64_tn"
MS = 1_000_000


def said(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_copies_outside_of_the_kernels_are_in_the_window(captures: Path) -> None:
    overview = overview_of(captures / "cases/nsys/copies_outside_kernels.sqlite")
    assert (overview.division.wall_ns, overview.busy_ns, overview.parts["copy"]) == (4_180_000, 4_135_000, 4_035_000)


def test_idle_in_user_ranges(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = captures / "cases/nsys/idle_in_user_ranges.sqlite"
    overview = overview_of(file)
    steps, window = overview.steps, overview.window
    assert steps is not None and len(steps) == 8 and steps.time_ns[-1] == 34_175_000
    assert steps.time_ns[1:-1].tolist() == [34_180_000] * 6  # to the begin of the next
    assert (window.begin_ns, window.end_ns) == (1_000_000, 254_910_000)
    assert (overview.division.wall_ns, overview.busy_ns, overview.idle_ns) == (253_910_000, 140_080_000, 113_830_000)
    assert main(["prof", str(file), "--step", "7", "--kinds", "all", "-c", "step,kind,start"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["7 memcpy 240360000"]
    assert main(["prof", str(file), "--group-by", "step", "-c", "step,kernels"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 8 - 1  # the last step launched a copy alone


def test_layers_are_no_steps(captures: Path) -> None:
    overview = overview_of(captures / "cases/kineto/layers_are_no_steps.json")
    assert overview.steps is None and overview.division.wall_ns == 8_000_000


def test_a_pause_between_two_cycles_of_a_schedule_is_no_step_and_no_wall(captures: Path) -> None:
    overview = overview_of(captures / "cases/kineto/repeat.json")
    assert overview.steps is not None and overview.steps.time_ns.tolist() == [MS, MS, 990_000] * 2
    assert overview.division.wall_ns == 2 * 2_990_000 == sum(overview.parts.values())
    assert overview.window.paused_ns == 9_002_990_000 - MS - overview.division.wall_ns


def test_a_gap_is_divided_in_every_command(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(captures / "cases/nsys/gap_after_sync.sqlite")
    truth = dict.fromkeys(CAUSES, 0) | {"synchronization": 5_000, "host": 5_000_265_000, "launch": 20_000, "queued": 2_000}
    assert said(capsys, "gaps", file)["idle_ns"] == said(capsys, "summary", file)["idle_ns"] == truth


def iterations(n: Nsys, names: list[str], around: str | None = None, inside: str = "Layer") -> None:
    """One range after another of 1 ms, each with a kernel of 100 us in a range of its own, all in one range."""
    for at, name in enumerate(names):
        begin = (at + 1) * MS
        n.range(name, begin, begin + 900_000)
        n.range(inside, begin + 10_000, begin + 800_000)
        n.kernel(GEMM, begin + 50_000, begin + 60_000, begin + 160_000)
    if around is not None:
        n.range(around, 500_000, (len(names) + 2) * MS)


@pytest.mark.parametrize(
    ("names", "around", "inside", "steps"),
    [
        (["block"] * 4, None, "mlp", 4),
        (["block"] * 4, "model forward", "mlp", 0),  # parts of one forward
        (["block_0", "block_1", "block_2"], None, "mlp", 0),  # numbered as layers
        (["train step 0", "train step 1", "train step 2"], None, "mlp", 3),
        (["iteration"] * 4, "main", "mlp", 4),  # a loop around steps
        (["Forward"] * 4, "Benchmark", "mlp", 4),
        (["fusion"] * 4, None, "Executor::launch", 0),  # of a library, in a program without torch
    ],
)
def test_repeats_that_are_steps_and_repeats_that_are_parts(
    tmp_path: Path, names: list[str], around: str | None, inside: str, steps: int
) -> None:
    n = Nsys()
    iterations(n, names, around, inside)
    found = overview_of(n, tmp_path).steps
    assert (0 if found is None else len(found)) == steps


def test_steps_of_every_kind_number_the_records(tmp_path: Path) -> None:
    n = Nsys()
    iterations(n, ["iteration"] * 3)
    records = overview_of(n, tmp_path).records
    assert records["step"].tolist() == [0, 1, 2]
    other = Nsys()
    for begin in (1_000, 2_000, 3_000):
        other.kernel(GEMM, begin + 10, begin + 50, begin + 90)
        other.range('SGD.step #pyprof{"optimizer":"SGD"}', begin + 500, begin + 600)
    assert overview_of(other, tmp_path).records["step"].tolist() == [-1, 0, 1]


def test_everything_that_was_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = Nsys()
    n.range("Warm-up", 100, 900)
    for launch in (200, 2_000, 5_000):
        n.kernel(GEMM, launch, launch + 10, launch + 110)
    file = str(n.write(tmp_path / "net.sqlite"))
    assert said(capsys, "summary", file)["wall_ns"] == 5_110 - 2_010
    assert said(capsys, "summary", file, "--window", "all")["wall_ns"] == 5_110 - 100  # the host's range too


def test_loading_before_the_first_kernel_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n, ms = Nsys(), 1_000_000
    n.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 60 * ms)
    n.kernel(GEMM, 100 * ms, 100 * ms + 10, 101 * ms)
    file = str(n.write(tmp_path / "net.sqlite"))
    told = "set-up of 100 ms before the window is left out, 60.0 ms of it in loading data (--window all)"
    assert told in said(capsys, "summary", file)["notes"]
    assert said(capsys, "summary", file, "--window", "all")["idle_ns"]["data_loading"] == 60 * ms  # type: ignore[index]


_CAPTURES = (
    "kineto/mi300_resnet_checkpoint.json.gz", "kineto/h100_vit.json.gz", "kineto/serving/vllm_decode_full.run.json.gz",
    "nsys/a100_gpt2.7b.nsys2024.6.sqlite", "nsys/cpu_emit_nvtx_torch2.13.nsys2023.4.sqlite", "nvprof/v100_lm/net.sql", "cases/kineto/repeat.json",
    "cases/nsys/idle_in_user_ranges.sqlite", "more/a100_saxpy_mpi.nsys_old.sqlite",
)  # fmt: skip


@pytest.mark.parametrize("name", [*slow(_CAPTURES[0], _CAPTURES[2]), _CAPTURES[1], *_CAPTURES[3:]])
def test_parquet_says_what_its_capture_says(
    captures: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    capture, parsed = str(captures / name), str(tmp_path / "net.parquet")
    assert main(["parse", capture, "-o", parsed]) == 0
    capsys.readouterr()
    for command in ("summary", "gaps"):
        own, other = said(capsys, command, capture), said(capsys, command, parsed)
        own.pop("file", None), other.pop("file", None)
        assert own == other


@pytest.mark.parametrize("suffix", ["jsonl", "dict"])
@pytest.mark.parametrize("name", _CAPTURES[1:6:2])
def test_records_alone_say_what_they_lack_and_nothing_false(
    captures: Path, name: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parsed = str(tmp_path / f"net.{suffix}")
    assert main(["parse", str(captures / name), "-o", parsed]) == 0
    capsys.readouterr()
    found = said(capsys, "summary", parsed)
    assert sum(note.startswith("records hold no ") for note in found["notes"]) == 1
    assert found["idle_ns"]["unrecorded"] == 0 and "lost_records" not in {one["kind"] for one in found["advice"]}


def test_a_parquet_file_of_before_is_read_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    n = Nsys()
    iterations(n, ["iteration"] * 3)
    file = tmp_path / "net.parquet"
    assert main(["parse", str(n.write(tmp_path / "net.sqlite")), "-o", str(file)]) == 0
    table = pq.read_table(file)
    metadata = {key: value for key, value in table.schema.metadata.items() if key != HOST_KEY}
    assert len(metadata) == len(table.schema.metadata) - 1
    pq.write_table(table.replace_schema_metadata(metadata), file)
    records = load(str(file))
    assert records.host is None and records.steps is None
    _, why = Comparison(overview_of(tmp_path / "net.sqlite"), overview_of(file)).judgement
    assert "one has records without begin and end of steps" in why
    capsys.readouterr()
    found = said(capsys, "summary", str(file))
    assert found["steps"]["kind"] == "step" and any(note.startswith("records hold no ") for note in found["notes"])


def test_a_damaged_host_side_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    n = Nsys()
    iterations(n, ["iteration"] * 3)
    file = tmp_path / "net.parquet"
    assert main(["parse", str(n.write(tmp_path / "net.sqlite")), "-o", str(file)]) == 0
    whole = pq.read_table(file)
    for value in (b"", b"AAAA", b"eJyrVipLLSrOzM9TslIy0FHKLUotTi1KLUvMKU1VsqpWSsxJyy9KLgYA3jYNpw=="):
        pq.write_table(whole.replace_schema_metadata({**whole.schema.metadata, HOST_KEY: value}), file)
        capsys.readouterr()
        assert main(["summary", str(file)]) == 1
        assert "its steps and host cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": {"kind": "range", "name": "x", "number": [0], "begin_ns": [1, 2], "end_ns": [2, 3]}},
        {"steps": {"kind": "range", "name": "x", "number": [0], "begin_ns": [1], "end_ns": [1 << 70]}},
        {"host": {"waits": [{"pid": 1, "tid": 1, "begin_ns": 1, "end_ns": 2, "text": 5, "launching": True, "active": []}]}},
        {"host": {"work": {"loading": [{"pid": 1, "begin_ns": [1], "end_ns": []}]}}},
        {"host": {"whereabouts": {"names": ["f"], "node_parent": [0], "node_kind": [1], "node_name": [0]}}},
        {
            "host": {
                "whereabouts": {"pid": [1], "begin_ns": [1], "end_ns": [2], "time": [0], "node": [0], "ns": [1], "number": [1]}
            }
        },
    ],
)
def test_a_host_side_that_contradicts_itself_is_refused(wrong: dict[str, Any]) -> None:
    stored = base64.b64encode(zlib.compress(json.dumps({"version": 1, **wrong}).encode()))
    with pytest.raises(POOL_ERRORS):
        read_host({HOST_KEY: stored})
