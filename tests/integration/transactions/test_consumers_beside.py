"""Consumers of both isolation levels read along while transactions are committed, aborted, abandoned and interrupted by a restart."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest

from tests.integration.transactions.conftest import SECONDS, Topic, create_topic
from tests.support.broker_process import eventually
from tests.support.judged_broker import JudgedBroker, a_judged_broker, needs_its_broker
from tests.support.transactional import CLIENTS, Client, Refused, values_of

pytestmark = [*needs_its_broker, pytest.mark.slow]

TRANSACTIONS = 40
ROUNDS = 2
"""In the first one the broker restarts before each commit."""


class Beside:
    """What a consumer of one partition has read so far, in a thread of its own."""

    def __init__(self, broker: JudgedBroker, topic: str, level: str) -> None:
        self.values: list[str] = []
        self._stop = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "unused",
                "isolation.level": level,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        # Its coordinator is found before the long polls begin: close() would look for it behind one of them.
        self._consumer.committed([confluent_kafka.TopicPartition(topic, 0)], SECONDS)
        self._consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        self._thread = threading.Thread(target=self._run, name=level)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, 0.05):
                if message.error() is None:
                    self.values.append((message.value() or b"").decode())

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()


@contextmanager
def both_beside(broker: JudgedBroker, topic: str) -> Iterator[tuple[Beside, Beside]]:
    """The one that reads committed records, and the one that reads all."""
    beside = Beside(broker, topic, "read_committed"), Beside(broker, topic, "read_uncommitted")
    try:
        yield beside
    finally:
        for each in beside:
            each.close()


def test_each_consumer_is_given_what_its_level_allows_in_order_and_once(
    client: Client, topic: Topic, broker: JudgedBroker, name: str
) -> None:
    written = topic()
    producer = client.producer(name)
    sent, kept = [], []
    with both_beside(broker, written) as (committed, uncommitted):
        for number in range(TRANSACTIONS):
            producer.begin()
            values = [f"{number}.{record}" for record in range(3)]
            for value in values:
                producer.send(written, 0, value)
                producer.flush()
            sent += values
            if number % 4 == 1:
                producer.abort()
            else:
                producer.commit()
                kept += values
        eventually(lambda: len(committed.values) >= len(kept) and len(uncommitted.values) >= len(sent), what="all is read")
    assert committed.values == kept
    assert uncommitted.values == sent
    producer.close()


def test_a_long_poll_ends_when_the_last_stable_offset_moves(client: Client, topic: Topic, broker: JudgedBroker, name: str) -> None:
    written = topic()
    producer = client.producer(name)
    with both_beside(broker, written) as (committed, uncommitted):
        for number in range(5):
            producer.begin()
            producer.send(written, 0, str(number))
            producer.flush()
            eventually(lambda number=number: len(uncommitted.values) > number, 10, "the record is read uncommitted")
            assert len(committed.values) == number
            producer.commit()
            eventually(lambda number=number: len(committed.values) > number, 10, "the commit is seen before the long poll is over")
    producer.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_transactions_go_on_over_restarts_of_the_broker(how: str, tmp_path: Path) -> None:
    with a_judged_broker(tmp_path) as broker:
        create_topic(broker, "t")
        client = CLIENTS["confluent-kafka"](broker.bootstrap)
        with both_beside(broker, "t") as (committed, uncommitted):
            producer = client.producer("id")
            sent, kept = [], []
            for number in range(ROUNDS):
                for ending in ("commit", "abort", "commit"):
                    producer.begin()
                    values = [f"{number}.{ending}.{record}" for record in range(3)]
                    producer.send("t", 0, *values)
                    producer.flush()
                    sent += values
                    if ending == "commit":
                        if number % 2 == 0:
                            getattr(broker, how)()
                            broker.start()
                        producer.commit()
                        kept += values
                    else:
                        producer.abort()
            eventually(lambda: len(committed.values) >= len(kept), SECONDS, "all committed records are read")
            eventually(lambda: len(uncommitted.values) >= len(sent), SECONDS, "all records are read")
        assert committed.values == kept
        assert uncommitted.values == sent


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_an_open_transaction_is_still_open_after_a_restart_and_aborted_at_its_timeout(how: str, tmp_path: Path) -> None:
    with a_judged_broker(tmp_path) as broker:
        create_topic(broker, "t")
        client = CLIENTS["confluent-kafka"](broker.bootstrap)
        patient = client.producer("patient")
        patient.begin()
        patient.send("t", 0, "patient")
        patient.flush()
        hasty = client.producer("hasty", timeout_ms=5_000)
        hasty.begin()
        hasty.send("t", 0, "hasty")
        hasty.flush()
        getattr(broker, how)()
        broker.start()

        assert client.read("t") == []
        patient.commit()
        last = client.producer("last")
        last.begin()
        last.send("t", 0, "last")
        last.commit()
        eventually(lambda: values_of(client.read("t")) == {0: ["patient", "last"]}, what="the hasty one holds nothing back any more")
        with pytest.raises(Refused):
            hasty.commit()
        assert values_of(client.read("t", committed=False)) == {0: ["patient", "hasty", "last"]}
