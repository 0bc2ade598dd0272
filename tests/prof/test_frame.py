"""Values of a frame that are worked out by columns: the same as record by record; and written in parts, the same as whole."""

from pathlib import Path

import numpy as np
import pytest

from pyprof.cli import main
from pyprof.model.opcall import OpCall
from pyprof.model.records import Records
from pyprof.parse.records.netdict.original import legacy_view
from pyprof.prof import frame
from pyprof.prof.columns import HEADERS
from pyprof.prof.frame import Frame, frame_around
from pyprof.tables import formats, table
from pyprof.tables.table import printed
from tests.given import records_of

CAPTURES = ["nvprof/v100_lm/net.sql", "nsys/h100_2gpu_train.nsys2026.2.sqlite", "kineto/h100_vit.json.gz"]


@pytest.mark.parametrize("name", CAPTURES)
def test_other_sequence_numbers_are_those_of_each_record(captures: Path, name: str) -> None:
    records = records_of(captures / name)
    expected = []
    for row, (stack, seq) in enumerate(zip(records["stack"].tolist(), records["seq"].tolist(), strict=True)):
        view = legacy_view(records.stacks[stack], records.numbers(row), seq)
        expected.append(",".join(map(str, view.alt_seq_id)))
    assert printed(Frame(records).sequence(True)) == expected


@pytest.mark.parametrize("form", ["csv", "plain", pytest.param("jsonl", marks=pytest.mark.slow)])
def test_tables_of_many_parts_are_those_of_one(
    captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Op instances, texts and row groups go across parts."""
    capture, columns = captures / CAPTURES[0], ",".join(header.key for header in HEADERS)
    stored = tmp_path / "net.parquet"
    writer = pytest.importorskip("pyprof.parse.records.parquet.writer", reason="pyarrow is not installed")
    monkeypatch.setattr(writer, "_ROWS", 50)
    assert main(["parse", str(capture), "-o", str(stored)]) == 0
    written = []
    for rows in (1 << 15, 23):
        monkeypatch.setattr(table, "PART_ROWS", rows)
        monkeypatch.setattr(frame, "PART_ROWS", rows)
        monkeypatch.setattr(formats, "_BATCH_ROWS", rows)
        for file in (capture, stored):
            for more in ([], ["--where", "sil>2us"], ["--sort", "op,sil"]):
                out = tmp_path / "out"
                assert main(["prof", str(file), "-c", columns, "--format", form, "-o", str(out), *more]) == 0
                written.append(out.read_bytes())
    assert written[:6] == written[6:] and written[0] == written[3] and written[0] != written[1] != written[2]


def test_all_of_an_op_its_forward_and_its_backward() -> None:
    own, forward = [0, 1, 0, -1, 9, 2, 3, -1, 4, 5, 10**13, 4], [-1, -1, -1, -1, -1, 0, 1, -1, 2, 9, -1, 2]
    columns = {"kind": np.zeros(12, np.int8), "instance": np.array(own), "fwd_instance": np.array(forward)}
    records = Records(columns, seq_offsets=np.zeros(13, np.int64))

    def kept(inside: list[int]) -> list[int]:
        frame, rows = frame_around(records, np.ones(12, np.bool_), np.array(inside, np.int64))
        assert frame.numbers[rows].tolist() == inside
        return frame.numbers.tolist()

    # Instance 4 is the backward of 2, which is that of 0.
    assert kept([0]) == kept([8]) == [0, 2, 5, 8, 11]
    assert kept([1, 3]) == [1, 3, 6] and kept([7, 10]) == [7, 10] and kept([]) == []
    records.calls = [OpCall("fbgemm", "split_embedding_codegen_lookup_sgd_function")]
    assert kept([0]) == [*range(12)]  # look-ups are paired by their order
