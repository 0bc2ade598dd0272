"""Arrays made over Arrow's buffers equal pyarrow's own, with nulls and slices; pandas is never imported."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

pa = pytest.importorskip("pyarrow")

from pyprof.columns.arrow import to_arrow, to_arrow_texts, to_numpy  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
KINDS = st.sampled_from([np.int8, np.int32, np.int64, np.float64, np.bool_])
CUT = st.tuples(st.integers(0, 20), st.integers(0, 20))


@given(st.data(), KINDS, st.integers(0, 30), CUT)
def test_numbers_there_and_back(data: st.DataObject, kind: Any, length: int, cut: tuple[int, int]) -> None:
    elements = {"allow_nan": False} if kind == np.float64 else None
    values = data.draw(of_numpy.arrays(kind, length, elements=elements))
    unknown = data.draw(of_numpy.arrays(np.bool_, length))
    made, theirs = to_arrow(values, unknown), pa.array(values, mask=unknown)
    made.validate(full=True)
    assert made.equals(theirs) and to_arrow(values).equals(pa.array(values))
    missing = kind(1)
    for array in (made.slice(*cut), theirs.slice(*cut)):
        found = to_numpy(array, missing)
        assert found.dtype == kind and found.tolist() == np.where(unknown, missing, values)[cut[0] :][: cut[1]].tolist()
        if array.null_count:
            with pytest.raises(ValueError, match="missing"):
                to_numpy(array)
        else:
            assert to_numpy(array).tolist() == found.tolist()


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=20))
def test_texts(texts: list[str | None]) -> None:
    made = to_arrow_texts(texts)
    made.validate(full=True)
    assert made.equals(pa.array(texts, pa.string()))


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        to_arrow_texts(["\ud800"])


def test_parse_and_prof_leave_pandas_alone(tmp_path: Path) -> None:
    """It takes longer to import than a small capture to read, and pyarrow imports it for as little as one scalar."""
    pytest.importorskip("pandas")
    code = """
import sys
from pyprof.cli import main
from pyprof.parse.sources import emit_texts
emit_texts._MANY_TEXTS = 0
capture, parquet = sys.argv[1:]
for words in (["parse", capture, "-o", parquet], ["prof", parquet], ["prof", parquet, "--csv"], ["prof", capture, "--csv"]):
    assert not main(words), words
    assert "pandas" not in sys.modules, words
"""
    command = [sys.executable, "-c", code, ROOT / "tests/data/nsys_ops.sqlite", tmp_path / "n.parquet"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
