"""The check of a GPU where there is none: networks run and are recorded on the CPU, and what needs a GPU is listed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

import pyprof
from scripts.gpu_check import machine, ways
from scripts.gpu_check.__main__ import main as gpu_check_main
from scripts.gpu_check.networks import NETWORKS
from scripts.gpu_check.rows import rows_of
from tests.conftest import ROOT
from tests.tiny import Nsys

pytestmark = pytest.mark.torch


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable}
    command = [str(ROOT / "scripts/gpu_check/run"), *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_rows_of_two_recorders_are_told_in_the_same_words(tmp_path: Path) -> None:
    n = Nsys()
    n.range('cross_entropy(fp32[4,8], i64[4], fp32[]) #pyprof{"mod":"torch.nn.functional"}', 10, 60)
    n.kernel("unheard_of", 20, 1000, 1100)
    n.range('mm(bf16[4,8], bf16[8,2]) #pyprof{"mod":"torch"}', 70, 100)
    n.kernel("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_TNT", 80, 2000, 2300)
    n.kernel("by_nobody", None, 3000, 3050)
    found = rows_of(n.write(tmp_path / "net.sqlite"))
    assert found["op"].fillna("").tolist() == ["cross_entropy_loss", "mm", ""]
    assert found["shapes"].tolist() == ["4x8;4", "4x8;8x2", ""]
    assert found["product"].tolist() == [False, True, False]
    assert found["matmul_flops"].fillna(-1).tolist() == [0, 2 * 4 * 8 * 2, -1]
    assert found["sil"].tolist() == [100, 300, 50]


def test_each_way_records_into_the_file_that_is_read(tmp_path: Path) -> None:
    for name, way in ways.WAYS.items():
        for gpu in (False, True):
            job = ways.Job("train_fp32", False, gpu, tmp_path / "net")
            words = [word for command in way.commands(job) for word in command]
            assert str(job.base) in words or f"{job.base}{way.ending}" in words, name
            assert ("--capture-range=cudaProfilerApi" in words) == (gpu and name in ("profile", "emit_nvtx"))
    whole = ways.WAYS["run-nsys"].commands(ways.Job("infer_graph", True, True, tmp_path / "net"))[0]
    assert whole[whole.index("--steps") + 1] == "all"


def test_there_is_a_network_of_every_kind() -> None:
    assert {network.math for network in NETWORKS.values()} == {"fp32", "tf32", "bf16"}
    for kind in ("training", "gpu", "compiled"):
        assert {getattr(network, kind) for network in NETWORKS.values()} == {False, True}
    assert len(NETWORKS) >= 12


def test_wrong_names_are_said_and_without_a_gpu_dry_is_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "ask", lambda *words, seconds: (0, '{"version": "2.13.0", "devices": []}'))  # by its probe
    for words, code, said in (
        (["--networks", "resnet", "--dry"], 2, "there is no network 'resnet'"), ([], 1, "torch finds no GPU here"),
    ):  # fmt: skip
        monkeypatch.setattr(sys, "argv", ["gpu_check", *words])
        assert gpu_check_main() == code
        err = capsys.readouterr().err
        assert said in err and ("--dry" in err) == (code == 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_dry_run_checks_what_needs_no_gpu_and_lists_the_rest(tmp_path: Path) -> None:
    done = check(
        tmp_path, "--dry", "--networks", "train_custom,infer_graph", "--ways", "run-torch,capture,emit_nvtx", "-o", "out"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "out/summary.txt").read_text().splitlines()
    assert lines[0].startswith("GPU none, driver none, torch ") and f"pyprof {pyprof.__version__}" in lines[0]
    passed = {tuple(line.partition(": ")[0].split(maxsplit=3)[1:]) for line in lines if line.startswith("pass")}
    both = {("train_custom", way, what) for way in ("run-torch", "capture") for what in ("attributed", "flops", "times")}
    assert passed == both | {("train_custom", "capture", "same as run-torch")}
    skipped = [line for line in lines if line.startswith("skip")]
    for text in (
        "rates: on a GPU",
        "overhead: on a GPU",
        "tensor cores: on a GPU",
        "counters: on a GPU",
        "infer_graph",
        "emit_nvtx needs",
    ):
        assert any(text in line for line in skipped), text
    assert lines[-1] == f"{len(passed)} passed, 0 failed, {len(skipped)} skipped"
    captures = sorted((tmp_path / "out/captures").iterdir())
    assert [path.name for path in captures] == ["train_custom.capture.json.gz", "train_custom.run-torch.json.gz"]
    assert all(len(rows_of(path)) > 10 and path.stat().st_size < 200_000 for path in captures)
