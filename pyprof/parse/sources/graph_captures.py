"""A file or folder of traces of graphs being captured -> the traces in it, and the size and mode of each.

vLLM and SGLang write such traces into `capture_traces/` beside the run's, one for each size or all in one, and a list
`execution_details.json` of their files, sizes and modes. The traces themselves are not read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from pyprof.errors import InputError

DETAILS = "execution_details.json"
_FOLDERS = ("capture_traces", "graph_capture_profile")
_TRACE = re.compile(r"\.json(?:\.gz)?$")
_RUN = re.compile(r"\.run(?=\.json(?:\.gz)?$)")  # X.run.json.gz stands beside X.capture.json.gz
_SIZE = re.compile(r"(?:^|[-_.])bs_?(\d{1,9})(?=[-_.])")
_RANKS = [re.compile(rf"(?i)(?<![a-z0-9]){word}[-_]?(\d{{1,9}})(?=[-_.])") for word in ("rank", "TP")]  # the first says more
_MOST_BYTES = 1 << 24


class CaptureFile(NamedTuple):
    """One trace of graphs being captured; batch_size, mode: if its name or the list beside it gives them."""

    path: Path
    batch_size: int | None = None
    mode: str = ""


class _Detail(msgspec.Struct):
    file: str
    batch_size: int | None = None
    mode: str | None = ""


def given(path: Path, run: Path) -> list[CaptureFile]:
    """The traces in a file or folder that was named for a run. Raises InputError if there are none."""
    if path.is_dir():
        found = next((files for folder in (path, *(path / name for name in _FOLDERS)) if (files := _in_folder(folder))), [])
    elif path.name.endswith(DETAILS):
        found = _listed(path)
    elif path.exists():
        found = [_with_details(path)]
    else:
        raise InputError(f"{path}: no such file or folder", "give the trace of the graph's capture, or the folder of those")
    if not found:
        raise InputError(f"{path}: no traces of a graph's capture in it", f"they are .json or .json.gz, listed in {DETAILS}")
    return _of_rank(found, run)


def beside(run: Path) -> list[CaptureFile]:
    """The traces of captures beside a run's; none if the run is such a trace itself."""
    if not run.is_file():  # standard input
        return []
    try:
        if (capture := run.with_name(_RUN.sub(".capture", run.name))) != run and capture.is_file():
            return [_with_details(capture)]
        folders = [folder for name in _FOLDERS if (folder := run.parent / name).is_dir()]
        if not folders and (run.parent / DETAILS).is_file():
            found = _listed(run.parent / DETAILS)
        else:
            found = next((files for folder in folders if (files := _in_folder(folder))), [])
    except OSError:  # a folder that may not be looked into
        return []
    return [] if any(one.path.name == run.name for one in found) else _of_rank(found, run)


def may_open(run: Path) -> Iterator[Path]:
    """All paths that `beside` may look into, each folder before its files: for callers that must check first where it leads."""
    yield from (path for path in run.parent.glob("*.json*") if path.name.endswith(DETAILS) or ".capture.json" in path.name)
    for folder in (run.parent / name for name in _FOLDERS):
        yield folder
        yield from folder.glob("*.json*")


def _in_folder(folder: Path) -> list[CaptureFile]:
    if (folder / DETAILS).is_file() and (found := _listed(folder / DETAILS)):
        return found
    traces = sorted(path for path in folder.glob("*.json*") if _TRACE.search(path.name) and not path.name.endswith(DETAILS))
    return [_named(path) for path in traces if path.is_file()]


def _named(path: Path) -> CaptureFile:
    size = _SIZE.search(path.name)
    return CaptureFile(path, int(size[1]) if size else None)


def _read(details: Path) -> list[_Detail]:
    """Raises InputError for a list that cannot be read."""
    try:
        if details.stat().st_size < _MOST_BYTES:
            return msgspec.json.decode(details.read_bytes(), type=list[_Detail])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    raise InputError(
        f"{details}: not a list of graph captures", 'it is a list of {"file": ..., "batch_size": 32, "mode": "FULL"}'
    )


def _listed(details: Path) -> list[CaptureFile]:
    """The files of a list that exist, each once. A file that is listed with several sizes gets none: its annotations tell
    them."""
    listed: dict[Path, list[_Detail]] = {}
    for one in _read(details):
        listed.setdefault(details.parent / Path(one.file).name, []).append(one)
    alone = _Detail("")
    said = {path: own[0] if len(own) == 1 else alone for path, own in listed.items() if path.is_file()}
    return [CaptureFile(path, one.batch_size, one.mode or "") for path, one in said.items()]


def _with_details(path: Path) -> CaptureFile:
    """A trace with its entry in the list beside it: under its name, or under any name if the list has one trace."""
    prefix = re.sub(r"\.?capture\.json(?:\.gz)?$", "", path.name)
    for details in (path.with_name(f"{prefix}.{DETAILS}"), path.with_name(DETAILS)):
        if details.is_file():
            listed = _read(details)
            own = [one for one in listed if Path(one.file).name == path.name]
            if not own and len(listed) == 1 and details.name != DETAILS:
                own = listed
            if len(own) == 1:
                return CaptureFile(path, own[0].batch_size, own[0].mode or "")
    return _named(path)


def _of_rank(files: list[CaptureFile], run: Path) -> list[CaptureFile]:
    """The traces of the run's rank if several ranks were captured; engines may capture on one alone."""
    ranks = [_rank(file.path) for file in files]
    mine = _rank(run)
    wanted = mine if mine >= 0 else min((rank for rank in ranks if rank >= 0), default=-1)
    own = [file for file, rank in zip(files, ranks, strict=True) if rank == wanted]
    return own if own and len(set(ranks)) > 1 else files


def _rank(path: Path) -> int:
    """The rank in a file's name; -1 none."""
    return next((int(found[1]) for pattern in _RANKS if (found := pattern.search(path.name))), -1)
