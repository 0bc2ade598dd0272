"""A user's file of formulas -> registered formulas (`pyprof prof --formulas FILE.py`, the variable PYPROF_FORMULAS)."""

from __future__ import annotations

from pathlib import Path

from pyprof.errors import InputError, UsageError
from pyprof.prof.formulas.registry import names

_HINT = "decorate functions with @pyprof.formula; see help(pyprof.formula)"
_LOADED: set[Path] = set()


def load_user_formulas(path: str) -> None:
    """Run a Python file, which registers formulas with `pyprof.formula`. A file that was loaded before is not run again.

    Raises InputError if the file cannot be read, UsageError with the file's line if it fails, or if it registers nothing.
    """
    import runpy  # slow to import

    file = Path(path).resolve()
    if file in _LOADED:
        return
    if not file.is_file():
        raise InputError(f"{path}: no such file of formulas", "give the path of a Python file")
    before = len(names())
    try:
        runpy.run_path(str(file))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", "give the path of a Python file") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{_place(error, file, path)}: {_one_line(error)}", _HINT) from error
    if len(names()) == before:
        raise UsageError(f"{path}: registers no formula", _HINT)
    _LOADED.add(file)


def any_loaded() -> bool:
    """Whether the user has loaded formulas, which change which calls are ops."""
    return bool(_LOADED)


def _place(error: BaseException, file: Path, path: str) -> str:
    """The file and its line at which the error occurred."""
    import traceback

    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines.append(error.lineno)
    return f"{path}:{lines[-1]}" if lines else path


def _one_line(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
