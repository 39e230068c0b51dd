"""Carries out the commands that a test sends to its broker: faults, and what a client does to prepare and to look.

A command is a line of JSON on standard input, an answer a line of JSON on standard output with the same `id`:

    {"id": 1, "do": "fail", "api": "PRODUCE", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
    {"id": 1, "result": null}

| `do` | arguments | result |
|---|---|---|
| `fail` | `api`; `error`, null closes the connection; `times` | |
| `delay` | `ms` before every request is handled | |
| `cut` | `brokers`, the ids whose requests get no answer here | |
| `disk` | `full`, `slow_ms` | |
| `heal` | ends all faults | |
| `create_topic` | `topic`, `partitions`, `replication_factor`, `config` | |
| `delete` | `prefix` of topics and groups | |
| `produce` | `topic`, `records`: lists of key, value and partition; bytes in base64 | offsets, in the order of the records |
| `consume` | `topic`, `count`, `timeout` in seconds | records: lists of partition, offset, key, value |
| `lag` | `group`, `topic` | records between the committed offsets and the ends |
| `brokers` | | ids of the brokers that this one knows to be alive |

A command that cannot be carried out is answered with `error`, one line. Commands of a client run in a thread, several at a time.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, Final

from broker.client.cluster import Cluster, TopicPartition
from broker.client.committed import committed_offsets
from broker.client.errors import ClientError
from broker.client.fetcher import Fetcher, FetchSettings
from broker.client.group_admin import delete_groups, list_groups
from broker.client.offsets import end_offsets, start_offsets
from broker.client.producer import Delivery, OutgoingRecord, Producer, ProducerSettings
from broker.client.topic_admin import DEFAULT, NewTopic, all_topics, create_topics, delete_topics
from broker.ephemeral.faults import Faults
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode

TIMEOUT_SECONDS: Final = 30.0
"""Time for a command of a client, seconds; `consume` has its own."""
_ERRORS: Final = (ClientError, KeyError, TypeError, ValueError, OSError)


class Control:
    """See the module. `answer` writes a line."""

    def __init__(self, faults: Faults, bootstrap: str, answer: Callable[[str], None]) -> None:
        self._faults = faults
        self._bootstrap = bootstrap
        self._answer = answer
        self._tasks: set[asyncio.Task[None]] = set()

    def on_line(self, line: bytes) -> None:
        """Carry out one command."""
        try:
            order = json.loads(line)
            name, number = order.pop("do"), order.pop("id", None)
        except (ValueError, KeyError, AttributeError):
            self._answer(json.dumps({"error": "a command is a JSON object with the member do"}))
            return
        if name in _FAULTS:
            self._report(number, lambda: _FAULTS[name](self._faults, **order))
        elif name in _OF_CLIENTS:
            task = asyncio.ensure_future(asyncio.to_thread(self._report, number, lambda: self._as_client(name, order)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._report(number, lambda: _raise(ValueError(f"there is no command {name!r}")))

    def _as_client(self, name: str, order: dict[str, Any]) -> object:
        with Cluster(self._bootstrap, client_id="ottla-ephemeral", timeout_seconds=TIMEOUT_SECONDS) as cluster:
            return _OF_CLIENTS[name](cluster, **order)

    def _report(self, number: object, work: Callable[[], object]) -> None:
        try:
            answer = {"id": number, "result": work()}
        except _ERRORS as error:
            answer = {"id": number, "error": " ".join(str(error).split()) or type(error).__name__}
        self._answer(json.dumps(answer))


def _raise(error: Exception) -> None:
    raise error


def _fail(faults: Faults, api: str, error: str | None, times: int = 1) -> None:
    if api.upper() not in ApiKey.__members__:
        raise ValueError(f"there is no api {api!r}; Apache Kafka's names are like {ApiKey.FIND_COORDINATOR.name}")
    if error is not None and error.upper() not in ErrorCode.__members__:
        raise ValueError(f"there is no error {error!r}; Apache Kafka's names are like {ErrorCode.NOT_LEADER_OR_FOLLOWER.name}")
    faults.fail(ApiKey[api.upper()], None if error is None else ErrorCode[error.upper()], times)


def _delay(faults: Faults, ms: float) -> None:
    faults.delay_seconds = ms / 1000


def _cut(faults: Faults, brokers: list[int]) -> None:
    faults.cut_off = set(brokers)


def _disk(faults: Faults, full: bool = False, slow_ms: float = 0) -> None:
    faults.disk.is_full = full
    faults.disk.pause_seconds = slow_ms / 1000


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
    producer = Producer(cluster, topic, settings, on_delivery, choose=random.choice, may_create_topic=True)
    try:
        for key, value, partition in records:
            producer.send(OutgoingRecord(_decoded(value), _decoded(key), partition=partition))
        producer.flush()
    finally:
        producer.close()
    if errors:
        raise errors[0]
    return sorted(offset for offsets in delivered.values() for offset in offsets)


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


def _brokers(cluster: Cluster) -> list[int]:
    return cluster.broker_ids()


def _partitions(cluster: Cluster, topic: str) -> list[TopicPartition]:
    described = cluster.until_done(lambda: cluster.topic(topic))
    return [TopicPartition(topic, each.partition_index) for each in described.partitions]


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)


def _encoded(value: bytes | memoryview | None) -> str | None:
    return None if value is None else b64encode(value).decode()


_FAULTS: Final[dict[str, Callable[..., object]]] = {"fail": _fail, "delay": _delay, "cut": _cut, "disk": _disk, "heal": Faults.heal}
_OF_CLIENTS: Final[dict[str, Callable[..., object]]] = {
    "create_topic": _create_topic,
    "delete": _delete,
    "produce": _produce,
    "consume": _consume,
    "lag": _lag,
    "brokers": _brokers,
}
