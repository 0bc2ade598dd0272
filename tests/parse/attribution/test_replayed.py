"""Replays of graphs explained by the trace of their capture: on small traces whose whole truth is seen, and on real ones."""

import json
import os
import random
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

import pyprof
from pyprof.cli import main
from pyprof.errors import InputError
from pyprof.loading.load import load
from pyprof.model.records import Records
from pyprof.parse.records.netdict.write import lines
from pyprof.parse.records.selection import choose_kinds
from tests.graph_traces import LAYERS, SEQUENCE, Call, captured, captured_calls, linear, replayed, replayed_kernels, write


def ops(records: Records) -> list[str]:
    return [records.calls[code].op if code >= 0 else "" for code in records["call"].tolist()]


def batches(records: Records) -> set[int]:
    """First dimension of the first matrix of each product."""
    calls = [records.calls[code] for code in records["call"].tolist() if code >= 0]
    return {next(t.shape[0] for t in call.tensors if len(t.shape) == 2) for call in calls}


OPS = ["addmm", "relu", "mm"] * LAYERS


@pytest.mark.parametrize("rocm", [True, False])
@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("nodes", [True, False])
@pytest.mark.parametrize("pieces", [(LAYERS,), (1, 3, 3, 1)])
def test_each_replay_has_the_ops_of_the_capture(
    tmp_path: Path, rocm: bool, bounded: bool, nodes: bool, pieces: tuple[int, ...]
) -> None:
    run = write(tmp_path / "run.json", replayed(rocm=rocm, nodes=nodes, pieces=pieces))
    capture = write(tmp_path / "graph.json", captured(rocm=rocm, bounded=bounded, pieces=pieces))
    plain, found = load(str(run)), load(str(run), str(capture))
    assert ops(plain) == [""] * len(plain) and ops(found) == OPS * 2
    assert len(found) == len(plain) and (found["dur_ns"] == plain["dur_ns"]).all()
    assert len(set(found["instance"].tolist())) == 2 * 3 * LAYERS, "each op of each replay is an execution of its own"
    assert (found["instance"][: 3 * LAYERS] != found["instance"][3 * LAYERS :]).all()
    assert any("48 of 48 kernels of graphs" in note for note in found.notes)


def test_kernels_that_the_capture_lacks_stay_and_the_rest_is_explained(tmp_path: Path) -> None:
    names = [*SEQUENCE[:10], "unknown_k", *SEQUENCE[10:]]
    run = write(tmp_path / "run.json", replayed(names=names, pieces=(LAYERS + 1,)))
    found = load(str(run), str(write(tmp_path / "graph.json", captured())))
    assert ops(found) == [*OPS[:10], "", *OPS[10:]] * 2
    assert found.counts["kernels of graphs whose capture is not known"] == 2


def test_another_size_is_refused_however_well_its_names_fit(tmp_path: Path) -> None:
    run = write(tmp_path / "run.json", replayed(32))
    capture = write(tmp_path / "graph.json", captured(64))
    with pytest.raises(InputError, match=r"graph\.json: captured for batch size 64, and the steps are of 32 .*100%") as error:
        load(str(run), str(capture))
    assert "\n" not in str(error.value)


def test_shapes_tell_the_size_where_what_is_said_of_it_is_wrong_or_nothing_is(tmp_path: Path) -> None:
    run = write(tmp_path / "run.json", replayed(32))
    for annotation in ("capture_32_FULL", "warm-up"):
        events = captured(64)
        for event in events:
            event["name"] = event["name"].replace("capture_64_FULL", annotation)
        with pytest.raises(InputError, match="captured for batch size 64, and the steps are of 32"):
            load(str(run), str(write(tmp_path / "graph.json", events)))


def test_other_names_are_refused_with_the_share_that_fits(tmp_path: Path) -> None:
    names = SEQUENCE.copy()
    random.Random(1).shuffle(names)
    run, capture = write(tmp_path / "run.json", replayed()), write(tmp_path / "graph.json", captured(names=names))
    with pytest.raises(InputError, match=r"of other graphs: \d+% of the kernels") as error:
        load(str(run), str(capture))
    assert "\n" not in str(error.value)


def test_of_several_sizes_the_next_larger_one_is_taken(tmp_path: Path) -> None:
    run = write(tmp_path / "run.json", replayed(37))
    for size in (16, 32, 40, 48):
        write(tmp_path / "capture_traces" / f"bs_{size}_rank0.json.gz", captured(size, mode="DECODE"))
    found = load(str(run))  # they stand beside the run
    assert ops(found) == OPS * 2 and batches(found) == {40}


