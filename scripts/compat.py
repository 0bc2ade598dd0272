"""pyprof in clean environments: a row for each set of versions of Python and packages, and for each release of nsys.

    python scripts/compat.py [--only WORD,...] [--work DIR] [--keep]

Each row is an environment of its own: the wheel of this checkout, installed alone beside what the row asks for (and pytest),
and tests of reading, costs and summary run against it from a folder without the package; with torch those of the instrumenter
too. In the row "lower bounds" every dependency of every extra has the oldest version that pyproject.toml claims, all together.
Prints a Markdown table, which `pyprof help figures` has; exit code 1 where a row failed. A row that cannot be run says why.

Pythons are those on PATH, of pyenv and of scripts/install_python; releases of nsys those of `scripts/install_nsys --release`,
whose rows need torch here.
uv is taken from PATH, else from PyPI. Environments with torch have up to 6 GB: they are made below --work (default: a temporary
folder), one at a time. --only runs the rows whose names contain one of the words.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path.home() / ".cache" / "pyprof"
SHOWN = ("torch", "numpy", "pandas", "sqlalchemy", "pyarrow", "rich", "plotly")
# Quick tests of the half that needs no torch, and of the other. None needs sources, given captures, a browser or nsys.
READING = "test_cli.py test_public_api.py model/test_markers.py parse/sources/test_nsys.py parse/sources/test_exporters.py"
READING += " parse/sources/test_nvprof.py parse/records/test_parquet.py parse/records/netdict tables/test_formats.py"
READING += " prof/test_frame.py tables/test_rowtext.py tables/test_rows.py report/test_division.py"
READING += " parse/sources/kineto/test_trace_file.py tables/test_terminal.py test_visible.py"
PLOTTING = "report/figures/test_figures.py"
RECORDING = "nvtx/test_api.py nvtx/test_wrapper.py nvtx/test_layers.py nvtx/test_mode.py"
TOOLS = ("pytest>=8", "pytest-xdist>=3.6", "hypothesis", "setuptools", "expecttest", "jsonschema")
EXTRAS = ("capture", "fast", "parquet", "remote", "dask", "plot", "notebook", "mcp", "ncu")


class CannotRunError(Exception):
    """A row that this machine cannot run, and why."""


@dataclass(frozen=True)
class Cell:
    """A row: its Python, and what is asked for beside pyprof; with lowest, the oldest of everything in every extra."""

    name: str
    python: str
    pins: tuple[str, ...] = ()
    lowest: bool = False

    @property
    def torch(self) -> bool:
        """Whether the instrumenter can be tested there."""
        return self.lowest or any(pin.startswith("torch") for pin in self.pins)


@dataclass
class Row:
    """What came of a cell: versions by package, how many tests did what, or why it was not run."""

    cell: Cell
    versions: dict[str, str] = field(default_factory=dict)
    result: str = ""
    good: bool = False


CELLS = (
    Cell("lower bounds", "3.10", lowest=True),
    Cell("Python 3.10, newest for it", "3.10", ("pyarrow",)),
    # pyarrow 26 wants numpy 2, which its metadata does not say.
    Cell("torch 2.4", "3.11", ("torch==2.4.*", "numpy<2", "pyarrow<26")),
    Cell("torch 2.8", "3.11", ("torch==2.8.*", "pyarrow")),
    Cell("torch 2.13", "3.11", ("torch==2.13.*", "pyarrow")),
    Cell("torch 2.14", "3.11", ("torch==2.14.*", "pyarrow")),
    Cell("numpy 1.26, pyarrow 15", "3.11", ("numpy==1.26.*", "pyarrow==15.*", "pandas<3")),
    Cell("pandas 2, SQLAlchemy 2.0", "3.12", ("pandas<3", "sqlalchemy<2.1", "pyarrow")),
    Cell("without pyarrow", "3.12"),
    *(Cell(f"newest without torch, Python {python}", python, ("pyarrow", "plotly")) for python in ("3.12", "3.13", "3.14")),
    Cell("newest, Python 3.12", "3.12", ("torch", "pyarrow")),
    Cell("newest, Python 3.13", "3.13", ("torch", "pyarrow")),
    Cell("newest, Python 3.14", "3.14", ("torch", "pyarrow")),
)


def run(*words: str | Path, **more: object) -> subprocess.CompletedProcess[str]:
    """A command's result, its output held."""
    return subprocess.run(
        [str(w) for w in words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **more
    )  # type: ignore[call-overload,no-any-return]


def must(*words: str | Path, **more: object) -> str:
    """Standard output of a command; raises CannotRunError with the last line of what it said where it fails."""
    done = run(*words, **more)
    if done.returncode:
        said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise CannotRunError(f"{Path(str(words[0])).name} {words[1]}: {' '.join(said[-3:])[:300]}")
    return done.stdout


def interpreter(version: str) -> Path:
    """A Python of this version that runs here."""
    named = [shutil.which(f"python{version}")]
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for path in [*map(str, pyenv), *filter(None, named), str(CACHE / f"python{version}/usr/bin/python{version}")]:
        done = run(path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])") if Path(path).exists() else None
        if done and done.stdout.strip() == version:
            return Path(path)
    raise CannotRunError(f"no Python {version} here (scripts/install_python {version})")


