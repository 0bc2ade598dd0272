"""A kernel's name as a tool prints it -> one spelling.

nsys prints `<unnamed>`, `(int)4`, `(bool)0`, `const float *` and `[lambda(int) (instance 1)]`; Kineto prints what c++filt
prints: `(anonymous namespace)`, `4`, `false`, `float const*` and `{lambda(int)#1}`; nvprof stores mangled names. `normalise`
turns the first into the second, `demangle` the last. Must not know what the names mean; `kernels` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import chain

_ANONYMOUS = "(anonymous namespace)"
# Longer than any name a compiler writes by far; keeps the C demangler from being fed hostile text.
_MAX_MANGLED = 1 << 16


@lru_cache(maxsize=1)
def _load() -> tuple[Callable[[str], str] | None, str]:
    """The platform's C++ demangler, or None and the reason."""
    try:
        import cxxfilt
    except (ImportError, OSError, AttributeError) as error:
        return None, f"the package cxxfilt cannot be used ({error})"
    try:
        cxxfilt.demangle("_Z1fv")
    except (cxxfilt.Error, OSError) as error:
        return None, str(error)

    def call(name: str) -> str:
        try:
            return str(cxxfilt.demangle(name))
        except (cxxfilt.Error, UnicodeError):
            return name

    return call, ""


class Demangler:
    """Demangles C++ names and counts those that it cannot demangle because no demangler is installed.

    left: the number of such distinct names. One instance serves one capture.
    """

    def __init__(self) -> None:
        self.left = 0
        self._reason = ""
        self._known: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """The demangled name; the name itself if it is not mangled or cannot be demangled."""
        if not name.startswith("_Z"):
            return name
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._read(name)
        return found

    def _read(self, name: str) -> str:
        call, reason = _load()
        if call is None:
            self.left += 1
            self._reason = reason
            return name
        # A lone surrogate or a NUL cannot be part of a symbol, and C would stop at the NUL.
        if len(name) > _MAX_MANGLED or not name.isascii() or "\0" in name:
            return name
        short = name
        for half, letter, _, _ in _HALF_TYPES:
            short = short.replace(half, letter)
        found = call(short)
        if found == short:
            return name
        for _, _, integer, readable in _HALF_TYPES if short != name else ():
            found = found.replace(integer, readable)
        return found

    @property
    def notes(self) -> list[str]:
        """At most one line: how many names stay mangled, and what to install."""
        if not self.left:
            return []
        return [f"{self.left} kernel names stay mangled: {self._reason}; install it with: pip install cxxfilt"]


# Half types of kernels for AMD, which demanglers older than those types leave as they are, and the 128-bit integers, likewise
# types of one letter, that stand in for them: no kernel computes in those.
_HALF_TYPES = (("DF16b", "o", "unsigned __int128", "__bf16"), ("DF16_", "n", "__int128", "_Float16"))


@lru_cache(maxsize=8192)
def demangle(name: str) -> str:
    """The readable form of a mangled C++ name (Itanium ABI, `_Z...`); any other text unchanged."""
    return Demangler()(name)


_UNNAMED = re.compile(r"<unnamed>|_NV_ANON_NAMESPACE|\{anonymous\}")
_LAMBDA = re.compile(r"\[lambda\(((?:[^\[\]]|\[\])*)\) \(instance (\d+)\)\]")
_INT_CAST = re.compile(r"\((?:(?:un)?signed )?(?:int|long long|long|short|char)\)(?=-?\d)")
_BOOL_CAST = re.compile(r"\(bool\)([01])\b")
_INT_SUFFIX = re.compile(r"(?<=[<, ])(-?\d+)[ul]{1,3}(?=[,>) ])")
_BEFORE_POINTER = re.compile(r"(?<!\s)\s+(?=[*&])")
_CLOSE = re.compile(r"(?<=>)\s+(?=>)")
_OPERATOR = re.compile(r"\boperator (?=[^\w\s])")
_LEADING_CONST = re.compile(r"(?<![\w>*&)] )(?<![\w)])const (?=[A-Za-z_(])")
_TYPE_WORDS = re.compile(r"(?:(?:unsigned|signed|long|short)(?: (?:int|char|long|short|double))*|[A-Za-z_~]\w*)")


def _type_end(text: str, start: int) -> int:
    """The end of the type name that begins at `start`: qualified, with its template arguments, without `*` and `&`."""
    pos = start
    while pos < len(text):
        if text.startswith(_ANONYMOUS, pos):
            pos += len(_ANONYMOUS)
        else:
            word = _TYPE_WORDS.match(text, pos)
            if word is None:
                return pos
            pos = word.end()
        if text.startswith("<", pos):
            pos = _balanced_end(text, pos)
        if not text.startswith("::", pos):
            return pos
        pos += 2
    return pos


