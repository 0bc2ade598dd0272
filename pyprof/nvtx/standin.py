"""The replacement of a C function: it calls the wrapper, and compares equal to the original.

Programs and torch itself keep tables whose keys are functions (`HANDLED[torch.add]` of a `__torch_function__`, the patterns of
FX quantization, what torch.compile knows), some filled before the patching and some after, and torch's C++ passes sometimes the
original, sometimes the stand-in. A stand-in has the hash of its original and equals it, so that each finds the entry of the
other; its `__class__` is the original's, so that `isinstance` and `inspect` see the original.
"""

from __future__ import annotations

from types import MethodType
from typing import Any, NoReturn, SupportsIndex

from pyprof.nvtx.traceback import Function

_wrapper: Any = vars(staticmethod)["__func__"].__get__
_SHOWN = ("__module__", "__name__", "__qualname__", "__doc__")


class _Absent:
    """An attribute of the class that its instances lack, as the original does."""

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        raise AttributeError


class StandIn(staticmethod):  # type: ignore[type-arg]
    """A callable that runs `wrapper` and looks like `orig`; a staticmethod, since calling one runs no Python code.

    As an attribute of a class it binds where the original would: a method descriptor does, a builtin function does not.
    home: the class whose method it is, where pickle looks it up.
    """

    _pyprof_original: Function
    _pyprof_home: type | None

    def __init__(self, wrapper: Function, orig: Function, home: type | None = None) -> None:
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

    @property
    def __func__(self) -> Function:
        return self._pyprof_original  # for whoever takes this for a staticmethod, as torch.compile does from 2.14 on

    def __eq__(self, other: object) -> bool:
        return self is other or bool(self._pyprof_original == original(other))

    def __hash__(self) -> int:
        return hash(self._pyprof_original)

    def __get__(self, instance: object, owner: type | None = None) -> Function:
        return self if instance is None or not self._pyprof_binds else MethodType(_wrapper(self), instance)

    def __getattr__(self, name: str) -> object:
        return getattr(self._pyprof_original, name)

    def __repr__(self) -> str:
        return repr(self._pyprof_original)

    def __copy__(self) -> StandIn:
        return self

    def __deepcopy__(self, memo: object) -> StandIn:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[object, ...]:
        if self._pyprof_home is not None:
            return getattr, (self._pyprof_home, self.__name__)
        return self._pyprof_original.__reduce_ex__(protocol)


def original(value: object) -> object:
    """The original of a stand-in; any other object itself."""
    return value._pyprof_original if type(value) is StandIn else value
