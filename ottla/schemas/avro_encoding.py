"""Encodes values of JSON in the binary encoding of Avro (specification 1.12): the opposite of `avro`, in whose form the values are.

A value of a union takes the first branch that it fits. A field that is missing gets the default of the schema.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from ottla.schemas.avro import MAX_DEPTH, AvroSchema, NotAvro

_INT: Final = range(-(2**31), 2**31)
_LONG: Final = range(-(2**63), 2**63)
_NAMED: Final = frozenset({"record", "error", "enum", "fixed", "array", "map"})


def encode_avro(schema: AvroSchema, value: Any) -> bytes:
    """The bytes of a value. Raises NotAvro if it does not fit the schema."""
    try:
        return _encoded(schema, schema.root, "", value, "value", 0)
    except (KeyError, TypeError, AttributeError):
        raise NotAvro("the schema is not one of Avro") from None


def _encoded(schema: AvroSchema, kind: Any, inside: str, value: Any, place: str, depth: int) -> bytes:
    if depth > MAX_DEPTH:
        raise NotAvro(f"{place} is nested more than {MAX_DEPTH} times")
    if isinstance(kind, list):
        for at, branch in enumerate(kind):
            try:
                return _long(at) + _encoded(schema, branch, inside, value, place, depth + 1)
            except NotAvro:
                continue
        raise NotAvro(f"{place} fits no branch of its union")
    name = kind if isinstance(kind, str) else kind["type"]
    if not isinstance(name, str):
        return _encoded(schema, name, inside, value, place, depth + 1)
    if name in _PRIMITIVES:
        return _PRIMITIVES[name](value, place)
    if isinstance(kind, str) or name not in _NAMED:
        return _encoded(schema, schema.named(name, inside), inside, value, place, depth + 1)
    inside = schema.namespace_of(kind, inside)
    if name == "enum":
        if value not in kind["symbols"]:
            raise NotAvro(f"{place} is no symbol of {kind['name']}")
        return _long(kind["symbols"].index(value))
    if name == "fixed":
        data = _bytes_of(value, place)
        if len(data) != int(kind["size"]):
            raise NotAvro(f"{place} has {len(data)} bytes instead of {kind['size']}")
        return data
    if name == "array":
        if not isinstance(value, list):
            raise NotAvro(f"{place} is no array")
        items = [_encoded(schema, kind["items"], inside, each, f"{place}[{at}]", depth + 1) for at, each in enumerate(value)]
        return _block(items)
    if not isinstance(value, dict):
        raise NotAvro(f"{place} is no object")
    if name == "map":
        values = kind["values"]
        return _block(
            [_text(key, place) + _encoded(schema, values, inside, each, f"{place}.{key}", depth + 1) for key, each in value.items()]
        )
    return _fields(schema, kind, inside, value, place, depth)


def _fields(schema: AvroSchema, kind: Any, inside: str, value: dict[str, Any], place: str, depth: int) -> bytes:
    names = [field["name"] for field in kind["fields"]]
    if unknown := [name for name in value if name not in names]:
        raise NotAvro(f"{place} has {unknown[0]!r}, which is no field of {kind['name']}")
    found = b""
    for field in kind["fields"]:
        name = field["name"]
        if name not in value and "default" not in field:
            raise NotAvro(f"{place} has no {name!r}, and the schema has no default for it")
        found += _encoded(schema, field["type"], inside, value.get(name, field.get("default")), f"{place}.{name}", depth + 1)
    return found


def _block(items: list[bytes]) -> bytes:
    return (_long(len(items)) + b"".join(items) if items else b"") + b"\0"


def _long(value: int) -> bytes:
    left = (value << 1) ^ (value >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*found, left))


def _null(value: Any, place: str) -> bytes:
    if value is not None:
        raise NotAvro(f"{place} is not null")
    return b""


def _boolean(value: Any, place: str) -> bytes:
    if not isinstance(value, bool):
        raise NotAvro(f"{place} is neither true nor false")
    return bytes([value])


def _integer(value: Any, place: str, span: range) -> bytes:
    if type(value) is not int or value not in span:
        raise NotAvro(f"{place} is no integer of {span.stop.bit_length()} bits")
    return _long(value)


def _floating(value: Any, place: str, layout: str) -> bytes:
    if isinstance(value, bool):  # a number for `struct`
        raise NotAvro(f"{place} is no number")
    try:
        return struct.pack(layout, float(value) if value in ("inf", "-inf", "nan") else value)
    except (struct.error, OverflowError):
        raise NotAvro(f"{place} is no number, or too large") from None


def _bytes_of(value: Any, place: str) -> bytes:
    if isinstance(value, str):  # the form of a default in a schema
        try:
            return value.encode("iso-8859-1")
        except UnicodeEncodeError:
            raise NotAvro(f"{place} has characters that are no bytes") from None
    try:
        return bytes.fromhex(value["$bytes"])
    except (ValueError, KeyError, TypeError):
        raise NotAvro(f'{place} is not {{"$bytes": HEX}}') from None


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data


def _text(value: Any, place: str) -> bytes:
    if not isinstance(value, str):
        raise NotAvro(f"{place} is no text")
    return _sized(value.encode(errors="surrogatepass"))


_PRIMITIVES: Final = {
    "null": _null,
    "boolean": _boolean,
    "int": lambda value, place: _integer(value, place, _INT),
    "long": lambda value, place: _integer(value, place, _LONG),
    "float": lambda value, place: _floating(value, place, "<f"),
    "double": lambda value, place: _floating(value, place, "<d"),
    "bytes": lambda value, place: _sized(_bytes_of(value, place)),
    "string": _text,
}
