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


def truth(kernel: Callable[..., Any], tensors: list[torch.Tensor]) -> tuple[int, int]:
    """(bytes read, bytes written); all tensors are floats, and those that share memory begin at the same place."""
    sizes = {t.data_ptr(): t for t in tensors}
    elements = {key: t.untyped_storage().nbytes() // t.element_size() for key, t in sizes.items()}

    def fill() -> _Storages:
        return {key: torch.rand(count) + 0.5 for key, count in elements.items()}

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
            other[key][part] = torch.rand(len(part)) + 2
            after = _run(kernel, tensors, other)
            if any(not torch.equal(after[k][written[k]], before[k][written[k]]) for k in sizes):
                read += len(part) * t.element_size()
    return read, sum(int(written[key].sum()) * t.element_size() for key, t in sizes.items())


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps({path: {name: truth(*found) for name, found in _record(path).items()} for path in sys.argv[1:]}))
