"""Layer paths -> the same without the numbers that tell repeated layers apart: `blocks.*.attn`.

Paths are many and their parts are few: each distinct part is looked at once.
"""

from __future__ import annotations

import re
from functools import lru_cache

IN_PART = re.compile(r"(?:(?<=_)|^)\d+(?=:|$)")
"""A number of a part that may hold names with `:` between them: of a layer in a list (`3`), or called after its class
(`Linear_12`)."""
AT_END = re.compile(r"(?:(?<=_)|^)\d+$")
"""The same of a part that is one name."""


def without_numbers(path: str, number: re.Pattern[str]) -> str:
    """The path with `*` in place of such numbers of its parts, which stand between dots."""
    return ".".join([_part(part, number) for part in path.split(".")])


@lru_cache(maxsize=1 << 14)
def _part(part: str, number: re.Pattern[str]) -> str:
    return number.sub("*", part)