def test_several_sizes_without_a_step_that_says_which_explain_nothing(tmp_path: Path) -> None:
    run = write(tmp_path / "run.json", replayed(None))
    for size in (16, 32):
        write(tmp_path / "several" / f"bs_{size}_rank0.json.gz", captured(size))
    with pytest.raises(InputError, match="several fit alike"):
        load(str(run), str(tmp_path / "several"))
    one = load(str(run), str(tmp_path / "several" / "bs_16_rank0.json.gz"))
    assert ops(one) == OPS * 2 and batches(one) == {16}


def test_the_list_beside_the_traces_says_their_sizes_and_another_size_beside_is_a_note(tmp_path: Path) -> None:
    events = [event for event in captured(32) if not event["name"].startswith("capture_")]
    write(tmp_path / "capture_traces" / "graph.json.gz", events)
    details = tmp_path / "capture_traces" / "execution_details.json"
    for size, expected in ((32, OPS * 2), (64, [""] * 48)):
        details.write_text(json.dumps([{"file": "graph.json.gz", "batch_size": size, "mode": "FULL"}]))
        found = load(str(write(tmp_path / "run.json", replayed(32))))
        assert ops(found) == expected
        assert any(("captured for batch size 64" in note) == (size == 64) for note in found.notes)


def test_the_capture_may_be_in_the_run_itself(tmp_path: Path) -> None:
    run = write(tmp_path / "run.json", [*captured(), *replayed()])
    found = choose_kinds(load(str(run)), "kernel")
    assert ops(found)[-48:] == OPS * 2
    assert any("the capture in this trace" in note for note in found.notes)


DECODE = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk3200sqsq32sqsk3200)"
LINEAR = [kernel for kernel, _, _ in linear(0)]


def layers(records: Records) -> list[int | None]:
    """Which layer each kernel is of, by the columns of its weight; of each layer's two kernels the first."""
    calls = [records.calls[code] if code >= 0 else None for code in records["call"].tolist()]
    return [call.tensors[-1].shape[-1] - 100 if call is not None else None for call in calls][::2]


def test_one_trace_of_several_sizes_that_only_the_shapes_tell(tmp_path: Path) -> None:
    captures = [captured_calls([linear(0, size) * 4], "", begin=1000 * at, corr=100 * at) for at, size in ((1, 64), (2, 16))]
    graph = write(tmp_path / "graph.json", [*chain(*captures)])
    for size in (16, 64):
        text = DECODE.replace("32", str(size))
        found = load(str(write(tmp_path / "run.json", replayed_kernels([(text, [LINEAR * 4])]))), str(graph))
        assert ops(found) == ["mm", "relu"] * 4 and batches(found) == {size}
    with pytest.raises(InputError, match="batch sizes 16, 64, of which several fit alike"):
        load(str(write(tmp_path / "run.json", replayed_kernels([("", [LINEAR * 4])] * 3))), str(graph))


def test_a_graph_is_of_as_many_tokens_as_the_step_and_requests_count_where_those_are_not_said(tmp_path: Path) -> None:
    for size, text, fits in ((32, "step[EXTEND bs=32 toks=512]", False), (512, "step[EXTEND bs=30 toks=512]", True)):
        run = write(tmp_path / "run.json", replayed_kernels([(text, [LINEAR])]))
        graph = write(tmp_path / "graph.json", captured_calls([linear(0, size)], f"capture_{size}_FULL"))
        if fits:
            assert ops(load(str(run), str(graph))) == ["mm", "relu"]
        else:
            with pytest.raises(InputError, match="captured for batch size 32, and the steps are of 512 tokens"):
                load(str(run), str(graph))
    with pytest.raises(InputError, match="captured for batch size 8, and the steps are of 3 tokens"):  # 4 is captured too
        load(str(write(tmp_path / "run.json", replayed(3))), str(write(tmp_path / "graph.json", captured(8))))


