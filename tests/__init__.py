"""Where the project is, for tests and for the processes that they start."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
