"""Sequence numbers in lines: patterns give what each record's own view gives."""

from hypothesis import given
from hypothesis import strategies as st

from pyprof.model.records import DIRECTIONS, Stack
from pyprof.parse.records.netdict.original import Sequences, json_text, legacy_view

NAMES = st.sampled_from(["aten::mm", "mm", "AddmmBackward0", "100 %d, seq = 7", "", 'q"', "mm, seq = x"])
STACKS = [Stack(), Stack(mod=("torch",), op=("%s",)), Stack(ranges=("é %",))]


@given(
    st.lists(st.tuples(st.sampled_from(range(3)), st.lists(st.tuples(NAMES, st.integers(0, 4) | st.integers(0, 1 << 61)), max_size=4),
                       st.integers(-1, 4), st.integers(0, 3), st.sampled_from([0, 1])), max_size=8)
)  # fmt: skip
def test_patterns_give_what_each_record_gives(rows: list[tuple[int, list[tuple[str, int]], int, int, int]]) -> None:
    stacks: list[Stack] = []
    for kind, numbered, *_ in rows:
        base = STACKS[kind]
        stack = Stack(mod=base.mod, op=base.op, ranges=base.ranges, seq_names=tuple(name for name, _ in numbered))
        if stack not in stacks:
            stacks.append(stack)
    sequences = Sequences(stacks)
    for kind, numbered, which, sub, direction in rows:
        base = STACKS[kind]
        stack = Stack(mod=base.mod, op=base.op, ranges=base.ranges, seq_names=tuple(name for name, _ in numbered))
        numbers = [number for _, number in numbered]
        seq = numbers[which] if 0 <= which < len(numbers) else -1
        view = legacy_view(stack, numbers, seq)
        assert sequences.text(stacks.index(stack), direction, numbers, seq, sub) == (
            f'"seqMarker": {json_text([f"{name}, seq = {number}" for name, number in view.seq_marker])}, "seqId": {view.seq_id}, "subSeqId": {sub}, '
            f'"altSeqId": {view.alt_seq_id}, "dir": "{DIRECTIONS[direction]}", "mod": {json_text(view.mod)}, '
            f'"op": {json_text(view.op)}'
        )