@pytest.mark.parametrize("rocm", [True, False])
def test_on_several_streams_without_numbers_of_nodes_the_order_says_nothing(tmp_path: Path, rocm: bool) -> None:
    calls: list[Call] = [(name, f"aten::{op}", [[32, 64]]) for name, op in (("k", "exp"), ("k", "relu"), ("l", "tanh"))]
    ran = [
        (name, stream, 40 * at + after) for at in range(4) for name, stream, after in (("k", 7, 0), ("k", 8, 15), ("l", 7, 10))
    ]
    run = write(tmp_path / "run.json", replayed_kernels([(DECODE, [ran])], rocm=rocm))
    graph = write(tmp_path / "graph.json", captured_calls([calls * 4], rocm=rocm))
    if rocm:  # all that are called l say the same, wherever they stand
        found = load(str(run), str(graph))
        said = {(found.strings[name], op) for name, op in zip(found["name"].tolist(), ops(found), strict=True)}
        assert said == {("k", ""), ("l", "tanh")} and len(found) == 12
    else:
        with pytest.raises(InputError, match="fit each kernel alike"):
            load(str(run), str(graph))


def test_captures_that_fit_equally_and_say_other_ops_explain_nothing(tmp_path: Path) -> None:
    run = write(tmp_path / "run.json", replayed_kernels([(DECODE, [["x", "y"] * 2])], rocm=False))
    for name, op in (("a", "aten::relu"), ("b", "aten::tanh")):
        write(tmp_path / "g" / f"{name}.json", captured_calls([[("", op, [[32, 64]])] * 4], f"capture_32_{name}", rocm=False))
    with pytest.raises(InputError, match="fit each kernel alike, and not the same would be said"):
        load(str(run), str(tmp_path / "g"))
    write(tmp_path / "g" / "b.json", captured_calls([[("", "aten::relu", [[32, 64]])] * 4], "capture_32_b", rocm=False))
    assert ops(load(str(run), str(tmp_path / "g"))) == ["relu"] * 4


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([(DECODE, 6), (DECODE, 6)], [0, 1, 2, 3, 4, 5] * 2),
        ([(DECODE, 4), (DECODE, 6)], [None] * 4 + [0, 1, 2, 3, 4, 5]),  # the recording began within a step
        ([("", 6), ("", 6)], None),  # it may have begun anywhere
        ([(DECODE, 5)], None),
        ([(DECODE, 7)], None),
    ],
)
def test_equal_pieces_are_told_apart_by_a_step_that_has_them_all(
    tmp_path: Path, steps: list[tuple[str, int]], expected: list[int | None] | None
) -> None:
    run = write(tmp_path / "run.json", replayed_kernels([(text, [LINEAR] * count) for text, count in steps]))
    graph = write(tmp_path / "graph.json", captured_calls([linear(layer) for layer in range(6)]))
    if expected is None:
        with pytest.raises(InputError, match="several of its calls or graphs fit each kernel alike"):
            load(str(run), str(graph))
    else:
        assert layers(load(str(run), str(graph))) == expected


def test_two_threads_replay_the_same_pieces_at_one_time(tmp_path: Path) -> None:
    steps = [(DECODE, [LINEAR] * 3)]
    events = replayed_kernels(steps) + replayed_kernels(steps, begin=100_030, corr=20_000, tid=200)
    graph = write(tmp_path / "graph.json", captured_calls([linear(layer) for layer in range(3)]))
    found = load(str(write(tmp_path / "run.json", events)), str(graph))
    for stream in (7, 107):
        own = [layer for layer, of in zip(layers(found), found["stream"].tolist()[::2], strict=True) if of == stream]
        assert own == [0, 1, 2]


@pytest.mark.parametrize("bounded", [True, False])
def test_of_layers_more_or_fewer_than_were_captured_none_is_named(tmp_path: Path, bounded: bool) -> None:
    graph = write(tmp_path / "graph.json", captured_calls([[*chain(*map(linear, range(20)))]], bounded=bounded))
    assert layers(load(str(write(tmp_path / "run.json", replayed_kernels([(DECODE, [LINEAR * 20])]))), str(graph))) == [
        *range(20)
    ]
    for count in (19, 21, 40):
        run = write(tmp_path / "run.json", replayed_kernels([(DECODE, [LINEAR * count])]))
        with pytest.raises(InputError):
            load(str(run), str(graph))


