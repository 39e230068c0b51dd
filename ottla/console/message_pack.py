"""Decodes MessagePack (github.com/msgpack/msgpack, spec.md) into values that JSON can show.

Bytes become `{"$bytes": HEX}` and extensions `{"$type": N, "$bytes": HEX}`. The result has no more values than the
input has bytes.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, Final

MAX_DEPTH: Final = 100
"""Nesting of arrays and maps."""
_NUMBERS: Final = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
_BYTES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_EXTENSIONS: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSIONS: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_TEXTS: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_ARRAYS: Final = {0xDC: 2, 0xDD: 4}
_MAPS: Final = {0xDE: 2, 0xDF: 4}


class NotMessagePack(ValueError):
    """The bytes are not one value of MessagePack."""


def decode_message_pack(data: bytes) -> Any:
    """The one value in the bytes. Raises NotMessagePack."""
    reader = _Reader(data)
    found = reader.value(0)
    if reader.at != len(data):
        raise NotMessagePack(f"after the value of MessagePack there are {len(data) - reader.at} bytes more")
    return found


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def value(self, depth: int) -> Any:
        """The next value. Raises NotMessagePack."""
        if depth > MAX_DEPTH:
            raise NotMessagePack(f"more than {MAX_DEPTH} arrays and maps are nested")
        kind = self._take(1)[0]
        if kind < 0x80 or kind >= 0xE0:
            return kind if kind < 0x80 else kind - 0x100
        if kind < 0x90:
            return self._map(kind & 0x0F, depth)
        if kind < 0xA0:
            return self._array(kind & 0x0F, depth)
        if kind < 0xC0:
            return self._text(kind & 0x1F)
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind in _TEXTS:
            return self._text(self._length(_TEXTS[kind]))
        if kind in _ARRAYS:
            return self._array(self._length(_ARRAYS[kind]), depth)
        if kind in _MAPS:
            return self._map(self._length(_MAPS[kind]), depth)
        if kind in _BYTES:
            return {"$bytes": self._take(self._length(_BYTES[kind])).hex()}
        if kind in _EXTENSIONS or kind in _FIXED_EXTENSIONS:
            length = self._length(_EXTENSIONS[kind]) if kind in _EXTENSIONS else _FIXED_EXTENSIONS[kind]
            (code,) = struct.unpack(">b", self._take(1))
            return {"$type": code, "$bytes": self._take(length).hex()}
        raise NotMessagePack(f"the byte {kind:#x} begins no value of MessagePack")

    def _number(self, layout: str) -> int | float | str:
        (found,) = struct.unpack(layout, self._take(struct.calcsize(layout)))
        assert isinstance(found, int | float)
        return found if math.isfinite(found) else str(found)  # JSON has no infinity

    def _length(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def _text(self, length: int) -> str | dict[str, str]:
        data = self._take(length)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"$bytes": data.hex()}

    def _array(self, length: int, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in range(self._count(length))]

    def _map(self, length: int, depth: int) -> dict[str, Any]:
        found = {}
        for _ in range(self._count(2 * length) // 2):
            key = self.value(depth + 1)
            found[key if isinstance(key, str) else json.dumps(key)] = self.value(depth + 1)
        return found

    def _count(self, length: int) -> int:
        """A number of values, each of which has a byte at least."""
        if length > len(self._data) - self.at:
            raise NotMessagePack("the bytes end before the value of MessagePack")
        return length

    def _take(self, size: int) -> bytes:
        found = self._data[self.at : self.at + size]
        if len(found) < size:
            raise NotMessagePack("the bytes end before the value of MessagePack")
        self.at += size
        return found
