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

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.api_versions import DECLARED_APIS, versions_in_3_9
from ottla.protocol.schema.registry import ZOOKEEPER_MODE_APIS, api
from tests.support.examples import number_of
from tests.support.message_table import FIXED, RandomMessages, SlowEncoder, Table, tables, valid_versions

# How many versions of an API Apache Kafka 4 began its range without (KIP-896), or early access ended with.
DROPPED = {
    ApiKey.PRODUCE: 3,
    ApiKey.FETCH: 4,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    ApiKey.ALTER_PARTITION: 2,
} | dict.fromkeys(
    (
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FETCH,
        ApiKey.DELETE_TOPICS,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ),
    1,
)
NOT_IN_KAFKA_4 = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
}


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


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(DECLARED_APIS), ids=lambda key: key.name.lower())
@pytest.mark.parametrize("side", ["request", "response"])
def test_kio_reads_what_we_write_and_writes_the_same(key: ApiKey, side: str) -> None:
    cls = api(key).request if side == "request" else api(key).response
    table = tables()[cls.__name__]
    for version in valid_versions(table):
        entity = kio_class(key, version, side)
        if entity is None:
            continue
        made = ModestMessages(table, version, "kio", unknown_tags=False)
        for _ in range(number_of(4)):
            data = SlowEncoder(table, version).encode(made.make())
            message, _ = cls.decode(data, version)
            assert read_and_write_again(entity, message.encode(version)) == data


def test_kio_lacks_only_what_a_later_kafka_dropped_or_has_not_begun_with() -> None:
    """Apache Kafka's own classes read those (`tests/integration/test_messages_of_apache_kafka.py`)."""
    for key in sorted(ZOOKEEPER_MODE_APIS):
        for side in ("request", "response"):
            table = tables()[(api(key).request if side == "request" else api(key).response).__name__]
            versions = [version for version in valid_versions(table) if version <= versions_in_3_9(key).last]
            lacking = [version for version in versions if kio_class(key, version, side) is None]
            assert lacking == versions[: len(lacking)], (key, side)
            assert len(lacking) <= DROPPED.get(key, len(versions) if key in NOT_IN_KAFKA_4 else 0), (key, side)