def test_of_similar_graphs_the_one_that_fits_best_is_taken(tmp_path: Path) -> None:
    pieces = [[(f"only{layer}", "aten::mm", linear(layer)[0][2]), *linear(layer) * 9] for layer in range(3)]
    graph = write(tmp_path / "graph.json", captured_calls(pieces))
    ran = [[name for name, _, _ in pieces[layer]] for layer in (2, 1)]
    found = load(str(write(tmp_path / "run.json", replayed_kernels([(DECODE, ran)]))), str(graph))
    assert [found.calls[code].tensors[-1].shape[-1] for code in found["call"].tolist()] == [102] * 19 + [101] * 19


def test_captures_of_two_threads_at_one_time_and_of_two_processes(tmp_path: Path) -> None:
    other: list[Call] = [("other_k", "aten::tanh", [[32, 64]])] * 8
    both = captured_calls([linear(0) * 4]) + captured_calls([other], begin=1004, corr=500, tid=200)
    graph = write(tmp_path / "graph.json", both)
    for names, expected in ((LINEAR * 4, ["mm", "relu"] * 4), (["other_k"] * 8, ["tanh"] * 8)):
        assert ops(load(str(write(tmp_path / "run.json", replayed_kernels([(DECODE, [names])]))), str(graph))) == expected
    other = [("gemm_a", "aten::bmm", [[32, 2, 2], [32, 2, 2]]), ("relu_k", "aten::tanh", [[32, 64]])]
    events = captured_calls([linear(0) * 4]) + replayed_kernels([(DECODE, [LINEAR * 4])])
    events += captured_calls([other * 4], begin=2000, corr=600, tid=200, pid=200)
    events += replayed_kernels([(DECODE, [LINEAR * 4])], begin=110_000, corr=20_000, tid=200, pid=200, device=1)
    found = load(str(write(tmp_path / "run.json", events)))
    of_device = {(device, op) for device, op in zip(found["device"].tolist(), ops(found), strict=True)}
    assert of_device == {(0, "mm"), (0, "relu"), (1, "bmm"), (1, "tanh")}


@pytest.mark.parametrize(
    ("run", "rank"),
    [
        ("1741-TP-1-DECODE.trace.json.gz", 1),
        ("1741-TP-1-DP-0-PP-0.trace.json.gz", 1),
        ("dp1_pp0_tp0_dcp0_ep1_rank1.123.pt.trace.json.gz", 1),
        ("dp1_pp0_tp1_rank0.json", 0),
        ("http1_run.json", 0),
    ],
)
def test_the_capture_of_the_rank_that_the_name_of_the_run_says(tmp_path: Path, run: str, rank: int) -> None:
    for at in range(2):
        write(tmp_path / "capture_traces" / f"bs_32_rank{at}.json.gz", captured_calls([linear(at)]))
    found = load(str(write(tmp_path / run, replayed_kernels([(DECODE, [LINEAR])]))))
    assert layers(found) == [rank]


def test_a_capture_that_was_given_and_explains_nothing_is_told_where_the_run_explains_itself(tmp_path: Path) -> None:
    run = write(tmp_path / "run.json", [*captured(), *replayed()])
    found = load(str(run), str(write(tmp_path / "other.json", captured(names=["q"] * len(SEQUENCE)))))
    assert ops(choose_kinds(found, "kernel"))[-48:] == OPS * 2
    assert any("other.json: of other graphs: 0% of the kernels" in note for note in found.notes)


def test_a_label_that_the_shapes_gainsay_is_named_with_them(tmp_path: Path) -> None:
    graph = write(tmp_path / "graph.json", captured_calls([linear(0, 4096)]))
    with pytest.raises(InputError, match=r"batch size 4096, and the steps are of 32 .*; it is named one of 32"):
        load(str(write(tmp_path / "run.json", replayed_kernels([(DECODE, [LINEAR])]))), str(graph))


def test_many_replays_between_those_of_another_graph(tmp_path: Path) -> None:
    steps = [("", [[*LINEAR * 12, "extra", "extra"], ["other_k"]])] * 1100
    run = write(tmp_path / "run.json", replayed_kernels(steps))
    for bounded in (True, False):
        graph = write(tmp_path / "graph.json", captured_calls([linear(0) * 12], bounded=bounded))
        assert ops(load(str(run), str(graph))) == [*["mm", "relu"] * 12, "", "", ""] * 1100


