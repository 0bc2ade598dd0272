"""Texts of a capture -> names of people and machines in them, and texts without these. Knows no format of captures.

A name is found where it stands in a known place: a home folder, a variable such as USER or HOSTNAME. It is then replaced
wherever it is a whole word. Accounts that everyone has (`root`, `ubuntu`) identify nobody and stay.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from pyprof.errors import InputError
from pyprof.parse.sources.inputs import GZIP

USER, HOST, REMOVED = "user", "host", "removed"
_COMMON = {
    "root", "user", "users", "home", "host", "localhost", "ubuntu", "admin", "nobody", "runner", "docker", "jovyan", "python",
    "torch", "cuda", "model", "train", "test", "shared", "public", "name", "value", "none", "null",
}  # fmt: skip
_BLOCK_CHARACTERS = 1 << 22
_OVERLAP = 4096  # characters of a block that are read with the next one too: a name may lie on the cut
_LEAST = 3  # characters of a name that is replaced outside of a path: shorter ones stand in too many words
_USER_KEYS = ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "SLURM_JOB_USER", "username", "user_name", "UserName")
_HOST_KEYS = (
    "HOSTNAME", "HOST", "COMPUTERNAME", "SLURMD_NODENAME", "hostname", "host_name", "nodename", "node_name", "HostName",
    "Hostname",
)  # fmt: skip
_ASSIGNED = r"(?<![A-Za-z0-9_])(?:%s)[\"']?\s*[=:]\s*[\"']?([\w.@-]+)"
_FIND_HOME = re.compile(r"(?i:[/\\]+(?:home|users)[/\\]+)([^/\\\s\"'`:;,()<>|]+)")
_FIND_USER, _FIND_HOST = (re.compile(_ASSIGNED % "|".join(keys)) for keys in (_USER_KEYS, _HOST_KEYS))
_ABSOLUTE = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:)?[/\\](?:[\w.+@ -]+[/\\])+(?=[\w.+<-])")
_INSTALLED = re.compile(r"(?:(?:site|dist)-packages|python\d[\d.]*(?![\d.]*[/\\](?:site|dist)-packages))[/\\].*$")


class Rules(NamedTuple):
    """Further things to take out. words: the user's own; cut_paths: folders of absolute paths; project: paths
    below this folder stay, from there on."""

    words: tuple[str, ...] = ()
    cut_paths: bool = False
    project: str | None = None


class Identities:
    """Names collected from texts, and how texts read without them. `find` all texts first, then use `scrubbed`."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.users: set[str] = set()
        self.hosts: set[str] = set()
        self.scrubbed = lru_cache(1 << 16)(self._scrubbed)

    def find(self, text: str) -> None:
        """Remember the names in a text."""
        self.users.update(filter(_identifies, _FIND_HOME.findall(text)))
        if any(key in text for key in _USER_KEYS):  # looked for first: it is much faster than the pattern
            self.users.update(filter(_identifies, _FIND_USER.findall(text)))
        if any(key in text for key in _HOST_KEYS):
            for name in _FIND_HOST.findall(text):
                self.hosts.update(filter(_identifies, (name, name.partition(".")[0])))

    def find_in_file(self, path: Path, encoding: str) -> None:
        """Remember the names in the text of a file, gzip or not. Raises InputError if it cannot be decompressed."""
        with path.open("rb") as raw:
            packed = raw.read(2) == GZIP
            raw.seek(0)
            try:
                stream = io.TextIOWrapper(cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if packed else raw, encoding, "replace")
                last = ""
                while more := stream.read(_BLOCK_CHARACTERS):
                    self.find(last + more)
                    last = more[-_OVERLAP:]
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise InputError(f"{path}: cannot be decompressed: {error}", "write or copy the file again") from error

    def _scrubbed(self, text: str) -> str:
        """A text without the names, and where the rules say so without folders."""
        if self.rules.cut_paths:
            text = _ABSOLUTE.sub(self._shorter, text)
        text = _FIND_HOME.sub(lambda home: home[0] if home[1].lower() in _COMMON else home[0][: -len(home[1])] + USER, text)
        for names, instead in ((self.rules.words, REMOVED), (self.hosts, HOST), (self.users, USER)):
            if names:
                text = _any_word(tuple(sorted(names))).sub(instead, text)
        return text

    def _shorter(self, found: re.Match[str]) -> str:
        """The folders of an absolute path that are kept: the project's, or an installed package's."""
        folders, project = found[0], self.rules.project
        if project is not None and folders.startswith(project.rstrip("/\\") + folders[-1]):
            return folders[len(project.rstrip("/\\")) + 1 :]
        installed = _INSTALLED.search(folders)
        return installed[0] if installed else ""


def _identifies(name: str) -> bool:
    return len(name) >= _LEAST and name.lower() not in _COMMON and not name.isdigit()


@lru_cache(8)
def _any_word(names: tuple[str, ...]) -> re.Pattern[str]:
    """Any of the names where it is not part of a longer word; longer names first."""
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, longest_first))})(?![A-Za-z0-9])")
