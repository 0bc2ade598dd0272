"""`pyprof help TOPIC`: every page prints, what its placeholders name exists, and the words that it defines are in use."""

import importlib.util
import re

import pytest

import pyprof
from pyprof.cli import main
from pyprof.hardware.devices import load
from pyprof.hardware.kernels import rules
from pyprof.help import commands, page, schema_text, schemas, topics
from tests.conftest import ROOT

WORDS = (
    "capture", "trace", "record", "op", "instance", "range", "layer", "phase", "dir", "main kernel", "known", "peak", "lost",
    "bound",
)  # fmt: skip


def test_the_list_of_topics_has_their_titles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    out = capsys.readouterr().out
    assert "terms" in topics() and all(re.search(rf"^  {topic} +\S", out, re.MULTILINE) for topic in topics())
    assert f"each command: {', '.join(commands())}" in out


@pytest.mark.parametrize("topic", [*topics(), *commands()])
def test_every_topic_prints(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", topic]) == 0
    out = capsys.readouterr().out
    assert out == page(topic) and re.match(r"(---\n(.+\n)+---\n)?# .+\n\n    (\$|>>>) \S", out), "a title, then what to type"
    assert out.endswith("\n")
    written = out.partition("\n## Arguments\n")[0]
    assert "{{" not in written and max(map(len, written.splitlines())) <= 128


def test_all_pages_take_forty_minutes_to_read_and_an_assistants_one_two() -> None:
    words = {topic: len((ROOT / "pyprof/help" / f"{topic}.md").read_text().split()) for topic in topics()}
    assert sum(words.values()) <= 8_000 and words["agent"] < 500


def test_an_assistants_page_is_a_skill_that_names_commands_and_keys_which_exist() -> None:
    head, _, text = page("agent").removeprefix("---\n").partition("\n---\n")
    assert re.match(r"name: [a-z-]+\ndescription: >-\n(  \S.*\n?)+$", head)
    assert set(re.findall(r"pyprof (\w+)", text)) - {"for"} <= {*commands(), "help"}
    named = re.findall(r"`(\w+(?:_ns|_min)|mfu|known|steps\.count|after)`", text)
    keys = schema_text("summary")
    assert named and not [name for name in named if f'"{name.rpartition(".")[2]}"' not in keys]


def test_what_the_code_defines_is_filled_in() -> None:
    assert "kernel, graph, memcpy, memset, cpu" in page("terms") and "forward, backward, optimizer" in page("terms")


def test_a_commands_page_ends_with_its_arguments_and_columns(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["gaps", "--help"])
    _, _, arguments = page("gaps").partition("\n## Arguments\n\n")
    text, _, columns = arguments.partition("\n## Columns\n\n")
    assert text == capsys.readouterr().out
    assert "\nlatency: How long launches take on each line\n\n    pid        process\n" in columns


def test_hardware_lists_every_device_and_every_family() -> None:
    lines = page("hardware").splitlines()
    assert not [gpu.name for gpu, _ in load() if not any(line.startswith(f"{gpu.name} ") for line in lines)]
    assert not {rule.kernel.family for rule in rules()} - {line.partition(" ")[0] for line in lines}
    (h100,) = (line for line in lines if line.startswith("H100-SXM5 "))
    assert h100.split()[:5] == ["H100-SXM5", "9.0", "132", "3350", "50"] and h100.split()[10:12] == ["989.4", "989.4"]


def test_figures_are_those_of_the_notes_on_measurements() -> None:
    notes = (ROOT / "scripts/bench/NOTES.md").read_text()
    tables = [line.strip() for line in page("figures").splitlines() if line.strip().startswith("|")]
    assert len(tables) > 10 and not [line for line in tables if line.removesuffix(" |") not in notes]
    scripts = re.findall(r"scripts/\w+/\w+\.py", page("figures"))
    assert scripts and not [name for name in scripts if not (ROOT / name).is_file()]


def test_the_page_on_python_names_everything_public() -> None:
    assert not [name for name in pyprof.__all__ if name != "__version__" and f"pyprof.{name}" not in page("python")]


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
    assert {path.stem for path in files} == set(schemas()) - {"summary", "diff", "memory"}, "which are written by hand"
    for path, text in files.items():
        assert path.read_text() == text, f"{path.name}: run python scripts/make_schemas.py"
