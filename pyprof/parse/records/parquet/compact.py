"""Thrift's compact protocol, in which the footer of a Parquet file is written: bytes <-> structs, whatever they mean.

A struct is a list of its fields in their order, each [id, type, value], so that what was read is written as the same bytes; one
inside another may stand there as its bytes. No map is read: footers have none. The format is
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Struct = list[list[Any]]

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_INTEGERS = (_I16, _I32, _I64)
_LONG = 15  # a difference of ids, or a number of items, that stands in bytes of its own from here on
_DOUBLE_BYTES = 8


def field(struct: Struct, number: int) -> list[Any] | None:
    """The field of a struct with this id."""
    return next((found for found in struct if found[0] == number), None)


# ---------------------------------------------------------------------------------------------- bytes -> structs


class Reader:
    """Reads structs from bytes. Raises IndexError where these end too early, ValueError for what footers do not hold."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, 0

    def struct(self) -> Struct:
        """The struct that begins here."""
        fields: Struct = []
        number = 0
        while head := self._byte():
            step, kind = divmod(head, 16)
            number = number + step if step else self._integer()
            fields.append([number, kind, self._value(kind)])
        return fields

    def _byte(self) -> int:
        value = self._raw[self._at]
        self._at += 1
        return value

    def _unsigned(self) -> int:
        value = shift = 0
        while (byte := self._byte()) >= 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def _integer(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)

    def _bytes(self, size: int) -> bytes:
        begin, self._at = self._at, self._at + size
        if self._at > len(self._raw):
            raise IndexError("a text is cut short")
        return self._raw[begin : self._at]

    def _value(self, kind: int) -> Any:
        if kind in _INTEGERS:
            return self._integer()
        if kind == _BINARY:
            return self._bytes(self._unsigned())
        if kind == _STRUCT:
            return self.struct()
        if kind in (_LIST, _SET):
            size, of = divmod(self._byte(), 16)
            size = self._unsigned() if size == _LONG else size
            return [of, [self._value(_BYTE if of in (_TRUE, _FALSE) else of) for _ in range(size)]]
        if kind in (_TRUE, _FALSE):
            return None  # the type says it
        if kind in (_BYTE, _DOUBLE):
            return self._bytes(_DOUBLE_BYTES if kind == _DOUBLE else 1)
        raise ValueError(f"type {kind} in a footer")


# ---------------------------------------------------------------------------------------------- structs -> bytes


def written(struct: Struct) -> bytes:
    """A struct as bytes."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def _write_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for number, kind, value in struct:
        if 0 < number - before <= _LONG:
            out.append(number - before << 4 | kind)
        else:
            out.append(kind)
            _write_integer(out, number)
        _write_value(out, kind, value)
        before = number
    out.append(0)


def _write_unsigned(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_integer(out: bytearray, value: int) -> None:
    _write_unsigned(out, value << 1 if value >= 0 else ~(value << 1))


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _write_integer(out, value)
    elif kind == _BINARY:
        _write_unsigned(out, len(value))
        out += value
    elif kind == _STRUCT:
        if isinstance(value, bytes):
            out += value
        else:
            _write_struct(out, value)
    elif kind in (_LIST, _SET):
        of, items = value
        _write_items(out, of, items)
    elif kind in (_BYTE, _DOUBLE):
        out += value


def _write_items(out: bytearray, of: int, items: Iterable[Any]) -> None:
    items = list(items)
    if len(items) < _LONG:
        out.append(len(items) << 4 | of)
    else:
        out.append(_LONG << 4 | of)
        _write_unsigned(out, len(items))
    for item in items:
        _write_value(out, _BYTE if of in (_TRUE, _FALSE) else of, item)
