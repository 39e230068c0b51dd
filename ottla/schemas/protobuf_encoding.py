"""Encodes values of JSON in the binary encoding of Protocol Buffers: the opposite of `protobuf`, in whose form the values are.

Repeated numbers are not packed; readers accept both forms. The message is the first one of the file.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from ottla.schemas.proto_file import ProtoField, ProtoFile, ProtoMessage
from ottla.schemas.protobuf import MAX_DEPTH, NotProtobuf

_FIRST_MESSAGE: Final = b"\0"
"""The short form of the indexes [0], by which a registry's record begins."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED: Final = {
    "fixed32": (_FIXED32, "<I"), "sfixed32": (_FIXED32, "<i"), "float": (_FIXED32, "<f"),
    "fixed64": (_FIXED64, "<Q"), "sfixed64": (_FIXED64, "<q"), "double": (_FIXED64, "<d"),
}  # fmt: skip
_SPANS: Final = {
    "int32": range(-(2**31), 2**31), "sint32": range(-(2**31), 2**31), "uint32": range(2**32),
    "int64": range(-(2**63), 2**63), "sint64": range(-(2**63), 2**63), "uint64": range(2**64),
}  # fmt: skip


def encode_protobuf(file: ProtoFile, value: Any) -> bytes:
    """The bytes of a registry's record after the id of the schema. Raises NotProtobuf if the value does not fit the first message."""
    if not file.top:
        raise NotProtobuf("the .proto file has no message")
    return _FIRST_MESSAGE + _message(file, file.top[0], value, "value", 0)


def _message(file: ProtoFile, message: ProtoMessage, value: Any, place: str, depth: int) -> bytes:
    if depth > MAX_DEPTH:
        raise NotProtobuf(f"{place} is nested more than {MAX_DEPTH} times")
    if not isinstance(value, dict):
        raise NotProtobuf(f"{place} is no object")
    numbers = {field.name: number for number, field in message.fields.items()}
    found = b""
    for name, each in value.items():
        if name not in numbers:
            raise NotProtobuf(f"{place} has {name!r}, which is no field of {message.name}")
        if each is not None:
            found += _field(file, numbers[name], message.fields[numbers[name]], each, f"{place}.{name}", depth)
    return found


def _field(file: ProtoFile, number: int, field: ProtoField, value: Any, place: str, depth: int) -> bytes:
    if field.is_map:
        if not isinstance(value, dict):
            raise NotProtobuf(f"{place} is no object")
        values: list[Any] = [{"key": key, "value": each} for key, each in value.items()]
    elif field.is_repeated:
        if not isinstance(value, list):
            raise NotProtobuf(f"{place} is no array")
        values = value
    else:
        values = [value]
    return b"".join(_single(file, number, field.type, each, place, depth) for each in values)


def _single(file: ProtoFile, number: int, kind: str, value: Any, place: str, depth: int) -> bytes:
    if kind in _FIXED:
        wire_type, layout = _FIXED[kind]
        if isinstance(value, bool):  # a number for `struct`
            raise NotProtobuf(f"{place} is no {kind}")
        try:
            plain = float(value) if kind in ("float", "double") and isinstance(value, str) else value
            return _varint(number << 3 | wire_type) + struct.pack(layout, _integer_text(plain))
        except (struct.error, OverflowError, ValueError):
            raise NotProtobuf(f"{place} is no {kind}") from None
    if kind in _SPANS or kind == "bool" or kind in file.enums:
        return _varint(number << 3 | _VARINT) + _varint(_number(file, kind, value, place))
    if kind in file.messages:
        data = _message(file, file.messages[kind], value, place, depth + 1)
    elif kind == "string":
        if not isinstance(value, str):
            raise NotProtobuf(f"{place} is no text")
        data = value.encode(errors="surrogatepass")
    else:
        try:
            data = bytes.fromhex(value["$bytes"])
        except (ValueError, KeyError, TypeError):
            raise NotProtobuf(f'{place} is not {{"$bytes": HEX}}') from None
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def _number(file: ProtoFile, kind: str, value: Any, place: str) -> int:
    """The number of a varint. 64-bit numbers, and keys of maps, may be text."""
    if kind == "bool":
        if value not in (True, False, "true", "false"):
            raise NotProtobuf(f"{place} is neither true nor false")
        return int(value in (True, "true"))
    if kind in file.enums:
        by_name = {name: number for number, name in file.enums[kind].items()}
        plain = by_name.get(value, value) if isinstance(value, str) else value
        kind = "int32"
    else:
        plain = _integer_text(value)
    if type(plain) is not int or plain not in _SPANS[kind]:
        raise NotProtobuf(f"{place} is no {kind}")
    if kind.startswith("sint"):
        return (plain << 1) ^ (plain >> 63)
    return plain & 0xFFFFFFFFFFFFFFFF


def _integer_text(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.removeprefix("-").isdecimal() else value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))
