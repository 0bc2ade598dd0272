"""Where the project is, for tests and for the processes that they start."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def examples(whole: int) -> int:
    """How many examples a property draws: `whole` of them in `scripts/test --all`, fewer in the quick run."""
    from hypothesis import settings  # most processes that import this draw none

    return max(1, whole * settings.default.max_examples // 100)
