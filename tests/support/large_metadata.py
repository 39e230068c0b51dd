"""Writes metadata files with many topics, without a broker."""

import asyncio
from pathlib import Path

from ottla.broker.loop.clock import SystemClock
from ottla.controller.registration import prepare_store
from ottla.controller.store.embedded_store import EmbeddedStore
from ottla.controller.store.metadata_store import Create, Write
from ottla.controller.znodes.changes import encode_config
from ottla.controller.znodes.layout import (
    CONTROLLER_EPOCH,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    config_path,
    encode_controller_epoch,
    encode_partition_state,
    encode_topic,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_path,
)
from ottla.protocol.topic_partition import TopicPartition

_TOPICS_AT_ONCE = 200


def write_topics(file: Path, count: int) -> None:
    """Make the file, with a cluster id and `count` topics of one partition, each with a configuration."""
    asyncio.run(_write(file, count))


async def _write(file: Path, count: int) -> None:
    store = EmbeddedStore(str(file), SystemClock())
    await store.open_session()
    try:
        await prepare_store(store, lambda size: bytes(range(size)))
        await store.create(CONTROLLER_EPOCH, encode_controller_epoch(7))
        for first in range(0, count, _TOPICS_AT_ONCE):
            some = range(first, min(first + _TOPICS_AT_ONCE, count))
            await store.multi([write for number in some for write in _topic(f"topic-{number:05d}", number)])
    finally:
        await store.close()


def _topic(name: str, number: int) -> list[Write]:
    at = TopicPartition(name, 0)
    assignment = TopicAssignment(number.to_bytes(16, "big"), {0: ReplicaAssignment((0, 1, 2))})
    return [
        Create(topic_path(name), encode_topic(assignment)),
        Create(partitions_path(name)),
        Create(partition_path(at)),
        Create(partition_state_path(at), encode_partition_state(PartitionState(0, (0, 1, 2), 3, 7))),
        Create(config_path("topics", name), encode_config({"retention.ms": str(number)})),
    ]
