"""Members of a group that read under a load which never stops: each commits what it has read, and a ledger judges every record.

A member commits before it gives up a partition, and the next one begins at this commit. So a record that one member has read and committed
is read by no other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

COMMIT_EVERY = 20
"""Records between two commits of a member."""
_PAUSE_S = 0.002
"""Between two records of the producer: some hundred a second."""
_CLOSE_S = 60.0


Holder: TypeAlias = tuple[str, int]
"""A member from one assignment of a partition to the next: its name, and how often the partition was assigned to it."""


class Ledger:
    """Keeps which records were written, read and committed. Members and the producer are threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.written: dict[tuple[int, int], str] = {}
        """The values, by partition and offset, that were acknowledged."""
        self.read: dict[tuple[int, int], str] = {}
        self._readers: dict[tuple[int, int], list[Holder]] = {}
        self._commits: dict[tuple[Holder, int], int] = {}
        """By holder and partition, the highest offset that was committed."""

    def write(self, partition: int, offset: int, value: str) -> None:
        with self._lock:
            self.written[partition, offset] = value

    def take(self, reader: Holder, partition: int, offset: int, value: str) -> None:
        """A member got a record."""
        with self._lock:
            self.read[partition, offset] = value
            self._readers.setdefault((partition, offset), []).append(reader)

    def commit(self, reader: Holder, partition: int, offset: int) -> None:
        """A commit of a member was acknowledged."""
        with self._lock:
            self._commits[reader, partition] = max(offset, self._commits.get((reader, partition), 0))

    def is_read_to(self, count: int) -> bool:
        """Whether so many different records were read."""
        with self._lock:
            return len(self.read) >= count

    def committed(self) -> int:
        """How many records the commits cover."""
        highest: dict[int, int] = {}
        for (_, partition), offset in self._commits.items():
            highest[partition] = max(offset, highest.get(partition, 0))
        return sum(highest.values())

    def read_again(self) -> list[str]:
        """The records that were read after a member had read them, whose commit covers them."""
        return [
            f"{partition}:{offset} is committed by {reader}, read by {readers}"
            for (partition, offset), readers in self._readers.items()
            for reader in readers[:-1]
            if self._commits.get((reader, partition), 0) > offset
        ]


class Member:
    """A consumer in a thread of its own."""

    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str, name: str, ledger: Ledger) -> None:
        self.name = name
        self._ledger = ledger
        self.errors: list[KafkaError] = []
        self._is_over = threading.Event()
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": name,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "error_cb": self.errors.append,
        }
        if protocol == "classic":
            config |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}
        self._consumer = Consumer(config)
        self._assignments: dict[int, int] = {}
        """How often each partition was assigned."""
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
        self.assigned: frozenset[int] = frozenset()
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def _run(self) -> None:
        uncommitted = 0
        while not self._is_over.is_set():
            message = self._consumer.poll(0.1)
            self.assigned = frozenset([each.partition for each in self._consumer.assignment()])
            if message is not None and self._take(message):
                uncommitted += 1
            if uncommitted >= COMMIT_EVERY or (uncommitted and message is None):
                self._commit()
                uncommitted = 0
        self._consumer.close()
        self.assigned = frozenset()

    def _take(self, message: Message) -> bool:
        error = message.error()
        if error is not None:
            self.errors.append(error)
            return False
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        self._ledger.take(self._holder(partition), partition, offset, (value or b"").decode())
        return True

    def _holder(self, partition: int) -> Holder:
        return self.name, self._assignments.get(partition, 0)

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._assignments[each.partition] = self._assignments.get(each.partition, 0) + 1

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()

    def _commit(self) -> None:
        """Commit what was read. While the group rebalances this may be refused; then the records are read again."""
        try:
            found = self._consumer.commit(asynchronous=False) or []
        except KafkaException:
            return
        for each in found:
            if each.error is None and each.offset >= 0:
                self._ledger.commit(self._holder(each.partition), each.partition, each.offset)

    def leave(self) -> None:
        """Commit, leave the group, and wait for the end."""
        self._is_over.set()
        self._thread.join(_CLOSE_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"


@contextmanager
def a_steady_load(bootstrap: str, topic: str, partitions: int, ledger: Ledger) -> Iterator[None]:
    """Writes records, numbered within each partition, until the end of the context."""
    is_over = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert error is None, error
        assert partition is not None
        assert offset is not None
        ledger.write(partition, offset, (value or b"").decode())

    def run() -> None:
        number = 0
        while not is_over.wait(_PAUSE_S):
            producer.produce(topic, str(number), partition=number % partitions, on_delivery=on_delivery)
            producer.poll(0)
            number += 1

    thread = threading.Thread(target=run, name="load")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        assert producer.flush(_CLOSE_S) == 0
