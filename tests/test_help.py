"""`pyprof help TOPIC`: every page prints, what its placeholders name exists, and the words that it defines are in use."""

from __future__ import annotations

import importlib.util
import re

import pytest

from pyprof.cli import main
from pyprof.help import page, schemas, topics
from tests.conftest import ROOT

WORDS = (
    "capture", "trace", "record", "op", "instance", "range", "layer", "phase", "dir", "main kernel", "known", "peak", "lost",
    "bound",
)  # fmt: skip


def test_the_list_of_topics_has_their_titles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    out = capsys.readouterr().out
    assert "terms" in topics() and all(re.search(rf"^  {topic} +\S", out, re.MULTILINE) for topic in topics())


@pytest.mark.parametrize("topic", topics())
def test_every_topic_prints(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", topic]) == 0
    out = capsys.readouterr().out
    assert out == page(topic) and out.startswith("# ") and out.endswith("\n") and "{{" not in out
    assert max(map(len, out.splitlines())) <= 128


def test_what_the_code_defines_is_filled_in() -> None:
    assert "kernel, graph, memcpy, memset, cpu" in page("terms") and "forward, backward, optimizer" in page("terms")


def test_an_unknown_topic_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "../errors"]) == 2
    assert "hint: topics: " in capsys.readouterr().err


def test_terms_defines_the_words_in_use() -> None:
    defined = re.findall(r"^(\S+(?: \S+)*)  +\S", page("terms"), re.MULTILINE)
    assert set(WORDS) <= set(defined) and len(defined) == len(set(defined))
    used = (ROOT / "README.md").read_text() + "".join(path.read_text() for path in (ROOT / "pyprof").rglob("*.py"))
    assert not [word for word in defined if word.removeprefix("aux ") not in used]


def test_schemas_of_tables_are_what_their_headers_say() -> None:
    spec = importlib.util.spec_from_file_location("make_schemas", ROOT / "scripts" / "make_schemas.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(made := importlib.util.module_from_spec(spec))
    files = dict(made.files())
    assert {path.stem for path in files} == set(schemas()) - {"summary", "diff"}, "which are written by hand"
    for path, text in files.items():
        assert path.read_text() == text, f"{path.name}: run python scripts/make_schemas.py"
