"""Decodes the binary encoding of Protocol Buffers (protobuf.dev, "Encoding") by a .proto file, into values that JSON can show.

Fields have the names of the file. A field that the file does not have is `#NUMBER`. Bytes, and messages of other files, become
`{"$bytes": HEX}`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, Final

from ottla.schemas.proto_file import ProtoField, ProtoFile, ProtoMessage

MAX_DEPTH: Final = 100
"""Nesting of messages."""
MAX_VALUES: Final = 200_000
"""Values in a record."""
_LONGEST_VARINT: Final = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_MOST_INDEXES: Final = 100


class NotProtobuf(ValueError):
    """The bytes do not fit the schema."""


def _signed(bits: int) -> Callable[[int], int]:
    def convert(value: int) -> int:
        value &= (1 << bits) - 1
        return value - (1 << bits) if value >> (bits - 1) else value

    return convert


def _zigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


_OF_VARINT: Final[dict[str, Callable[[int], int | bool]]] = {
    "int32": _signed(32), "int64": _signed(64), "uint32": lambda value: value & 0xFFFFFFFF, "uint64": lambda value: value,
    "sint32": _zigzag, "sint64": _zigzag, "bool": bool,
}  # fmt: skip
_OF_FIXED: Final = {
    "fixed32": (_FIXED32, "<I"), "sfixed32": (_FIXED32, "<i"), "float": (_FIXED32, "<f"),
    "fixed64": (_FIXED64, "<Q"), "sfixed64": (_FIXED64, "<q"), "double": (_FIXED64, "<d"),
}  # fmt: skip


def decode_protobuf(file: ProtoFile, data: bytes) -> Any:
    """The message in a record of a registry: indexes, which lead to its type in the file, and then the message. Raises NotProtobuf."""
    reader = _Reader(file, data)
    return reader.message(_message_at(file, reader.indexes()), len(data), 0)


def _message_at(file: ProtoFile, indexes: list[int]) -> ProtoMessage:
    level, found = file.top, None
    for index in indexes:
        if not 0 <= index < len(level):
            raise NotProtobuf(f"the .proto file has no message {'/'.join(map(str, indexes))}")
        found = level[index]
        level = found.nested
    assert found is not None, "there is an index"
    return found


class _Reader:
    def __init__(self, file: ProtoFile, data: bytes) -> None:
        self._file = file
        self._data = data
        self._at = 0
        self._left = MAX_VALUES

    def indexes(self) -> list[int]:
        """The way to the message: its place in the file, then in that message. A count of 0 stands for the first one of the file."""
        count = _zigzag(self._varint(len(self._data)))
        if not 0 <= count <= _MOST_INDEXES:
            raise NotProtobuf("these bytes do not begin with the indexes of a message")
        return [_zigzag(self._varint(len(self._data))) for _ in range(count)] or [0]

    def message(self, message: ProtoMessage, end: int, depth: int) -> dict[str, Any]:
        """The fields up to a position. Raises NotProtobuf."""
        if depth > MAX_DEPTH:
            raise NotProtobuf(f"more than {MAX_DEPTH} messages are nested")
        found: dict[str, Any] = {}
        while self._at < end:
            key = self._varint(end)
            number, wire_type = key >> 3, key & 7
            known = message.fields.get(number)
            if known is None:
                found.setdefault(f"#{number}", []).append(self._unknown(wire_type, end))
                continue
            values = self._values(known, wire_type, end, depth)
            if known.is_map:
                of_map = found.setdefault(known.name, {})
                of_map.update((_key_text(entry.get("key")), entry.get("value")) for entry in values)
            elif known.is_repeated:
                found.setdefault(known.name, []).extend(values)
            elif values:
                found[known.name] = values[-1]  # the last one wins
        self._check_end(end)
        return found

    def _values(self, known: ProtoField, wire_type: int, end: int, depth: int) -> list[Any]:
        """The value at this place, or the values if they are packed."""
        if known.type in _OF_FIXED:
            wanted, layout = _OF_FIXED[known.type]
            return [self._fixed(layout) for _ in self._places(wanted, wire_type, end)]
        if known.type in _OF_VARINT or known.type in self._file.enums:
            return [self._number(known.type, last) for last in self._places(_VARINT, wire_type, end)]
        if wire_type != _BYTES:
            raise NotProtobuf(f"the field {known.name} has the wire type {wire_type}, which is not that of {known.type}")
        last = self._end_of_bytes(end)
        inner = self._file.messages.get(known.type)
        if inner is not None:
            return [self.message(inner, last, depth + 1)]
        data = self._take(last - self._at)
        return [data.decode("utf-8", "replace") if known.type == "string" else {"$bytes": data.hex()}]

    def _places(self, wanted: int, wire_type: int, end: int) -> Any:
        """Yields once for each number: one, or those of a packed field. Yields the position that it must not pass."""
        if wire_type == wanted:
            yield end
        elif wire_type == _BYTES:
            last = self._end_of_bytes(end)
            while self._at < last:
                yield last
            self._check_end(last)
        else:
            raise NotProtobuf(f"a number has the wire type {wire_type} instead of {wanted}")

    def _number(self, kind: str, end: int) -> Any:
        value = self._varint(end)
        self._count()
        if kind in _OF_VARINT:
            return _OF_VARINT[kind](value)
        number = _signed(32)(value)
        return self._file.enums[kind].get(number, number)

    def _fixed(self, layout: str) -> Any:
        (found,) = struct.unpack(layout, self._take(struct.calcsize(layout)))
        return found if isinstance(found, int) or math.isfinite(found) else str(found)  # JSON has no infinity

    def _unknown(self, wire_type: int, end: int) -> Any:
        if wire_type == _VARINT:
            self._count()
            return self._varint(end)
        if wire_type == _BYTES:
            return {"$bytes": self._take(self._end_of_bytes(end) - self._at).hex()}
        if wire_type in _SIZES:
            return {"$bytes": self._take(_SIZES[wire_type]).hex()}
        raise NotProtobuf(f"the wire type {wire_type} is not read")

    def _end_of_bytes(self, end: int) -> int:
        size = self._varint(end)
        self._count()
        if size > end - self._at:
            raise NotProtobuf("the bytes end before the value of the schema")
        return self._at + size

    def _check_end(self, end: int) -> None:
        if self._at != end:
            raise NotProtobuf("a value does not end where the part that it is in ends")

    def _varint(self, end: int) -> int:
        found = 0
        for at in range(_LONGEST_VARINT):
            if self._at >= end:
                break
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << (7 * at)
            if byte < 0x80:
                return found & 0xFFFFFFFFFFFFFFFF
        raise NotProtobuf("a number does not end")

    def _take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise NotProtobuf("the bytes end before the value of the schema")
        self._at += size
        self._count()
        return found

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise NotProtobuf(f"the message has more than {MAX_VALUES} parts")


def _key_text(key: object) -> str:
    """The key of a map in JSON, where it is text; the default of a key that is left out is not known, and is empty."""
    return "" if key is None else str(key).lower() if isinstance(key, bool) else str(key)
