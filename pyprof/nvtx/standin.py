"""What takes the place of a C function: calls the wrapper, and is equal to the function that it stands for.

Programs and torch itself keep tables keyed by functions (`HANDLED[torch.add]` of a `__torch_function__`, the patterns of FX
quantization, what torch.compile knows), some filled before the patching and some after, while torch's C++ delivers now the one
and now the other. Since a stand-in has the hash of its original and equals it, each finds the entry of the other; since its
`__class__` is the original's, `isinstance` and `inspect` take it for what it stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

__all__ = ["StandIn", "original"]

_SHOWN = ("__module__", "__name__", "__qualname__", "__doc__")


class _Absent:
    """An attribute that the class has and its instances have not: where the original has none either."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        raise AttributeError


class StandIn(staticmethod):  # type: ignore[type-arg]
    """A callable that runs `wrapper` and passes for `orig`; a staticmethod, since that is called without Python code.

    As an attribute of a class it binds where the original would: a method descriptor does, a builtin function does not.
    home: the class whose method it is, where pickle shall find it rather than where the original is kept.
    """

    _pyprof_original: Callable[..., Any]
    _pyprof_home: type | None

    def __init__(self, wrapper: Callable[..., Any], orig: Callable[..., Any], home: type | None = None) -> None:
        super().__init__(wrapper)
        here = vars(self)
        here.clear()  # what staticmethod copies from the wrapper
        here.update(_pyprof_original=orig, _pyprof_home=home, _pyprof_binds=hasattr(orig, "__get__"))
        here.update({name: getattr(orig, name) for name in _SHOWN if hasattr(orig, name)})

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._pyprof_original)

    __module__: Any = _Absent()
    __wrapped__: Any = _Absent()

    def __eq__(self, other: object) -> bool:
        return self is other or bool(self._pyprof_original == original(other))

    def __hash__(self) -> int:
        return hash(self._pyprof_original)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None or not self._pyprof_binds else MethodType(self.__func__, instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pyprof_original, name)

    def __repr__(self) -> str:
        return repr(self._pyprof_original)

    def __copy__(self) -> StandIn:
        return self

    def __deepcopy__(self, memo: Any) -> StandIn:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._pyprof_home is not None:
            return getattr, (self._pyprof_home, self.__name__)
        return self._pyprof_original.__reduce_ex__(protocol)


def original(value: Any) -> Any:
    """What a stand-in stands for; anything else as it is."""
    return value._pyprof_original if type(value) is StandIn else value
