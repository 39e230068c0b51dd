"""Carries out the commands of a test that need a client: topics, records, lag.

`ottla.ephemeral.control` imports this with the first such command, in its thread: a broker is ready earlier without a client.
"""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from typing import Any, Final

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.fetcher import Fetcher, FetchSettings
from ottla.client.group_admin import delete_groups, list_groups
from ottla.client.group_offsets.committed import committed_offsets
from ottla.client.offsets import end_offsets, start_offsets
from ottla.client.producer import Delivery, OutgoingRecord, Producer, ProducerSettings
from ottla.client.topic_admin import DEFAULT, NewTopic, all_topics, create_topics, delete_topics
from ottla.protocol.topic_partition import TopicPartition

TIMEOUT_SECONDS: Final = 30.0
"""Time for a command, seconds; `consume` has its own."""


def carry_out(name: str, bootstrap: str, order: dict[str, Any], others: Iterable[str]) -> object:
    """The result of one command. `others` are the commands that need no client, for the error that names them all.

    Raises ClientError, and ValueError, TypeError or KeyError for arguments that cannot be used.
    """
    if name not in _COMMANDS:
        raise ValueError(f"there is no command {name!r}; there are {', '.join(sorted((*_COMMANDS, *others)))}")
    with Cluster(bootstrap, client_id="ottla-ephemeral", timeout_seconds=TIMEOUT_SECONDS) as cluster:
        return _COMMANDS[name](cluster, **order)


def _create_topic(
    cluster: Cluster, topic: str, partitions: int = 1, replication_factor: int = DEFAULT, config: dict[str, str] | None = None
) -> None:
    error = create_topics(cluster, [NewTopic(topic, partitions, replication_factor, config)])[topic]
    if error is not None:
        raise error


def _delete(cluster: Cluster, prefix: str) -> None:
    topics = [topic.name for topic in all_topics(cluster) if topic.name is not None and topic.name.startswith(prefix)]
    groups = [group.group for group in list_groups(cluster) if group.group.startswith(prefix)]
    if groups:
        delete_groups(cluster, groups)
    if topics:
        delete_topics(cluster, topics)


def _produce(cluster: Cluster, topic: str, records: list[list[Any]]) -> list[int]:
    delivered: dict[int, list[int]] = {}
    errors: list[ClientError] = []

    def on_delivery(delivery: Delivery) -> None:
        if delivery.error is not None:
            errors.append(delivery.error)
        delivered.setdefault(delivery.partition.partition, []).extend(range(delivery.base_offset, delivery.base_offset + delivery.records))

    settings = ProducerSettings(linger_seconds=0, delivery_timeout_seconds=TIMEOUT_SECONDS)
    producer = Producer(cluster, topic, settings, on_delivery, may_create_topic=True)
    try:
        chosen = [producer.send(OutgoingRecord(_decoded(value), _decoded(key), partition=partition)) for key, value, partition in records]
        producer.flush()
    finally:
        producer.close()
    if errors:
        raise errors[0]
    offsets = {partition: iter(found) for partition, found in delivered.items()}  # the records of a partition are written in their order
    return [next(offsets[partition]) for partition in chosen]


def _consume(cluster: Cluster, topic: str, count: int, timeout: float) -> list[list[Any]]:
    partitions = _partitions(cluster, topic)
    fetcher = Fetcher(cluster, start_offsets(cluster, partitions), FetchSettings(max_wait_ms=50))
    found: list[list[Any]] = []
    deadline = time.monotonic() + timeout
    try:
        while len(found) < count and time.monotonic() < deadline:
            for batch in fetcher.poll(0.1):
                index = batch.partition.partition
                found += [[index, record.offset, _encoded(record.key), _encoded(record.value)] for record in batch.records]
    finally:
        fetcher.close()
    if len(found) < count:
        raise ClientError(f"{topic} has {len(found)} records, not {count}, after {timeout:g} s")
    return found[:count]


def _lag(cluster: Cluster, group: str, topic: str) -> int:
    partitions = _partitions(cluster, topic)
    committed = committed_offsets(cluster, group, partitions)
    begins, ends = start_offsets(cluster, partitions), end_offsets(cluster, partitions)
    return sum(ends[each] - (committed[each].offset if each in committed else begins[each]) for each in partitions)


def _partitions(cluster: Cluster, topic: str) -> list[TopicPartition]:
    described = cluster.until_done(lambda: cluster.topic(topic))
    return [TopicPartition(topic, each.partition_index) for each in described.partitions]


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)


def _encoded(value: bytes | memoryview | None) -> str | None:
    return None if value is None else b64encode(value).decode()


_COMMANDS: Final[dict[str, Callable[..., object]]] = {
    "create_topic": _create_topic,
    "delete": _delete,
    "produce": _produce,
    "consume": _consume,
    "lag": _lag,
}
