"""A regular expression -> texts of which one is in every text that it matches.

Most names are told from those that a table's patterns match without the patterns, whose compiling takes longer than reading a
small capture. Knows no table.
"""

from __future__ import annotations

import re
from functools import cache

_NO_TEXT = re.compile(r"\\.|\[[^]]*\]|[.^$]")  # what matches other characters than itself, or none
_GROUP = re.compile(r"\([^()]*\)")
_OPTIONAL = re.compile(r".(?:[?*]|\{[^}]*\})")


def may_match(regex: str, text: str) -> bool:
    """Whether a regex, of no flags, can match in the text."""
    return any(part in text for part in _contained(regex))


@cache
def _contained(regex: str) -> tuple[str, ...]:
    """The longest literal of each alternative of a regex outside its groups; "", which is in every name, where it has none."""
    text, groups = _NO_TEXT.sub(" ", regex), 1
    while groups:
        text, groups = _GROUP.subn(" ", text)
    return tuple(max(re.split("[ +]+", one), key=len) for one in _OPTIONAL.sub(" ", text).split("|"))
