"""pyprof as it is installed: a capture gives its summary, table and page, and no file of the checkout is opened.

    ENVIRONMENT/bin/python -I scripts/release.py CHECKOUT DIST CAPTURE

scripts/release runs it in the environment of the wheel. DIST holds the wheel and the sdist, whose files are held against those
that git knows in CHECKOUT. Exit code 1, with the reason, where anything is missing or the checkout was used.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

PARTS = ("pyprof", "tests", "scripts", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml")


def known(checkout: Path, *parts: str) -> set[str]:
    """Files of the checkout that git knows or would add."""
    command = ["git", "-C", str(checkout), "ls-files", "--cached", "--others", "--exclude-standard", "--", *parts]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {name for name in names if (checkout / name).exists()}


def check_contents(checkout: Path, dist: Path) -> None:
    """The wheel has every file of the package, the sdist those and all that the tests need."""
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        inside = {name for name in wheel.namelist() if name.startswith("pyprof/")}
    difference = sorted(inside ^ known(checkout, "pyprof"))
    with tarfile.open(next(dist.glob("*.tar.gz"))) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    difference += sorted(known(checkout, *PARTS) - inside)
    if difference:
        sys.exit(f"the wheel or the sdist differs from the checkout in {', '.join(difference[:9])}")


def forbid(checkout: Path) -> None:
    """From now on no file below the checkout may be opened or listed."""

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], (str, bytes)):
            path = arguments[0] if isinstance(arguments[0], str) else arguments[0].decode(errors="replace")
            if Path(path).is_relative_to(checkout):
                raise RuntimeError(f"the installed package opened {path}")

    sys.addaudithook(hook)


def command(*words: str) -> str:
    """What a command of pyprof prints; ends the process where it fails."""
    from pyprof.cli import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(list(words))
    if code:
        sys.exit(f"pyprof {' '.join(words)}: exit code {code}")
    return out.getvalue()


def check_use(capture: Path) -> None:
    """The commands that need data of the package: tables of hardware, formulas, pages of help, the page's files."""
    import pyprof
    from pyprof.help import topics

    summary = command("summary", str(capture))
    if "By op" not in summary or "linear" not in summary:
        sys.exit(f"no summary:\n{summary}")
    print(summary)
    if command("prof", "--csv", str(capture)).count("\n") < 20:
        sys.exit("no table")
    command("report", str(capture), "-o", "page.html")
    if not Path("page.html").read_text(encoding="utf-8").rstrip().endswith("</html>"):
        sys.exit("no page")
    for topic in topics():
        if len(command("help", topic)) < 200:
            sys.exit(f"pyprof help {topic}: nothing")
    for name in pyprof.__all__:
        if name not in (
            "init",
            "shutdown",
            "wrap",
            "instrument",
            "step",
            "capture",
            "schedule",
            "profile",
            "timeit",
        ):  # with torch
            getattr(pyprof, name)


def main() -> None:
    """Everything, for the folders named on the command line."""
    checkout, dist, capture = (Path(name).resolve() for name in sys.argv[1:])
    check_contents(checkout, dist)
    forbid(checkout)
    check_use(capture)
    import pyprof

    print(f"pyprof {pyprof.__version__} from {Path(pyprof.__file__).parent}")


if __name__ == "__main__":
    main()
