"""Runs share consumers of librdkafka that accept each record by itself while brokers die, and tells which records they got."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import confluent_kafka

from tests.support.broker_process import eventually

GROUP = "g"


class Acceptor:
    """A share consumer that accepts each record by itself.

    `delivered` has the number of deliveries by record, `accepted` those whose acceptance was confirmed.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"group.id": GROUP, "share.acknowledgement.mode": "explicit", "log_level": 0, "reconnect.backoff.max.ms": 200}
        self._consumer = confluent_kafka.ShareConsumer({"bootstrap.servers": bootstrap, **settings})
        self._consumer.subscribe([topic])
        self.delivered: Counter[int] = Counter()
        self.accepted: set[int] = set()

    def step(self, meanwhile: Callable[[], object] = lambda: None) -> bool:
        """Accept what comes within half a second, if there is something. `meanwhile` is called before the acceptance is sent."""
        taken = [message for message in self._consumer.poll(0.5) if message.error() is None]
        values = [int(message.value() or b"") for message in taken]
        self.delivered.update(values)
        for message in taken:
            self._consumer.acknowledge(message, confluent_kafka.AcknowledgeType.ACCEPT)
        if taken:
            meanwhile()
            outcomes = self._consumer.commit_sync(20)
            if not any(outcomes.values()):
                self.accepted.update(values)
        return bool(taken)

    def work_until(self, is_done: Callable[[], object], what: str) -> None:
        """Repeat steps. Records whose acceptance a broker refused are delivered again."""

        def tried() -> object:
            try:
                self.step()
            except confluent_kafka.KafkaException:
                return False
            return is_done()

        eventually(tried, 120, what)

    def hold_over(self, meanwhile: Callable[[], object]) -> None:
        """Hold records while this is done, then accept them. The brokers may refuse that, or the answer may be lost."""

        def tried() -> bool:
            try:
                return self.step(meanwhile)
            except confluent_kafka.KafkaException:
                return True

        eventually(tried, 60, "records are held")

    def close(self) -> None:
        self._consumer.close()


class Acceptors:
    """Acceptors of one group, each in a thread of its own, until the context ends."""

    def __init__(self, bootstrap: str, topic: str, count: int) -> None:
        self._members = [Acceptor(bootstrap, topic) for _ in range(count)]
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(member,), daemon=True) for member in self._members]

    def __enter__(self) -> Acceptors:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _work(self, member: Acceptor) -> None:
        while not self._ended.is_set():
            try:
                member.step()
            except confluent_kafka.KafkaException:
                continue  # a broker was killed: what it had of this member comes again
        member.close()

    @property
    def delivered(self) -> Counter[int]:
        """The number of deliveries by record."""
        total: Counter[int] = Counter()
        for member in self._members:
            total.update(dict(member.delivered.copy()))
        return total

    @property
    def accepted(self) -> set[int]:
        """The records whose acceptance was confirmed to a member."""
        return set().union(*(member.accepted.copy() for member in self._members))


def write(bootstrap: str, topic: str, begin: int, end: int) -> None:
    """Records with these numbers, in small batches."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 10, "log_level": 0}
    )
    for number in range(begin, end):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(120) == 0
