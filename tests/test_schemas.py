"""The JSON Schemas that `pyprof help schema` prints: what the reports write obeys them, and no key of them is dead.

That they are what the tables' headers say is a test in test_help.py.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jsonschema")

from jsonschema import Draft202012Validator

from pyprof.cli import main
from pyprof.help import schema_text, schemas
from pyprof.model.records import PHASES
from pyprof.prof.columns import HEADERS, SUMS
from pyprof.prof.roofline import BOUNDS
from pyprof.report.advice.kinds import KINDS, OF_JOBS
from pyprof.report.summary import tables as summary_tables
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.division import BUSY
from tests.rank_traces import Steps
from tests.report.diff.test_diff import Program, steady
from tests.report.memory.snapshots import out_of_memory
from tests.report.test_unseen import ranges_alone
from tests.timers.test_block_timers import filled
from tests.tiny import Nsys

GIVEN = (
    "kineto/h100_bert_small.json.gz", "kineto/multi_stream_sync.json.gz", "kineto/mi300_triton_compiled.json.gz",
    "nsys/cpu_emit_nvtx_torch2.13.nsys2023.4.sqlite", "nvprof/v100_lm/net.sql",
)  # fmt: skip
VLLM = "kineto/serving/vllm_decode_full.run.json.gz"
MANY = (
    "kineto/a100_train_stacks.json.gz", "kineto/mi300_resnet_checkpoint.json.gz", "nsys/h100_2gpu_train.nsys2026.2.sqlite", VLLM, "nvprof/v100_lm/net.dict",
)  # fmt: skip
PROF = (
    (), ("-c", ",".join(header.key for header in HEADERS), "--kinds", "kernel,graph,memcpy,memset,cpu"), ("--tree", "layer"),
    ("--group-by", "op,params", "-c", "op,params," + ",".join(header.key for header in SUMS)),
)  # fmt: skip


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema_text(name)))


def written(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """The JSON that a command writes, of long tables the first rows."""
    capsys.readouterr()
    assert main([*words, "--format", "json", "--top", "100"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def obeys(name: str, document: Any) -> None:
    assert document["schema"] == (2 if name == "gaps" else 1)
    wrong = [f"{list(error.absolute_path)}: {error.message[:200]}" for error in validator(name).iter_errors(document)]
    assert not wrong, wrong[:5]


def of_all_reports(capsys: pytest.CaptureFixture[str], file: str, on_gpu: bool = True, tables: bool = False) -> None:
    """Every report of a file obeys its schema; tables: those of the summary too, one by one."""
    for words in PROF:
        obeys("prof", written(capsys, "prof", file, *words))
    if on_gpu:
        obeys("gaps", written(capsys, "gaps", file))
    obeys("inductor", written(capsys, "inductor", file))
    for table in summary_tables.TABLES if tables else ():
        obeys("summary-tables", written(capsys, "summary", file, "--table", table))
    obeys("summary", written(capsys, "summary", file))


def parts(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any], bool]]:
    """(path, schema, whether it is that of a key) of every part."""
    for where in ("properties", "patternProperties", "$defs"):
        for name, one in schema.get(where, {}).items():
            yield f"{path}.{name}", one, where != "$defs"
            yield from parts(one, f"{path}.{name}")
    for where in ("items", "additionalProperties"):
        if isinstance(schema.get(where), dict):
            yield f"{path}[]", schema[where], False
            yield from parts(schema[where], f"{path}[]")


@pytest.mark.parametrize("name", schemas())
def test_every_key_is_described_and_has_a_unit(name: str) -> None:
    schema = json.loads(schema_text(name))
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"].endswith("2020-12/schema") and schema["title"].startswith("pyprof ")
    for path, part, is_key in parts(schema):
        of = part if "$ref" not in part else schema["$defs"][part["$ref"].rpartition("/")[2]]
        assert not is_key or of.get("description"), path
        if is_key and {"integer", "number"} & {*([of["type"]] if isinstance(of.get("type"), str) else of.get("type", ()))}:
            assert of.get("x-unit") or of.get("type") == ["number", "string", "null"], path
        if "properties" in of:
            assert of["additionalProperties"] is False or name == "counters", path


def test_words_of_the_summary_are_all_there() -> None:
    defs = json.loads(schema_text("summary"))["$defs"]
    assert set(defs["advice"]["properties"]["kind"]["enum"]) == {
        kind.__module__.rpartition(".")[2] for kind in (*KINDS, *OF_JOBS)
    }
    assert defs["lost"]["properties"]["bound"]["enum"] == [*BOUNDS]
    of = defs["summary"]["properties"]
    assert set(of["busy"]["properties"]) == set(BUSY) and set(of["phases"]["properties"]) == {*PHASES, "unknown"} - {"copy"}
    assert set(defs["idle_parts"]["properties"]) == set(CAUSES) == set(defs["device"]["properties"]["idle_ns"]["properties"])


def test_the_command_prints_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "schema", "gaps"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "pyprof gaps FILE --format json"
    assert main(["help", "schema"]) == 0
    out = capsys.readouterr().out
    assert all(f"    {name} " in out for name in schemas())
    assert main(["help", "schema", "../schemas/gaps"]) == 2
    assert "hint: schemas: counters," in capsys.readouterr().err
    assert main(["help", "terms", "gaps"]) == 2


def keys_of(schema: dict[str, Any], found: Any, whole: dict[str, Any], path: str = "") -> Iterator[str]:
    """The keys of a schema that a document has, by definition and name."""
    if "if" in schema:
        chosen = "then" if all(key in found for key in schema["if"]["required"]) else "else"
        yield from keys_of(schema[chosen], found, whole)
    elif "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from keys_of(whole["$defs"][name], found, whole, name)
    elif isinstance(found, list):
        for one in found:
            yield from keys_of(schema.get("items", {}), one, whole, path)
    elif isinstance(found, dict):
        for name, one in found.items():
            if name in schema.get("properties", {}):
                yield f"{path}.{name}"
                yield from keys_of(schema["properties"][name], one, whole, f"{path}.{name}")


def all_keys(schema: dict[str, Any]) -> set[str]:
    return {path for name, of in schema["$defs"].items() for path in [*_keys(of, name)]}


def _keys(schema: dict[str, Any], path: str) -> Iterator[str]:
    for name, one in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from _keys(one, f"{path}.{name}")


def changed(folder: Path) -> tuple[str, str]:
    """Two captures in which an op became slower, one changed its kernel and shapes, one went, one came."""
    before = Program(steady())
    after = Program([[ns + 50_000 * (at == 1) for at, ns in enumerate(step)] for step in steady(seed=1)])
    after.kernel, after.shapes = (
        "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_stage3",
        "bf16[64,512], bf16[512,512], None",
    )
    after.fused, after.layers = True, ["blocks.0", "stages.1", "blocks.2"]
    return before.write(folder / "before.sqlite"), after.write(folder / "after.sqlite")


def test_reports_of_hand_written_captures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = changed(tmp_path)
    of_all_reports(capsys, before, tables=True)
    obeys("summary", both := written(capsys, "summary", before, after))
    assert len(both["files"]) == 2
    obeys("summary-tables", written(capsys, "summary", before, after, "--table", "ops"))
    obeys("diff", found := written(capsys, "diff", before, after))
    assert found["files"] == [before, after] and (found["added"] or found["changes"]) and found["removed"]
    obeys("diff-tables", written(capsys, "diff", before, after, "--table", "where"))
    ranks = str(Steps(3, loading={(1, 1): 500}).write(tmp_path / "ranks"))
    obeys("ranks", written(capsys, "ranks", ranks))
    obeys("ranks", written(capsys, "ranks", ranks, "--matrix", "idle"))
    obeys("summary", written(capsys, "summary", ranks))
    obeys("diff", found := written(capsys, "diff", ranks, ranks))
    assert found["files"] == [ranks, ranks] and len(found["ranks"]) == 3
    snapshot = str(out_of_memory(tmp_path / "snapshot.pickle"))
    obeys("memory", found := written(capsys, "memory", snapshot))
    assert found["devices"][0]["oom"] and len(written(capsys, "memory", snapshot, snapshot)["files"]) == 2
    filled().save(tmp_path / "timers.npz")
    for table in ("blocks", "lanes"):
        obeys("timers", written(capsys, "timers", str(tmp_path / "timers.npz"), "--table", table))


def test_a_key_that_no_schema_names_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = Program(steady()).write(tmp_path / "net.sqlite")
    for name, words in (("summary", ("summary",)), ("gaps", ("gaps",)), ("prof", ("prof",))):
        found = written(capsys, *words, file)
        rows = next(one for one in found.values() if isinstance(one, list) and one and isinstance(one[0], dict))
        rows[0]["new"] = 1
        assert not validator(name).is_valid(found)


def test_reports_of_a_capture_without_a_gpu(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_all_reports(capsys, str(data / "kineto_cpu.json.gz"), on_gpu=False, tables=True)
    obeys("prof", written(capsys, "prof", str(data / "kineto_cpu.json.gz"), "--group-by", "op,shape", "--sort", "self_cpu"))
    of_all_reports(capsys, str(data / "nsys_emit_nvtx.sqlite"), on_gpu=False)


@pytest.mark.parametrize("name", [*GIVEN, *(pytest.param(name, marks=pytest.mark.slow) for name in MANY)])
def test_reports_of_given_captures(name: str, captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_all_reports(capsys, str(captures / name), on_gpu="cpu_" not in name and not name.endswith(".dict"))


def test_counters_and_jobs_of_given_captures(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    obeys("counters", written(capsys, "counters", str(captures / "kineto" / "a100_alexnet_cupti_counters.json.gz")))
    obeys("counters", written(capsys, "counters", str(captures / "proton" / "proton.hatchet")))
    ranks = [str(captures / "kineto" / "v100_dlrm_8ranks" / f"worker{rank}.pt.trace.json.gz") for rank in range(2)]
    obeys("ranks", written(capsys, "ranks", *ranks))


def varying(path: Path, known: bool) -> str:
    """Four steps of a product with other shapes in each; known: in the last one too."""
    n = Nsys()
    for step in range(4):
        begin = 100_000 * (step + 1)
        n.range(f"ProfilerStep#{step}", begin, begin + 90_000)
        shapes = f"fp32[{32 + step},64], fp32[64,64]" if known or step < 3 else "None, None"
        n.range(f'mm({shapes}) #pyprof{{"mod":"torch"}}', begin + 1_000, begin + 9_000)
        n.kernel("ampere_sgemm_128x64_nn", begin + 2_000, begin + 10_000, begin + 20_000)
    return str(n.write(path))


def with_ledger(capture: str, ns: int) -> None:
    """Write a ledger with everything in it beside the capture."""
    known = {"schema": 1, "by": "step", "device_ns": 5, "allocated": 1, "reserved": 2, "peak": 3, "tokens": 4}
    lines = [{**known, "step": n, "begin_ns": 2 * ns * n, "wall_ns": ns + n % 3, "recorded": n in (2, 3)} for n in range(60)]
    lines.append({"schema": 1, "compile": "recompile", "step": 0, "frame": "f", "reason": "size", "file": "net.py", "line": 1})
    path = Path(capture)
    path.with_name(f"{path.stem}.steps.jsonl").write_text("\n".join(map(json.dumps, lines)))


def test_no_key_is_dead(tmp_path: Path, captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = changed(tmp_path)
    with_ledger(before, 1_000)
    with_ledger(after, 1_200)
    ranks = str(Steps(2).write(tmp_path / "ranks"))
    longer = Program(steady(steps=7))
    longer.shapes = "fp32[32,512], fp32[512,512], None"
    unlike = written(capsys, "diff", before, longer.write(tmp_path / "longer.sqlite"))
    bounded = written(capsys, "diff", varying(tmp_path / "whole.sqlite", True), varying(tmp_path / "part.sqlite", False))
    documents = {
        "summary": [written(capsys, "summary", before, after, ranges_alone(tmp_path / "ranges.sqlite")), *(
            written(capsys, "summary", str(captures / name)) for name in (*GIVEN[:2], "kineto/h100_vit.json.gz", *MANY[1:4])
        )],
        "diff": [written(capsys, "diff", before, after), written(capsys, "diff", after, before), unlike, bounded, written(capsys, "diff", ranks, ranks),
                 written(capsys, "diff", str(captures / "kineto" / "h100_vit.json.gz"), str(captures / "kineto" / "mi300_vit.json.gz"))],
    }  # fmt: skip
    for name, found in documents.items():
        schema = json.loads(schema_text(name))
        for document in found:
            obeys(name, document)
        seen = {key for one in found for key in keys_of(schema, one, schema)}
        assert not sorted(all_keys(schema) - seen), name
