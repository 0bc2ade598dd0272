"""Print a page of help: a topic, or a command with its examples, arguments and columns.

pyprof help                  the list of topics and commands
pyprof help terms            the words on the screens, and what they mean
pyprof help gaps             a command
pyprof help schema gaps      the JSON Schema of what it writes
"""

# A topic is TOPIC.md here, a command's examples are commands/COMMAND.md, a schema is schemas/NAME.json. In a page
# `{{package.module:name}}` is replaced by what that function returns, or by the items of that tuple of texts, so that what the
# code defines cannot differ from the page. Examples begin with `    $ ` (shell) or `    >>> ` (Python); the tests run them.

from __future__ import annotations

import argparse
import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path

from pyprof.errors import UsageError

__all__ = [
    "add_arguments",
    "commands",
    "commands_text",
    "page",
    "run",
    "schema_text",
    "schemas",
    "schemas_text",
    "topics",
]

_PLACEHOLDER = re.compile(r"\{\{(?P<module>[\w.]+):(?P<name>[\w.]+)\}\}")
_FOLDER = Path(__file__).parent
_CLI = "pyprof.cli"  # which imports this module only when `help` runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof help`."""
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="a topic or a command; without it, the list of both")
    parser.add_argument("name", metavar="NAME", nargs="?", help="of the topic schema: print this JSON Schema")


def run(options: argparse.Namespace) -> int:
    """Print a page, or the list of topics. Returns the exit code."""
    if options.name is not None:
        if options.topic != "schema":
            raise UsageError(f"the topic {options.topic!r} takes no name", f"pyprof help {options.topic}")
        print(schema_text(options.name), end="")
        return 0
    if options.topic is not None:
        print(page(options.topic), end="")
        return 0
    # Lines before a page's title are for the program that reads the page as a skill.
    titles = (f"  {topic:16} {re.findall('^# (.*)', page(topic), re.MULTILINE)[0]}" for topic in topics())
    print("\n".join(["usage: pyprof help TOPIC", "", *titles, "", f"and each command: {', '.join(commands())}"]))
    return 0


def topics() -> list[str]:
    """The names of all topics in alphabetical order, without the commands."""
    return sorted(path.stem for path in _FOLDER.glob("*.md"))


def commands() -> list[str]:
    """The commands that have a page, in alphabetical order."""
    return sorted(path.stem for path in _FOLDER.glob("commands/*.md"))


def page(topic: str) -> str:
    """The text of a topic or a command. Raises UsageError for an unknown one."""
    if topic in topics():
        return _filled(_FOLDER / f"{topic}.md")
    if topic in commands():
        described = import_module(_CLI).arguments_text(topic)
        return f"{_filled(_FOLDER / 'commands' / f'{topic}.md')}\n## Arguments\n\n{described}{_columns(topic)}"
    raise UsageError(f"there is no help topic {topic!r}", f"topics: {', '.join(topics())}; or a command")


def _columns(command: str) -> str:
    """The columns of each table of a command, from the schema of its rows; empty without tables."""
    import json

    name = next((name for name in (f"{command}-tables", command) if name in schemas()), None)
    tables = {} if name is None else json.loads(schema_text(name)).get("properties", {})
    parts = []
    for table, described in tables.items():
        if columns := described.get("items", {}).get("properties", {}):
            parts += ["", f"{table}: {described['description'].partition('. ')[0].removesuffix('.')}", ""]
            parts += [f"    {key:{max(map(len, columns))}}  {column['description']}" for key, column in columns.items()]
    return "\n".join(["", "## Columns", *parts, ""]) if parts else ""


def commands_text() -> str:
    """Each command with what it does and its first two examples, for `pyprof help commands`."""
    parts = []
    for command in import_module(_CLI).COMMANDS:
        lines = (_FOLDER / "commands" / f"{command.name}.md").read_text(encoding="utf-8").splitlines()
        examples = [line for line in lines if line.startswith("    $ ")]
        parts.append("\n".join([f"{command.name}: {command.help}", "", *examples[:2]]))
    return "\n\n".join(parts)


def _filled(path: Path) -> str:
    def value(placeholder: re.Match[str]) -> str:
        found = attrgetter(placeholder["name"])(import_module(placeholder["module"]))
        return str(found()) if callable(found) else ", ".join(found)

    return _PLACEHOLDER.sub(value, path.read_text(encoding="utf-8"))


def schemas() -> list[str]:
    """The names of the JSON Schemas, one for each document that a report writes with `--format json`."""
    return sorted(path.stem for path in (Path(__file__).parent / "schemas").glob("*.json"))


def schema_text(name: str) -> str:
    """A JSON Schema (draft 2020-12). Raises UsageError for an unknown name."""
    if name not in schemas():
        raise UsageError(f"there is no schema {name!r}", f"schemas: {', '.join(schemas())}")
    return (Path(__file__).parent / "schemas" / f"{name}.json").read_text(encoding="utf-8")


def schemas_text() -> str:
    """The schemas with the commands whose output they describe."""
    import json

    return "\n".join(f"    {name:14}  {json.loads(schema_text(name))['title']}" for name in schemas())
