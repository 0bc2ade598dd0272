"""What each fused C++ kernel of modules that TorchInductor generated touches, found by running it: an oracle for its bytes.

TORCHINDUCTOR_CACHE_DIR=CACHE python kernel_truth.py MODULE.py...

Prints {module: {kernel: [bytes read, bytes written]}}. An element is written where running the kernel changes it, whatever it held before;
a part of a buffer is read where other contents of it lead to other results. No source is looked at.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

_FILLS = 4
_LARGE, _PARTS = 2048, 32  # of a buffer of more elements than that so many parts are tried, else each element
_Storages = dict[int, torch.Tensor]


def _record(path: str) -> dict[str, tuple[Callable[..., Any], list[torch.Tensor]]]:
    """Each fused kernel with the arguments of its first call."""
    spec = importlib.util.spec_from_file_location("compiled_module", path)
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    seen: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {}
    for name, kernel in [(name, kernel) for name, kernel in vars(module).items() if name.startswith("cpp_fused")]:

        def first(*tensors: torch.Tensor, name: str = name, kernel: Callable[..., Any] = kernel) -> None:
            seen.setdefault(name, (kernel, list(tensors)))
            kernel(*tensors)

        setattr(module, name, first)
    module.call(module.get_args())
    return seen


def _run(kernel: Callable[..., Any], tensors: list[torch.Tensor], held: _Storages) -> _Storages:
    """What the storages hold after the kernel ran on these contents."""
    after = {key: content.clone() for key, content in held.items()}
    kernel(*(torch.as_strided(after[t.data_ptr()], t.size(), t.stride(), 0) for t in tensors))
    return after


def _fill(t: torch.Tensor, count: int, low: float) -> torch.Tensor:
    """Contents of a tensor's memory; whole numbers stay among those that are there, since they may be indices."""
    if t.is_floating_point():
        return (torch.rand(count) + low).to(t.dtype)
    if t.dtype == torch.bool:
        return torch.rand(count) < 0.5
    return torch.randint(0, _most(t) + 1, (count,), dtype=t.dtype)


def _most(t: torch.Tensor) -> int:
    return max(int(t.max()), 1)


def _others(t: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """For contents of a tensor's memory others that differ in each element."""
    if t.is_floating_point():
        return _fill(t, len(part), 2)
    if t.dtype == torch.bool:
        return ~part
    return (part + 1) % (_most(t) + 1)


def truth(kernel: Callable[..., Any], tensors: list[torch.Tensor]) -> tuple[int, int]:
    """(bytes read, bytes written); tensors that share memory begin at the same place."""
    sizes = {t.data_ptr(): t for t in tensors}
    elements = {key: t.untyped_storage().nbytes() // t.element_size() for key, t in sizes.items()}

    def fill() -> _Storages:
        return {key: _fill(sizes[key], count, 0.5) for key, count in elements.items()}

    written = {key: torch.zeros(count, dtype=torch.bool) for key, count in elements.items()}
    for _ in range(_FILLS):
        held = fill()
        for key, content in _run(kernel, tensors, held).items():
            written[key] |= content != held[key]
    held = fill()
    before = _run(kernel, tensors, held)
    read = 0
    for key, t in sizes.items():
        for part in torch.arange(elements[key]).chunk(_PARTS if elements[key] > _LARGE else elements[key]):
            other = {**held, key: held[key].clone()}
            other[key][part] = _others(t, other[key][part])
            after = _run(kernel, tensors, other)
            if any(not torch.equal(after[k][written[k]], before[k][written[k]]) for k in sizes):
                read += len(part) * t.element_size()
    return read, sum(int(written[key].sum()) * t.element_size() for key, t in sizes.items())


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps({path: {name: truth(*found) for name, found in _record(path).items()} for path in sys.argv[1:]}))
