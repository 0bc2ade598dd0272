"""Timelines of real captures: valid for whoever draws them, and read back to the same capture."""

import json
from pathlib import Path

import numpy as np
import pytest

from pyprof.cli import main
from pyprof.errors import EmptyCapture
from pyprof.loading.load import load, load_with_trace, open_trace
from pyprof.model.trace import TABLES, Trace
from pyprof.parse.records.netdict.write import lines
from tests.report.trace.test_trace import check

CAPTURES = (
    *(
        f"kineto/{name}.json.gz"
        for name in (
            "a100_alexnet_cupti_counters", "a100_train_stacks", "a100_triton_add", "h100_bert_small", "h100_vit", "mi300_bert_small",
            "mi300_resnet_checkpoint", "mi300_triton_compiled", "mi300_vit", "multi_stream_sync", "normalization_layers",
            "v100_resnet50_2021", "serving/sglang_prefilldecode", "serving/vllm_decode_full.capture",
            "serving/vllm_decode_full.run", *(f"v100_dlrm_8ranks/worker{rank}.pt.trace" for rank in range(8)),
        )
    ),
    *(
        f"nsys/{name}.sqlite"
        for name in (
            "a100_gpt2.7b.nsys2024.6", "cpu_emit_nvtx_torch2.13.nsys2023.4", "h100_2gpu_train.nsys2026.2",
            "rtx3070ti_fwdbwd.nsys2025.1",
        )
    ),
    "nvprof/v100_lm/net.sql",
)  # fmt: skip
QUICK = ("kineto/h100_vit.json.gz", "nsys/cpu_emit_nvtx_torch2.13.nsys2023.4.sqlite", "nvprof/v100_lm/net.sql")


def written(capture: Path, folder: Path) -> Path:
    out = folder / "timeline.json"
    assert main(["trace", str(capture), "-o", str(out)]) == 0
    return out


def table_rows(trace: Trace, name: str) -> list[tuple[object, ...]]:
    """The rows of a table in an order of their own, codes replaced by what they stand for."""
    table, columns = getattr(trace, name), []
    for column in TABLES[name]:
        values = table[column.name].tolist()
        if column.name in ("name", "domain", "src", "kernel"):
            values = [trace.strings[code] for code in values]
        elif column.name == "label":
            values = [repr(trace.markers[code]._replace(casts=())) for code in values]
        columns.append(values)
    return sorted(zip(*columns, strict=True))


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CAPTURES])
def test_a_timeline_is_valid_and_reads_back_to_the_same_records_and_tables(captures: Path, tmp_path: Path, name: str) -> None:
    timeline = written(captures / name, tmp_path)
    check(json.loads(timeline.read_bytes())["traceEvents"])
    before, after = load(str(captures / name)), load(str(timeline))
    assert list(lines(after)) == list(lines(before))
    facts = [(records.source, records.utc_ns, records.notes, records.counts) for records in (before, after)]
    assert facts[0] == facts[1]
    theirs, ours = load_with_trace(str(captures / name), whole=True)[1], open_trace(timeline)
    assert theirs is not None
    for table in TABLES:
        assert table_rows(ours, table) == table_rows(theirs, table), table
    for one in ("source", "version", "session_end_ns", "utc_ns", "notes"):
        assert getattr(ours, one) == getattr(theirs, one)
    assert (ours.samples is None) == (theirs.samples is None)


@pytest.mark.slow
def test_a_training_step_with_backward_is_drawn_whole(captures: Path, tmp_path: Path) -> None:
    path = captures / "kineto/a100_train_stacks.json.gz"
    events = json.loads(written(path, tmp_path).read_bytes())["traceEvents"]
    check(events)
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert len(kernels) == 8568 and sum("FLOPs" in event["args"] for event in kernels) > 8000
    arrows = np.unique([event["id"] for event in events if event["ph"] == "f"])
    assert len(arrows) == len(kernels) + sum(event.get("cat") in ("gpu_memcpy", "gpu_memset") for event in events)


def test_a_capture_without_ops_says_so(captures: Path) -> None:
    with pytest.raises(EmptyCapture):
        load(str(captures / "nsys/cpu_nvtx_package_edge_cases.nsys2023.4.sqlite"))
