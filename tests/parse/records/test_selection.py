"""Options for kinds, steps, ranges and times; malformed values are usage errors."""

from pathlib import Path

import pytest

from pyprof.cli import main
from pyprof.errors import UsageError
from pyprof.loading.load import load_capture
from pyprof.parse.records.selection import choose_kinds
from tests.tiny import Nsys


@pytest.fixture
def capture(tmp_path: Path) -> str:
    n = Nsys()
    n.kernel("k", 5, 200, 210)
    return str(n.write(tmp_path / "n.sqlite"))


@pytest.mark.parametrize("kinds", ["", ",", "kernel,", "kernal", "all,kernel"])
@pytest.mark.parametrize("command", ["parse", "prof"])
def test_an_empty_or_unknown_kind_is_wrong_usage(
    capture: str, capsys: pytest.CaptureFixture[str], command: str, kinds: str
) -> None:
    assert main([command, capture, "--kinds", kinds]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("pyprof: error: unknown kind ") and "hint: kinds: kernel, graph, memcpy" in err


def test_kinds_are_chosen(capture: str) -> None:
    records = load_capture(Path(capture))
    assert [len(choose_kinds(records, kinds)) for kinds in ("kernel", " kernel , cpu", "all", "memset")] == [1, 1, 1, 0]
    with pytest.raises(UsageError, match="unknown kind 'x'"):
        choose_kinds(records, "kernel,x")


@pytest.mark.parametrize("time", ["", "1", "1:2:3", "a:b", ":1e5", "1:" + "9" * 40])
def test_a_time_that_cannot_be_read_is_wrong_usage(capture: str, capsys: pytest.CaptureFixture[str], time: str) -> None:
    assert main(["prof", capture, "--time", time]) == 2
    assert "--time takes A:B" in capsys.readouterr().err