def find_uv(work: Path) -> Path:
    """uv, from PATH or from PyPI."""
    if found := shutil.which("uv"):
        return Path(found)
    must(sys.executable, "-m", "venv", work / "uv")
    must(work / "uv/bin/pip", "install", "-q", "uv")
    return work / "uv/bin/uv"


def install(uv: Path, wheel: Path, cell: Cell, venv: Path) -> dict[str, str]:
    """The environment of a cell; every package in it with its version. Raises CannotRunError where packages are missing."""
    must(uv, "venv", "-q", "--python", interpreter(cell.python), venv)
    pip = (uv, "pip", "install", "-q", "--python", venv / "bin/python")
    if cell.lowest:
        extras = [word for extra in EXTRAS for word in ("--extra", extra)]
        must(*pip, "--resolution", "lowest-direct", "-r", ROOT / "pyproject.toml", *extras)
        must(*pip, "--no-deps", wheel)
    else:
        must(*pip, wheel, *cell.pins)
    versions = listed(uv, venv)
    must(*pip, *TOOLS, *[f"{name}=={version}" for name, version in versions.items() if name in SHOWN])
    return listed(uv, venv)


def listed(uv: Path, venv: Path) -> dict[str, str]:
    """Packages of an environment and their versions."""
    found = json.loads(must(uv, "pip", "list", "--format", "json", "--python", venv / "bin/python"))
    return {package["name"].lower().replace("_", "-"): package["version"] for package in found}


def above_bounds(versions: dict[str, str]) -> list[str]:
    """Dependencies of which another version than the lowest claimed was installed: their bounds are not tested."""
    text = (ROOT / "pyproject.toml").read_text()
    declared = text[text.index("dependencies = [") : text.index("dev = [")]
    bounds = {(name.lower(), bound) for name, bound in re.findall(r'"([A-Za-z0-9_-]+)>=([0-9.]+)', declared)}
    installed = {name: tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:3])) for name, version in versions.items()}
    differ = []
    for name, bound in sorted(bounds):
        want = tuple(map(int, bound.split(".")))
        if installed.get(name, ())[: len(want)] != want:
            differ.append(f"{name} {versions.get(name)} for {bound}")
    return differ


