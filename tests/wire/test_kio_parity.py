"""kio, an independent implementation generated from Kafka's schemas, reads what we write and writes it again to the same bytes.

kio has types of its own for error codes, durations and timestamps, so values are kept in their ranges; its schemas are those of a later
Kafka, so versions that differ from 3.9 are left out by name.
"""

import importlib
import io
import struct
from collections.abc import Callable
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from protocol.api_keys import ApiKey
from protocol.registry import api
from tests.support.message_table import FIXED, RandomMessages, SlowEncoder, Table, tables, valid_versions

# Not the same message in the Kafka that kio was generated from.
CHANGED_LATER = {("ReadShareGroupStateSummaryResponse", 0)}


class ModestMessages(RandomMessages):
    """Random values that kio's types admit: known errors, no negative times, no strings beyond what it checks."""

    def _number(self, field: Table, kind: str) -> int:
        name = field["name"]
        if name.endswith("ErrorCode"):
            return self.random.choice((-1, 0, 3, 42))
        if "Ms" in name or "Time" in name:
            return self.random.choice((0, 1000, 86_400_000))
        low = 0 if kind.startswith("u") else -1
        return self.random.choice((low, 0, 1, (1 << (struct.calcsize(">" + FIXED[kind]) * 8 - 1)) - 1))


def kio_class(key: ApiKey, version: int, side: str) -> Any:
    name = f"kio.schema.{key.name.lower()}.v{version}.{side}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        return None
    return getattr(module, f"{key.name.title().replace('_', '')}{side.capitalize()}")


def read_and_write_again(entity: Any, data: bytes) -> bytes:
    read: Callable[[bytes, int], tuple[Any, int]] = entity_reader(entity)
    write: Callable[[Any, Any], None] = entity_writer(entity)
    value, size = read(data, 0)
    assert size == len(data)
    out = io.BytesIO()
    write(out, value)
    return out.getvalue()


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name.lower())
@pytest.mark.parametrize("side", ["request", "response"])
def test_kio_reads_what_we_write_and_writes_the_same(key: ApiKey, side: str) -> None:
    cls = api(key).request if side == "request" else api(key).response
    table = tables()[cls.__name__]
    for version in valid_versions(table):
        entity = kio_class(key, version, side)
        if entity is None or (cls.__name__, version) in CHANGED_LATER:
            continue
        made = ModestMessages(table, version, "kio", unknown_tags=False)
        for _ in range(4):
            data = SlowEncoder(table, version).encode(made.make())
            message, _ = cls.decode(data, version)
            assert read_and_write_again(entity, message.encode(version)) == data


def test_kio_has_most_of_our_versions() -> None:
    compared = [
        (key, version, side)
        for key in ApiKey
        for version in range(api(key).versions.first, api(key).versions.last + 1)
        for side in ("request", "response")
        if kio_class(key, version, side) is not None
    ]
    assert len(compared) > 450
