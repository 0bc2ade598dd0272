"""The exceptions that pyprof raises on purpose: a caller catches one class, a person reads one line and a hint.

    PyprofError               exit code 1: the input or the environment is at fault
    ├── InputError            a file cannot be read or is damaged
    │   ├── NotACapture       a readable file in a format that pyprof does not know
    │   └── EmptyCapture      a capture in a known format without usable content
    ├── ToolError             a tool or package that the task needs is missing or does not work
    ├── UsageError            exit code 2: an option, name or argument that does not exist
    └── GateError             exit code 3: a limit that the user set did not hold

The hint is the next command to type, or the next thing to look at. Must not know file formats.
"""

from __future__ import annotations


class PyprofError(Exception):
    """An error that pyprof raises on purpose, with a hint for the next step.

    message: one line that names the file or argument; hint: one line, a command to type if there is one.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class InputError(PyprofError):
    """A file cannot be read or is damaged."""


class NotACapture(InputError):
    """A readable file in none of the known formats."""


class EmptyCapture(InputError):
    """A capture in which neither GPU activity nor op ranges were recorded."""


class ToolError(PyprofError):
    """A tool or a package that the task needs is missing or does not work here."""


def unusable(need: str, package: str, error: ImportError, hint: str) -> ToolError:
    """The error where a package that `need` needs is not installed, or installed and cannot be imported."""
    absent = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == package.lower().replace(
        "-", "_"
    )
    why = "is not installed" if absent else f"cannot be imported here: {error}"
    return ToolError(f"{need} needs {package}, which {why}", hint)


def install_extra(extra: str) -> str:
    """The command that adds an extra to this pyprof: from the checkout or the wheel file it was installed from.

    Never by a bare name: an index may hold another project of that name.
    """
    import json
    import shlex
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    checkout = Path(__file__).resolve().parent.parent
    source, editable = str(checkout) if (checkout / "pyproject.toml").exists() else "", True
    try:
        origin = json.loads(distribution("pyprof-torch").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    if not source and (url := urlsplit(origin.get("url", ""))).scheme == "file":
        source, editable = url2pathname(url.path), bool(origin.get("dir_info", {}).get("editable"))
    if not source:
        return f"pip install 'WHEEL[{extra}]', WHEEL being the file that pyprof was installed from"
    wanted = shlex.quote(f"{'.' if Path(source) == Path.cwd() else source}[{extra}]")
    return f"pip install {'-e ' if editable else ''}{wanted}"


class UsageError(PyprofError):
    """An option, name or argument that does not exist."""

    exit_code = 2


class GateError(PyprofError):
    """A limit that the user set (`--fail-over`, `--min-match`) did not hold."""

    exit_code = 3