def test(cell: Cell, venv: Path, work: Path) -> tuple[str, bool]:
    """Run the tests against the installed package: how many did what, and whether all is well."""
    folder = work / "tests_alone"
    env = {**os.environ, "PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("PYTHONPATH", None)
    more = f"{RECORDING if cell.torch else ''} {PLOTTING if 'plotly' in cell.pins else ''}"
    paths = [f"tests/{name}" for name in f"{READING} {more}".split()]
    options = [
        "-m",
        "not slow and not nsys",
        "-p",
        "no:cacheprovider",
        "--hypothesis-profile",
        "few",
    ]
    # An old library's warnings are about the new Python, not about pyprof.
    options += ["-o", "filterwarnings=default"]
    done = run(venv / "bin/python", "-m", "pytest", *options, *paths, cwd=folder, env=env)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr.strip()[-200:]
    for line in done.stdout.splitlines():
        if line.startswith(("FAILED", "ERROR")):
            print(f"    {line[:230]}", file=sys.stderr)
    if done.returncode:
        (work / f"{cell.name.replace(' ', '_')}.log").write_text(done.stdout + done.stderr)
    counts = ", ".join(re.findall(r"\d+ (?:passed|failed|skipped|errors?)", last))
    return counts or last, done.returncode == 0


def build(uv: Path, work: Path) -> Path:
    """The wheel. Its tests are put beside it once: all rows test one state of the checkout, however long they take."""
    must(uv, "build", "-q", "--wheel", "-o", work / "dist", ROOT)
    folder = work / "tests_alone"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("tests", "scripts", "README.md", "pyproject.toml"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    return next((work / "dist").glob("*.whl"))


def one(uv: Path, wheel: Path, cell: Cell, work: Path, keep: bool) -> Row:
    """Make the environment of a cell, test it, take it away."""
    row, venv = Row(cell), work / "venv"
    shutil.rmtree(venv, ignore_errors=True)
    try:
        row.versions = install(uv, wheel, cell, venv)
        row.result, row.good = test(cell, venv, work)
        if cell.lowest and (differ := above_bounds(row.versions)):
            row.result, row.good = f"{row.result}; not at their bounds: {', '.join(differ)}", False
    except CannotRunError as why:
        row.result, row.good = f"not run: {why}", not cell.lowest
    finally:
        if not keep:
            shutil.rmtree(venv, ignore_errors=True)
    return row


NSYS = ("2020.4", "2022.4", "2023.4", "2024.2")


def exporters(work: Path) -> tuple[list[str], bool]:
    """One report, recorded by the oldest nsys here, exported by it and newer ones: a line each; whether all gave the same."""
    present = {release: CACHE / f"nsys-{release}/bin/nsys" for release in NSYS}
    if not present["2023.4"].exists():
        present["2023.4"] = CACHE / "nsys/bin/nsys"
    lines, report, first, env = [], None, None, {**os.environ, "PYTHONPATH": str(ROOT)}
    for release, nsys in present.items():
        if not nsys.exists():
            lines.append(f"| {release} | not run: scripts/install_nsys --release {release} |")
            continue
        folder = work / f"nsys-{release}"
        folder.mkdir(exist_ok=True)
        try:
            report = report or record(nsys, folder)
            must(nsys, "export", "--type", "sqlite", "-f", "true", "-o", folder / "net.sqlite", report)
            records = must(sys.executable, "-m", "pyprof", "parse", folder / "net.sqlite", env=env)
        except CannotRunError as why:
            lines.append(f"| {release} | not run: {why} |")
            continue
        first = first or (release, records)
        same = "the same" if records == first[1] else "OTHER RECORDS"
        lines.append(f"| {release} | {records.count(chr(10))} records, {same} as of the export by {first[0]} |")
    return lines, not any("OTHER" in line for line in lines)


def record(nsys: Path, folder: Path) -> Path:
    """tests/programs/nsys_ops.py under this nsys; its report."""
    options = ["-t", "nvtx", "--sample=none", "--trace-fork-before-exec=true", "-f", "true", "-o", folder / "recorded"]
    program = [sys.executable, "tests/programs/nsys_ops.py", folder / "truth.json"]
    must(nsys, "profile", *options, *program, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT)
    return next(path for path in folder.iterdir() if path.suffix in (".qdrep", ".nsys-rep"))


def table(rows: list[Row]) -> list[str]:
    """Rows as Markdown."""
    lines = [f"| environment | Python | {' | '.join(SHOWN)} | tests |", "|---" * (len(SHOWN) + 3) + "|"]
    for row in rows:
        shown = [row.versions.get(name, "-").partition("+")[0] for name in SHOWN]
        lines.append(f"| {row.cell.name} | {row.cell.python} | {' | '.join(shown)} | {row.result} |")
    return lines


def main() -> int:
    """Run the rows that were asked for; exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="words, separated by commas; nsys is one of them")
    parser.add_argument("--work", type=Path, help="folder for environments and downloads")
    parser.add_argument("--keep", action="store_true", help="leave the last environment")
    options = parser.parse_args()
    words = [word for word in options.only.split(",") if word]
    work = options.work or Path(tempfile.mkdtemp(prefix="pyprof-compat-"))
    work.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("UV_CACHE_DIR", str(work / "uv-cache"))  # on the disk of the environments, which are links into it
    if "PIP_FIND_LINKS" in os.environ:
        os.environ.setdefault("UV_FIND_LINKS", os.environ["PIP_FIND_LINKS"])
    good = True
    try:
        cells = [cell for cell in CELLS if not words or any(word in cell.name for word in words)]
        uv = find_uv(work) if cells else Path()
        rows: list[Row] = []
        wheel = build(uv, work) if cells else Path()
        for cell in cells:
            rows.append(one(uv, wheel, cell, work, options.keep))
            print(table(rows)[-1], file=sys.stderr, flush=True)
        if not words or "nsys" in words:
            lines, good = exporters(work)
            print("\n".join(["| nsys | one report, recorded by the oldest |", "|---|---|", *lines]))
        if cells:
            print("\n".join(table(rows)))
    finally:
        if options.work is None:
            shutil.rmtree(work, ignore_errors=True)
    return 0 if good and all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
