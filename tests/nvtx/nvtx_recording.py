"""A recorder in place of NVTX, and what torch's attributes are at a moment."""

import threading
from typing import Any

import torch

from pyprof.model import markers
from pyprof.model.markers import Kind, Marker
from pyprof.nvtx.backend import Registry
from pyprof.nvtx.patch import find_owner
from pyprof.nvtx.targets import NAMESPACES


class Recorder:
    """Keeps every range in the order in which it began, each with the ranges open around it."""

    def __init__(self) -> None:
        self.registry = Registry(self, max_texts=1_000_000, max_bytes=1_000_000_000)
        self.texts: list[str] = []
        self.nested: list[tuple[str, ...]] = []
        self._local = threading.local()
        self.open = 0
        self._lock = threading.Lock()

    def prepare(self, text: str) -> str:
        return text

    def push(self, text: str) -> None:
        stack = self._local.__dict__.setdefault("stack", [])
        with self._lock:
            self.texts.append(text)
            self.nested.append(tuple(stack))
            self.open += 1
        stack.append(text)

    def pop(self) -> None:
        self._local.stack.pop()
        with self._lock:
            self.open -= 1

    def clear(self) -> None:
        self.texts.clear()
        self.nested.clear()

    @property
    def markers(self) -> list[Marker]:
        meaning = {text: markers.decode(text) for text in set(self.texts)}
        found = [meaning[text] for text in self.texts if not text.startswith("enumerate(DataLoader)#")]  # in torch's words
        assert all(m.own for m in found), [m.text for m in found if not m.own]
        return found

    def ops(self) -> list[str]:
        return [m.call.name for m in self.markers if m.call is not None]

    def calls(self) -> list[str]:
        return [str(m.call) for m in self.markers if m.call is not None]

    def layers(self) -> list[str]:
        return [m.name for m in self.markers if m.kind is Kind.LAYER]

    def of(self, name: str) -> list[Marker]:
        return [m for m in self.markers if m.call is not None and m.call.name == name]


_CLASSES = ("torch.nn.Module", "torch.optim.Optimizer", "torch._ops.OpOverload", "torch._ops.OpOverloadPacket")
_CLASSES += ("torch.utils.data.dataloader._BaseDataLoaderIter",)


def _owners() -> list[Any]:
    paths = sorted({space.where for space in NAMESPACES} | set(_CLASSES))
    return [(path, owner) for path in paths if (owner := find_owner(path)) is not None]


def snapshot() -> dict[tuple[str, str], Any]:
    """Every attribute that the owners of targets hold themselves, less what Python's own copying leaves in a class."""
    return {
        (path, name): value for path, owner in _owners() for name, value in list(vars(owner).items()) if name != "__slotnames__"
    }


def differences(before: dict[tuple[str, str], Any], after: dict[tuple[str, str], Any]) -> list[tuple[str, str]]:
    """What is another object than before; modules that torch itself loads when first used are new, not different."""
    gone = [key for key in before if key not in after]
    changed = [key for key, value in before.items() if key in after and after[key] is not value]
    added = [key for key in after if key not in before and not isinstance(after[key], type(torch))]
    return sorted(gone + changed + added)
