"""The command line of a program, or of a launcher that starts it -> the program's name, after which its capture is called."""

from __future__ import annotations

import os
from pathlib import Path

PYTHON_SUFFIXES = (".py", ".pyw", ".pyz", ".pyc")
_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli",
    "deepspeed.launcher.launch",
)
_SCRIPTS = ("torchrun", "accelerate", "accelerate-launch", "deepspeed")


def is_launcher(words: list[str]) -> bool:
    """Whether a Python process only starts those to record: `torchrun ...`, `python -m torch.distributed.run ...`."""
    if any(os.path.basename(word) in _SCRIPTS for word in words[1:3]):  # whose own -m names the program
        return True
    return "-m" in words[:-1] and words[words.index("-m") + 1] in _MODULES


def program_name(words: list[str]) -> str:
    """`torchrun --nproc-per-node 2 ddp.py` -> ddp; `python -m torch.distributed.run -m pkg.train` -> train; else the command.

    The program is the first file of Python that is there, or what the first -m names that is no launcher.
    """
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in ("-m", "--module") and following and following not in _MODULES:
            parts = following.split(".")
            return parts[-2] if parts[-1] == "__main__" and len(parts) > 1 else parts[-1]
        if Path(word).suffix in PYTHON_SUFFIXES and os.path.isfile(word):
            return Path(word).stem
    return Path(os.path.abspath(words[0])).stem
