"""Errors whose text depends on what Python said."""

import importlib.metadata
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyprof import errors
from pyprof.errors import ToolError, unusable
from pyprof.parse.records.parquet import need_pyarrow


def _of(module: str) -> ImportError:
    try:
        __import__(module)
    except ImportError as error:
        return error
    raise AssertionError(f"{module} was imported")


def test_a_package_that_is_not_installed_is_told_apart_from_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "too_new.py").write_text("raise ImportError('too_new requires NumPy 2.0 or newer, found 1.26.4')")
    (tmp_path / "in_parts.py").write_text("import no_such_part")
    monkeypatch.syspath_prepend(tmp_path)
    assert str(unusable("this", "No-Such", _of("no_such"), "")) == "this needs No-Such, which is not installed"
    assert str(unusable("this", "too_new", _of("too_new"), "")).endswith(
        "cannot be imported here: too_new requires NumPy 2.0 or newer, found 1.26.4"
    )
    assert str(unusable("this", "in_parts", _of("in_parts"), "")).endswith("here: No module named 'no_such_part'")


def test_parquet_says_why_pyarrow_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('pyarrow requires NumPy 2.0 or newer, found 1.26.4')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ToolError, match=r"Parquet needs pyarrow, which cannot be imported here: pyarrow requires NumPy 2.0"):
        need_pyarrow()


def test_an_extra_is_added_to_the_checkout_or_wheel_that_runs_never_to_a_name_of_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(errors.__file__).parent.parent
    monkeypatch.chdir(root)
    assert errors.install_extra("plot") == "pip install -e '.[plot]'"
    monkeypatch.chdir(tmp_path)
    assert errors.install_extra("plot") == f"pip install -e '{root}[plot]'"
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages" / "pyprof" / "errors.py"))
    wheel = SimpleNamespace(read_text=lambda _: '{"url": "file:///a%20b/pyprof_torch-1-py3-none-any.whl", "archive_info": {}}')
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: wheel if name == "pyprof-torch" else None)
    assert errors.install_extra("plot") == "pip install '/a b/pyprof_torch-1-py3-none-any.whl[plot]'"
    wheel.read_text = lambda _: None  # installed from an index
    assert errors.install_extra("plot").startswith("pip install 'WHEEL[plot]'")
