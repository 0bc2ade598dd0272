"""Named tuples that are declared as classes are, without `typing`'s look at their annotations.

`typing.NamedTuple` compiles every annotation: two thirds of the time that making such a class takes, and a command makes up to
a hundred of them. To a type checker these are `typing.NamedTuple`.
"""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
    from typing import NamedTuple as NamedTuple
else:

    class _Declared(type):
        """Makes a named tuple of the body of a class: annotated names are fields, their values defaults, the rest methods."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:  # NamedTuple itself
                return super().__new__(cls, name, bases, body)
            fields = body.pop("__annotations__")
            given = [field for field in fields if field in body]
            if given != list(fields)[len(fields) - len(given) :]:
                raise TypeError(f"{name}: a field without a default follows one that has it")
            defaults = [body.pop(field) for field in given]
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            made.__annotations__ = made.__new__.__annotations__ = fields
            for attribute, value in body.items():
                if attribute not in ("__module__", "__qualname__"):
                    setattr(made, attribute, value)
            return made

    class NamedTuple(metaclass=_Declared):
        """Base of a class whose annotated names are the fields of a tuple."""
