"""`pyprof help TOPIC`: prints pyprof/help/TOPIC.md. A new topic is a new file. `pyprof help schema NAME`: schemas/NAME.json.

`{{package.module:name}}` in a page is replaced by what that function returns, or by the items of that tuple of texts, so that
what the code defines cannot differ from the page.
"""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path

from pyprof.errors import UsageError

__all__ = ["add_arguments", "page", "run", "schema_text", "schemas", "schemas_text", "topics"]

_PLACEHOLDER = re.compile(r"\{\{(?P<module>[\w.]+):(?P<name>[\w.]+)\}\}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof help`."""
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="without it, the list of topics")
    parser.add_argument("name", metavar="NAME", nargs="?", help="of the topic schema: print this JSON Schema")


def run(options: argparse.Namespace) -> int:
    """Print a page, or the list of topics. Returns the exit code."""
    if options.topic is None:
        titles = (f"  {topic:14} {page(topic).partition(chr(10))[0].lstrip('# ')}" for topic in topics())
        print("\n".join(["usage: pyprof help TOPIC", "", *titles, "", "pyprof --help lists the commands."]))
    elif options.name is not None:
        if options.topic != "schema":
            raise UsageError(f"the topic {options.topic!r} takes no name", f"pyprof help {options.topic}")
        print(schema_text(options.name), end="")
    else:
        print(page(options.topic), end="")
    return 0


def topics() -> list[str]:
    """The names of all topics in alphabetical order."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.md"))


def page(topic: str) -> str:
    """The text of a topic; its first line is the title. Raises UsageError for an unknown topic."""
    if topic not in topics():
        raise UsageError(f"there is no help topic {topic!r}", f"topics: {', '.join(topics())}")
    text = Path(__file__).with_name(f"{topic}.md").read_text(encoding="utf-8")
    return _PLACEHOLDER.sub(_value, text)


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


def _value(placeholder: re.Match[str]) -> str:
    value = attrgetter(placeholder["name"])(import_module(placeholder["module"]))
    return str(value()) if callable(value) else ", ".join(value)
