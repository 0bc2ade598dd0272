"""A user's file of formulas: its ops have costs, its faults are one line with a hint."""

from pathlib import Path

import pytest

from pyprof.errors import InputError, PyprofError, UsageError
from pyprof.prof.formulas import Cost, evaluate, load_user_formulas, registry, user
from tests.prof.formulas.formula_oracles import call, t

GOOD = """
import pyprof
from pyprof.prof.formulas import Cost, Piece


@pyprof.formula("usermod.fused_mlp", kind="matmul")
def fused_mlp(x, w1, w2, residual=False):
    cost = Cost(matmul_flops=4 * x.numel * w1.shape[0], vector_flops=0, bytes=0)
    yield cost
    yield Piece("wgrad", cost)
"""


@pytest.fixture(autouse=True)
def _registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FORWARD", dict(registry._FORWARD))
    monkeypatch.setattr(user, "_LOADED", set())


def test_a_file_of_formulas_is_loaded_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(GOOD)
    load_user_formulas(str(file))
    load_user_formulas(str(file))
    mlp = call("usermod.fused_mlp", t(4, 8), t(16, 8), t(8, 16))
    assert evaluate(mlp).cost == Cost(4 * 32 * 16, 0, 0)
    assert registry.matmul_class("usermod.fused_mlp")
    assert [piece.name for piece in registry.evaluate_backward(mlp)] == ["wgrad"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "mine.py: registers no formula"),
        ("\nimport no_such_module_at_all\n", "mine.py:2: ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("def f(:\n", "mine.py:1: SyntaxError: "),
        ("import sys\nsys.exit()\n", "mine.py:2: SystemExit"),
        (GOOD.replace("usermod.fused_mlp", "torch.mm"), "mine.py:6: ValueError: torch.mm has a formula already: mm"),
    ],
)
def test_a_file_that_fails_is_wrong_usage(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(UsageError) as raised:
        load_user_formulas(str(file))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "@pyprof.formula" in raised.value.hint


def test_a_file_that_is_absent_is_an_input_error(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.py", tmp_path):
        with pytest.raises(InputError, match="no such file") as raised:
            load_user_formulas(str(path))
        assert isinstance(raised.value, PyprofError)
        assert raised.value.hint
