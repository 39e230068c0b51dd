"""Asks a schema registry for the Avro schemas that records name by their ids, and remembers them.

Speaks the one request that Confluent's, Karapace and Apicurio share: `GET /schemas/ids/ID`.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Final

from broker.cli.console.avro import AvroSchema, NotAvro

MAX_SCHEMAS: Final = 1000
"""Schemas that are remembered; the oldest is forgotten for a new one."""
MAX_SCHEMA_BYTES: Final = 1024 * 1024
"""Size of an answer of the registry, bytes."""
_SECONDS: Final = 3.0
_UNKNOWN_SECONDS: Final = 30.0
"""Time until the registry is asked again after it gave no answer, or not the schema, seconds."""


class NoSchema(Exception):
    """There is no schema to decode bytes with; the text is for the user."""


class SchemaRegistry:
    """A registry at a URL. Called from any thread."""

    def __init__(self, url: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._url = url.rstrip("/")
        self._monotonic = monotonic
        self._known: dict[int, tuple[AvroSchema | NoSchema, float]] = {}
        self._silent_until = float("-inf")
        self._lock = threading.Lock()

    def schema(self, schema_id: int) -> AvroSchema:
        """The schema with an id. Raises NoSchema."""
        with self._lock:
            found, until = self._known.get(schema_id, (None, 0.0))
            if found is None or until <= self._monotonic():
                try:
                    found, until = self._asked(schema_id), float("inf")
                except NoSchema as error:
                    found, until = error, self._monotonic() + _UNKNOWN_SECONDS
                self._known.pop(schema_id, None)
                while len(self._known) >= MAX_SCHEMAS:
                    del self._known[next(iter(self._known))]
                self._known[schema_id] = found, until
        if isinstance(found, NoSchema):
            raise NoSchema(str(found))
        return found

    def _asked(self, schema_id: int) -> AvroSchema:
        if self._monotonic() < self._silent_until:
            raise NoSchema("the schema registry did not answer lately")
        request = urllib.request.Request(f"{self._url}/schemas/ids/{schema_id}", headers={"Accept": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                data = answer.read(MAX_SCHEMA_BYTES + 1)
        except urllib.error.HTTPError as error:
            error.close()
            raise NoSchema(f"the schema registry answers {error.code} to schema {schema_id}") from None
        except OSError as error:
            self._silent_until = self._monotonic() + _UNKNOWN_SECONDS
            raise NoSchema(f"the schema registry does not answer: {getattr(error, 'reason', None) or error}") from None
        if len(data) > MAX_SCHEMA_BYTES:
            raise NoSchema(f"schema {schema_id} has more than {MAX_SCHEMA_BYTES} bytes")
        try:
            found = json.loads(data)
            if found.get("schemaType", "AVRO") != "AVRO" or found.get("references"):
                raise NoSchema(f"schema {schema_id} is not one of Avro without references, which alone are decoded")
            return AvroSchema(json.loads(found["schema"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, NotAvro):
            raise NoSchema(f"the schema registry has no usable schema {schema_id}") from None
