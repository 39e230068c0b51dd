"""Messages from plain dictionaries, for tables of requests and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.protocol.schema.fields import ArrayOf, StructOf, WireType


def message(cls: type[Any], fields: Mapping[str, Any]) -> Any:
    """A message or structure with these fields; lists of dictionaries become lists of its structures."""
    types = {field.name: field.type for field in cls.SCHEMA.fields}
    return cls(**{name: _value(types[name], value) for name, value in fields.items()})


def _value(wire_type: WireType, value: Any) -> Any:
    if isinstance(wire_type, ArrayOf) and value is not None:
        elements = [_value(wire_type.element, each) for each in value]
        return tuple(elements) if wire_type.is_tuple else elements
    if isinstance(wire_type, StructOf) and isinstance(value, Mapping):
        return message(wire_type.cls, value)
    return value
