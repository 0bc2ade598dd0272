"""What takes the place of a C function: calls the wrapper, and is equal to the function that it stands for.

Programs and torch itself keep tables keyed by functions (`HANDLED[torch.add]` of a `__torch_function__`, the patterns of FX
quantization, what torch.compile knows), some filled before the patching and some after, while torch's C++ delivers now the one
and now the other. Since a stand-in has the hash of its original and equals it, each finds the entry of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

__all__ = ["StandIn"]


class StandIn(partial):  # type: ignore[type-arg]
    """A callable that runs `wrapper` and passes for `orig`; a subclass of partial, since that is called without Python code.

    module, qualname: where pickle finds it.
    """

    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    def __new__(cls, wrapper: Callable[..., Any], orig: Callable[..., Any], module: str, qualname: str) -> StandIn:
        """Stand in for `orig`."""
        self = super().__new__(cls, wrapper)
        self.__wrapped__ = orig
        self.__name__ = getattr(orig, "__name__", qualname.rpartition(".")[2])
        self.__module__, self.__qualname__ = module, qualname
        self.__doc__ = orig.__doc__
        return self

    def __eq__(self, other: object) -> bool:
        return self is other or other is self.__wrapped__

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self.func, instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __reduce__(self) -> str:
        return self.__qualname__

    def __reduce_ex__(self, protocol: Any) -> str:
        return self.__qualname__
