"""Decodes the binary encoding of Avro (specification 1.12) by the schema that wrote it, into values that JSON can show.

Logical types appear as their stored values. Bytes become `{"$bytes": HEX}`.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

MAX_DEPTH: Final = 100
"""Nesting of values."""
MAX_VALUES: Final = 200_000
"""Values in a record, so that arrays of values without bytes end."""
_LONGEST_LONG: Final = 10
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})


class NotAvro(ValueError):
    """The bytes do not fit the schema, or the schema is none."""


class AvroSchema:
    """A parsed schema, with its named types by full name. Raises NotAvro."""

    def __init__(self, schema: Any) -> None:
        self.root = schema
        self._named: dict[str, Any] = {}
        self._spaces: dict[int, str] = {}
        self._collect(schema, "", 0)

    def named(self, name: str, inside: str) -> Any:
        """The type of a name that is used inside of a namespace. Raises NotAvro."""
        for full in (f"{inside}.{name}" if inside else name, name):
            if full in self._named:
                return self._named[full]
        raise NotAvro(f"the schema does not define the type {name[:100]}")

    def namespace_of(self, schema: dict[str, Any], inside: str) -> str:
        """The namespace for names inside of a type."""
        return self._spaces.get(id(schema), inside)

    def _collect(self, schema: Any, inside: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise NotAvro("the schema is nested too deeply")
        if isinstance(schema, list):
            for each in schema:
                self._collect(each, inside, depth + 1)
        elif isinstance(schema, dict):
            if schema.get("type") in _NAMED:
                inside = self._note(schema, inside)
            for part in (schema.get("type"), schema.get("items"), schema.get("values")):
                if isinstance(part, dict | list):
                    self._collect(part, inside, depth + 1)
            for each in schema.get("fields") or ():
                self._collect(each.get("type") if isinstance(each, dict) else None, inside, depth + 1)

    def _note(self, schema: dict[str, Any], inside: str) -> str:
        name = str(schema.get("name"))
        space = str(schema.get("namespace") or inside)
        if "." in name:
            space = name.rpartition(".")[0]
        elif space:
            name = f"{space}.{name}"
        self._named[name] = schema
        self._spaces[id(schema)] = space
        return space


def decode_avro(schema: AvroSchema, data: bytes) -> Any:
    """The value that the bytes encode. Raises NotAvro."""
    reader = _Reader(schema, data)
    try:
        found = reader.value(schema.root, "", 0)
    except (KeyError, TypeError, AttributeError):
        raise NotAvro("the schema is not one of Avro") from None
    if reader.at != len(data):
        raise NotAvro(f"after the value of the schema there are {len(data) - reader.at} bytes more")
    return found


class _Reader:
    def __init__(self, schema: AvroSchema, data: bytes) -> None:
        self._schema = schema
        self._data = data
        self._left = MAX_VALUES
        self.at = 0

    def value(self, schema: Any, inside: str, depth: int) -> Any:
        """The next value. Raises NotAvro."""
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            raise NotAvro(f"the value is nested more than {MAX_DEPTH} times, or has more than {MAX_VALUES} parts")
        if isinstance(schema, list):
            at = self._long()
            if not 0 <= at < len(schema):
                raise NotAvro(f"the union has no branch {at}")
            return self.value(schema[at], inside, depth + 1)
        kind = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(kind, str):
            return self.value(kind, inside, depth + 1)
        if kind in _PRIMITIVES:
            return self._primitive(kind)
        if isinstance(schema, str) or kind not in {*_NAMED, "array", "map"}:
            return self.value(self._schema.named(kind, inside), inside, depth + 1)
        inside = self._schema.namespace_of(schema, inside)
        if kind in ("record", "error"):
            return {str(field["name"]): self.value(field["type"], inside, depth + 1) for field in schema["fields"]}
        if kind == "enum":
            return self._symbol(schema["symbols"])
        if kind == "fixed":
            return {"$bytes": self._take(int(schema["size"])).hex()}
        if kind == "array":
            return [self.value(schema["items"], inside, depth + 1) for _ in self._blocks()]
        return {str(self._primitive("string")): self.value(schema["values"], inside, depth + 1) for _ in self._blocks()}

    def _blocks(self) -> Any:
        """Yields once for each item of an array or a map."""
        while count := self._long():
            if count < 0:
                self._long()  # the size of the block in bytes
            for _ in range(abs(count)):
                yield None

    def _symbol(self, symbols: list[Any]) -> str:
        at = self._long()
        if not 0 <= at < len(symbols):
            raise NotAvro(f"the enum has no symbol {at}")
        return str(symbols[at])

    def _primitive(self, kind: str) -> Any:
        if kind == "null":
            return None
        if kind == "boolean":
            return self._take(1) != b"\0"
        if kind in ("int", "long"):
            return self._long()
        if kind in ("float", "double"):
            (found,) = struct.unpack("<f" if kind == "float" else "<d", self._take(4 if kind == "float" else 8))
            return found if math.isfinite(found) else str(found)  # JSON has no infinity
        data = self._take(self._long())
        if kind == "bytes":
            return {"$bytes": data.hex()}
        return data.decode("utf-8", "replace")

    def _long(self) -> int:
        found = 0
        for at in range(_LONGEST_LONG):
            byte = self._take(1)[0]
            found |= (byte & 0x7F) << (7 * at)
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
        raise NotAvro("a number has more than 64 bits")

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self.at:
            raise NotAvro("the bytes end before the value of the schema")
        found = self._data[self.at : self.at + size]
        self.at += size
        return found