def _balanced_end(text: str, start: int) -> int:
    """The position after the `>` that closes the `<` at `start`; the end of the text if none does."""
    depth = 0
    for pos in range(start, len(text)):
        if text[pos] == "<":
            depth += 1
        elif text[pos] == ">" and text[pos - 1] != "-":
            depth -= 1
            if not depth:
                return pos + 1
    return len(text)


def _const_last(text: str) -> str:
    """`const float*` becomes `float const*`, the order of c++filt."""
    if "const " not in text:
        return text
    # From the right, so that positions further left stay valid.
    for match in reversed(list(_LEADING_CONST.finditer(text))):
        end = _type_end(text, match.end())
        if end > match.end():
            text = f"{text[: match.start()]}{text[match.end() : end]} const{text[end:]}"
    return text


@lru_cache(maxsize=8192)
def normalise(name: str) -> str:
    """The name as c++filt would print it, without suffixes of integers and blanks between closing brackets.

    Idempotent. Template parameters that nsys prints as `T1` in argument lists stay, since the text does not contain them.
    """
    if "(" not in name and "<" not in name:
        return name.strip()
    text = _UNNAMED.sub(_ANONYMOUS, name)
    while True:
        changed = _LAMBDA.sub(r"{lambda(\1)#\2}", text)
        if changed == text:
            break
        text = changed
    text = _BOOL_CAST.sub(lambda m: "true" if m[1] == "1" else "false", _INT_CAST.sub("", text))
    text = _INT_SUFFIX.sub(r"\1", _OPERATOR.sub("operator", text))
    text = _CLOSE.sub("", _BEFORE_POINTER.sub("", text))
    return _const_last(text).strip()


_DROPPED = ("void ", "at::", "cuda::", "native::", _ANONYMOUS + "::")


def short_name(name: str) -> str:
    """The original PyProf's short name: the part before the template arguments, without `void` and torch's namespaces.

    name: demangled and normalised here. `cutlass::Kernel2<cutlass_80_...>` becomes `cutlass::Kernel2`.
    """
    text = normalise(demangle(name))
    entry = _CK_ENTRY.match(text)
    text = entry[1] if entry else _nested_name(text) if text.startswith("_ZN") else text.split("<")[0]
    for dropped in _DROPPED:
        text = text.replace(dropped, "")
    return text.split("(")[0]


# All kernels of CK Tile are instances of one function; its argument says which.
_CK_ENTRY = re.compile(r"(?:void )?ck_tile::kentry<(?:\d+, )*([\w:]+)")


def _nested_name(mangled: str) -> str:
    """The name before the template arguments of `_ZN2ck6kernelI...`, which is too long or cut too short to be demangled."""
    parts, at = [], len("_ZN")
    while length := re.compile(r"\d{1,4}").match(mangled, at):
        parts.append(mangled[length.end() : length.end() + int(length[0])])
        at = length.end() + int(length[0])
    return "::".join(part for part in parts if part != "_GLOBAL__N_1") or mangled


# Patterns are slow to compile, longer than a small capture takes to read. So a name is first checked for the texts that every
# match contains: most names need no pattern.
_NO_TEXT = re.compile(r"\\.|\[[^]]*\]|[.^$]")  # what matches other characters than itself, or none
_GROUP = re.compile(r"\([^()]*\)")
_WORDS = re.compile(r"\(\?:(\w+(?:\|\w+)*)\)(?![?*{])")  # a group that stands for one of some texts
_OPTIONAL = re.compile(r".(?:[?*]|\{[^}]*\})")


def may_match(regex: str, text: str) -> bool:
    """Whether a regex, of no flags, can match in the text."""
    return any(part in text for part in _contained(regex))


@cache
def _contained(regex: str) -> tuple[str, ...]:
    """For each alternative of a regex its longest literal outside groups, or the literals of which a group is one; "", which is
    in every name, where it has none."""
    text, groups = _WORDS.sub(lambda group: f" {group[1].replace('|', chr(0))} ", _NO_TEXT.sub(" ", regex)), 1
    while groups:
        text, groups = _GROUP.subn(" ", text)
    ways = (re.split("[ +]+", one) for one in _OPTIONAL.sub(" ", text).split("|"))
    found = (max((text.split(chr(0)) for text in texts), key=lambda some: min(map(len, some))) for texts in ways)
    return tuple(chain.from_iterable(found))
