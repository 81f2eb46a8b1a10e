"""The wire format of Protocol Buffers, as far as single fields can be read without a schema.

A message is a sequence of (field number, wire type, value): 0 varint, 1 eight bytes, 2 bytes with
their length, 5 four bytes. https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

Value = int | bytes


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """(field number, value) in order: int for varints, bytes for all others. ValueError where it is not a message."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > end:
            raise ValueError("a field reaches beyond its message")
        yield number, message[at : at + size]
        at += size


def child(value: Value) -> bytes:
    """The bytes of a field; ValueError for a varint."""
    if isinstance(value, int):
        raise ValueError("a number where a message should be")
    return value


def text(value: Value) -> str:
    """The text of a field, decoded as UTF-8."""
    return child(value).decode("utf-8", "replace")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("a varint does not end")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
