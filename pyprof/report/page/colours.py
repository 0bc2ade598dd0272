"""The page's stylesheet -> the colours of phases, causes and parts of the wall time by name, for other drawings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_STYLE = Path(__file__).with_name("assets") / "page.css"
_RULE = re.compile(r"^(\.[.\w, -]+) \{ --c: (#[0-9a-f]{6}); \}$", re.MULTILINE)


@cache
def colours() -> Mapping[str, str]:
    """`ph-forward`, `cause-launch`, `busy-copy`, `layer` -> #rrggbb on white."""
    rules = _RULE.findall(_STYLE.read_text(encoding="utf-8"))
    return {name.strip().removeprefix("."): colour for names, colour in rules for name in names.split(",")}
