"""Reads and writes keys and values by the schemas of a registry, for `ottla consume` and `ottla produce`.

A record whose schema cannot be had is printed as it is, with a remark for each reason; one that does not fit its schema is not written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.client.errors import ClientError
from ottla.schemas.schema_registry import NoSchema, SchemaRegistry, has_schema

if TYPE_CHECKING:
    from ottla.client.fetcher import FetchedBatch
    from ottla.client.producer import OutgoingRecord


_MOST_REASONS: Final = 100


class Decoding:
    """Replaces keys and values that were written by a schema by their JSON text."""

    def __init__(self, registry: SchemaRegistry, remark: Callable[[str], object]) -> None:
        """`remark` gets a line for each reason why records are printed as they are."""
        self._registry = registry
        self._remark = remark
        self._said: set[str] = set()

    def batch(self, batch: FetchedBatch) -> FetchedBatch:
        """The batch with the records as they are to be printed."""
        shown = [record._replace(key=self._shown(record.key), value=self._shown(record.value)) for record in batch.records]
        return batch._replace(records=shown)

    def _shown(self, data: bytes | None) -> bytes | None:
        if data is None or not has_schema(data):
            return data
        try:
            return self._registry.decoded(data)[1].encode(errors="backslashreplace")
        except (NoSchema, ValueError, RecursionError) as error:
            reason = str(error) or "a value is nested too deeply"
            if reason not in self._said and len(self._said) < _MOST_REASONS:
                self._said.add(reason)
                self._remark(f"ottla: printed as it is: {reason}")
                if len(self._said) == _MOST_REASONS:
                    self._remark("ottla: other reasons for which records are printed as they are follow without a remark")
            return data


class Encoding:
    """Replaces keys and values, which are JSON, by their bytes by a schema. None leaves them as they are."""

    def __init__(self, registry: SchemaRegistry, key_schema: int | None, value_schema: int | None) -> None:
        self._registry = registry
        self._key_schema = key_schema
        self._value_schema = value_schema

    def record(self, record: OutgoingRecord) -> OutgoingRecord:
        """The record as it is to be written. Raises ClientError if it does not fit, or its schema cannot be had."""
        key, value = self._encoded(record.key, self._key_schema, "key"), self._encoded(record.value, self._value_schema, "value")
        return record._replace(key=key, value=value)

    def _encoded(self, data: bytes | None, schema_id: int | None, what: str) -> bytes | None:
        if data is None or schema_id is None:
            return data
        try:
            return self._registry.encoded(schema_id, data.decode())
        except NoSchema as error:
            raise ClientError(f"the {what} is not written: {error}") from None
        except (ValueError, RecursionError) as error:
            raise ClientError(f"the {what} does not fit schema {schema_id}: {error or 'it is nested too deeply'}") from None