def test_kernels_that_begin_together_on_two_streams_in_any_order_of_rows(tmp_path: Path) -> None:
    ran = [("gemm_a", 7, 0), ("relu_k", 8, 0), ("gemm_a", 7, 9), ("relu_k", 8, 9)]
    run, graph = replayed_kernels([(DECODE, [ran] * 2)]), captured_calls([linear(0) + linear(1)] * 2)
    seen = set()
    for seed in range(6):
        found = load(str(write(tmp_path / "run.json", run)), str(write(tmp_path / "graph.json", graph)))
        columns = ("start_ns", "stream", "graph_node")
        seen.add(tuple(zip(*(found[name].tolist() for name in columns), ops(found), strict=True)))
        random.Random(seed).shuffle(run)
        random.Random(seed).shuffle(graph)
    assert len(seen) == 1


def test_annotations_of_torch_on_kernels_of_graphs_are_their_layers(tmp_path: Path) -> None:
    events = replayed(rocm=False, nodes=True)
    for event in events:
        if event["cat"] == "kernel":
            number = event["args"]["graph node id"] % (3 << 32)
            layer = f"layers.{number // 3}.mlp"
            event["args"] |= {"module_fqn": layer, "name": "mlp"} if number < 12 else {"name": "tail", "stream": "62"}
    run = write(tmp_path / "run.json", events)
    found = load(str(run))
    layers = [found.stacks[code].layer for code in found["scope"].tolist()]
    assert layers == [(f"layers.{at // 3}.mlp",) if at < 12 else ("tail",) for at in range(24)] * 2
    assert ops(found) == [""] * 48, "a layer is no op"
    timeline = tmp_path / "timeline.json"
    assert main(["trace", str(run), "-o", str(timeline)]) == 0
    assert list(lines(load(str(timeline)))) == list(lines(found))
    explained = load(str(run), str(write(tmp_path / "graph.json", captured(rocm=False))))
    assert ops(explained) == OPS * 2


def test_vllm_decode_in_one_graph(captures: Path) -> None:
    folder = captures / "kineto" / "serving"
    run, capture = str(folder / "vllm_decode_full.run.json.gz"), str(folder / "vllm_decode_full.capture.json.gz")
    found = choose_kinds(load(run), "kernel")  # the capture stands beside it
    time, total = found["dur_ns"], found["dur_ns"].sum()
    assert len(found) == 425 and total == 10_674_517
    scopes = np.array([bool(stack.trace) for stack in found.stacks] + [False])
    described = np.array([call.described for call in found.calls] + [False])
    assert time[(found["call"] >= 0) & described[found["call"]] & scopes[found["scope"]]].sum() >= 0.97 * total
    given = choose_kinds(load(run, capture), "kernel")
    assert ops(given) == ops(found) and given.notes == found.notes
    costs = pyprof.load(run).to_pandas(columns="op,params,flops")
    gemm = costs[costs["params"].str.contains("M=32,N=5120,K=2880")]
    assert len(gemm) == 24 and set(gemm["flops"]) == {943_718_400}
    assert costs.loc[costs["op"] == "moe_forward", "flops"].notna().all(), "top-k and the weights of the experts stand inside"


def test_an_empty_trace_among_those_that_were_named_is_said_and_the_others_are_used(tmp_path: Path) -> None:
    run, folder = write(tmp_path / "run.json", replayed()), tmp_path / "graphs"
    write(folder / "graph.json", captured())
    (folder / "empty.json").write_text("")
    found = load(str(run), str(folder))
    assert "mm" in ops(found)
    assert [note.split(": ")[0] for note in found.notes if "among those of --graphs" in note] == [str(folder / "empty.json")]
    (folder / "graph.json").write_text("{")
    with pytest.raises(InputError, match="the file is empty"):
        load(str(run), str(folder))


@pytest.mark.parametrize("name", ["execution_details.json", "graph.json", "pipe.json"])
def test_what_cannot_be_read_beside_a_run_keeps_nobody_from_reading_the_run(tmp_path: Path, name: str) -> None:
    run, folder = write(tmp_path / "run.json", replayed()), tmp_path / "capture_traces"
    write(folder / "other.json", captured())
    if name == "pipe.json":  # which nobody writes to
        os.mkfifo(folder / name)
    else:
        (folder / name).write_text("{")
    found = load(str(run))
    assert len(found) == 2 * 3 * LAYERS
    said = [note for note in found.notes if note.endswith("it stands beside the capture and was not used")]
    assert [name in note for note in said] == [True] * (name != "pipe.json")
    assert ("mm" in ops(found)) == (name != "execution_details.json")
    if said:
        with pytest.raises(InputError):
            load(str(run), str(folder / name))
