"""Converts messages to the JSON of Apache Kafka's generated converters: camelCase names, bytes in base64, ids in short
form."""

import base64
import json
import re
from typing import Any

from ottla.protocol.schema.fields import ArrayOf, Field, Fixed, StructOf, WireType
from ottla.protocol.schema.message import Struct

_AFTER_UNDERSCORE = re.compile(r"_(\w)")


def json_of(message: Struct, version: int) -> dict[str, Any]:
    """The fields of `version`, in their order; tagged fields only when they differ from their default."""
    found: dict[str, Any] = {}
    for field in message.SCHEMA.fields:
        value = getattr(message, field.name)
        if field.versions.cover(version) and (field.tag is None or value != field.make_default()):
            found[_camel_case(field)] = _json_value(field.type, value, version)
    return found


def compact_json(value: object) -> str:
    """The text without spaces, as Jackson prints it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _camel_case(field: Field) -> str:
    return _AFTER_UNDERSCORE.sub(lambda found: found.group(1).upper(), field.name)


def _json_value(kind: WireType, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayOf):
        return [_json_value(kind.element, element, version) for element in value]
    if isinstance(kind, StructOf):
        return json_of(value, version)
    if isinstance(kind, Fixed) and kind.name == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode()
    return value
