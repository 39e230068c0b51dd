"""Shows the bytes of records: as text, JSON, MessagePack, by a schema of a registry, or as hexadecimal digits.

Decoders accept hostile bytes. The size of their results is bounded by that of the bytes, and results are truncated for the page.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable
from typing import Any, Final

from ottla.console.message_pack import NotMessagePack, decode_message_pack
from ottla.protocol.records.reader import Header, Record
from ottla.schemas.avro import NotAvro
from ottla.schemas.protobuf import NotProtobuf
from ottla.schemas.schema_registry import NoSchema, SchemaRegistry, has_schema

FORMS: Final = ("auto", "text", "json", "hex", "msgpack", "avro", "protobuf")
SHOWN_BYTES: Final = 16 * 1024
"""Bytes of a key or a value that are shown, and of the names and values of all headers together."""
SHOWN_HEADERS: Final = 100
"""Headers of a record that are shown; a record of the default size may have 300,000."""
MAX_DECODED_BYTES: Final = 1024 * 1024
"""Bytes of a key or a value that are decoded as JSON, MessagePack or Avro; larger ones are shown as text or digits."""

_Utf8: Final = codecs.getincrementaldecoder("utf-8")

Shown = dict[str, Any]


class Decoder:
    """Shows bytes in one of FORMS. `auto` goes by the schema if a registry knows it, is text if the bytes are UTF-8, or else digits."""

    def __init__(self, registry: SchemaRegistry | None = None) -> None:
        self._registry = registry

    def record(self, record: Record, key_form: str = "auto", value_form: str = "auto") -> Shown:
        """A record for the page."""
        return {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": self.show(record.key, key_form),
            "value": self.show(record.value, value_form),
            "headers": _shown_headers(record.headers[:SHOWN_HEADERS]),
        }

    def show(self, data: bytes | memoryview | None, form: str) -> Shown:
        """Bytes in a form. `form` of the answer is the form that was used; `error` has the reason if another one was requested."""
        if data is None or form == "text" or (form == "auto" and not self._may_have_schema(data)):
            return shown_bytes(data)
        if form == "hex":
            return {"form": "hex", "text": bytes(data[:SHOWN_BYTES]).hex(" "), "bytes": len(data)}
        wanted = "avro" if form == "auto" else form
        try:
            shown, found = self._decoded(bytes(data), wanted)
        except (ValueError, RecursionError, NoSchema) as error:
            reason = str(error) if isinstance(error, NotAvro | NotMessagePack | NotProtobuf | NoSchema) else f"this is not {wanted}"
            return {**shown_bytes(data), "error": reason}
        return {"form": shown, "text": found[:SHOWN_BYTES], "bytes": len(data), "is_cut": len(found) > SHOWN_BYTES}

    def _may_have_schema(self, data: bytes | memoryview) -> bool:
        return self._registry is not None and has_schema(data)

    def _decoded(self, data: bytes, form: str) -> tuple[str, str]:
        """The form, and the JSON text of the bytes. Raises ValueError, RecursionError, NoSchema."""
        if len(data) > MAX_DECODED_BYTES:
            raise NoSchema(f"more than {MAX_DECODED_BYTES} bytes are not decoded")
        if form == "json":
            json.loads(data)
            return form, data.decode()  # as it is: numbers and repeated keys do not survive decoding
        if form == "msgpack":
            return form, json.dumps(decode_message_pack(data), ensure_ascii=False, separators=(",", ":"))
        if self._registry is None:
            raise NoSchema(f"start the console with --schema-registry to decode {form.title()}")
        return self._registry.decoded(data)


def _shown_headers(headers: Iterable[Header]) -> list[Shown]:
    """Headers for the page, until their bytes are as many as those of a value."""
    found = []
    left = SHOWN_BYTES
    for name, value in headers:
        if left <= 0:
            break
        text = _Utf8("replace").decode(name[:left], final=len(name) <= left)
        left -= len(name)
        found.append({"name": text, **shown_bytes(value, max(left, 0))})
        left -= len(value or b"")
    return found


def shown_bytes(data: bytes | memoryview | None, most: int = SHOWN_BYTES) -> Shown:
    """Text if the bytes are UTF-8, hexadecimal digits otherwise; the size shows whether these are all of them."""
    if data is None:
        return {"form": "null", "text": None, "bytes": 0}
    shown = bytes(data[:most])
    try:
        # The decoder leaves out the beginning of a character that was cut.
        return {"form": "text", "text": _Utf8().decode(shown, final=len(shown) == len(data)), "bytes": len(data)}
    except UnicodeDecodeError:
        return {"form": "hex", "text": shown.hex(" "), "bytes": len(data)}
