"""Drives transactional producers and consumers of confluent-kafka, which is librdkafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import confluent_kafka as confluent

from tests.support.transactional.face import LINGER_MS, SECONDS, TIMEOUT_MS, Fenced, Found, Member, Producer, Refused

_CONFLUENT_FENCED = {
    confluent.KafkaError._FENCED,
    confluent.KafkaError.PRODUCER_FENCED,
    confluent.KafkaError.INVALID_PRODUCER_EPOCH,
}


def _refusal(failure: confluent.KafkaException) -> Refused:
    error = failure.args[0]
    return (Fenced if error.code() in _CONFLUENT_FENCED else Refused)(str(error))


@contextmanager
def _confluent_refusals() -> Iterator[None]:
    try:
        yield
    except confluent.KafkaException as failure:
        raise _refusal(failure) from failure
    except SystemError as failure:  # confluent-kafka raises it where a fatal error comes while it calls back, mostly with its cause
        cause = failure.__cause__
        raise (_refusal(cause) if isinstance(cause, confluent.KafkaException) else Refused(str(failure))) from failure


class ConfluentProducer:
    """librdkafka's."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._failures: list[Any] = []
        self._producer = confluent.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": min(timeout_ms, SECONDS * 1000),
                "linger.ms": LINGER_MS,
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )
        with _confluent_refusals():
            self._producer.init_transactions(SECONDS)

    def begin(self) -> None:
        self._failures.clear()
        with _confluent_refusals():
            self._producer.begin_transaction()

    def send(self, topic: str, partition: int, *values: str) -> None:
        with _confluent_refusals():
            for value in values:
                self._producer.produce(topic, value.encode(), partition=partition, on_delivery=self._on_delivery)

    def _on_delivery(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failures.append(error)

    def flush(self) -> None:
        with _confluent_refusals():
            assert self._producer.flush(SECONDS) == 0
            if self._failures:
                raise confluent.KafkaException(self._failures[0])

    def send_offsets(self, member: Any, topic: str, partition: int, offset: int) -> None:
        offsets = [confluent.TopicPartition(topic, partition, offset)]
        with _confluent_refusals():
            self._producer.send_offsets_to_transaction(offsets, member.consumer.consumer_group_metadata(), SECONDS)

    def commit(self) -> None:
        with _confluent_refusals():
            self._producer.commit_transaction(SECONDS)

    def abort(self) -> None:
        with _confluent_refusals():
            self._producer.abort_transaction(SECONDS)

    def close(self) -> None:
        with suppress(Refused), _confluent_refusals():
            self._producer.purge()
            self._producer.poll(0)


class ConfluentMember:
    """librdkafka's."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.consumer = confluent.Consumer(_confluent_consumer(bootstrap, group, committed=True))
        self.consumer.subscribe([topic])

    def poll(self) -> list[Found]:
        return [_confluent_found(message) for message in self.consumer.consume(500, 0.1) if message.error() is None]

    def close(self) -> None:
        self.consumer.close()


def _confluent_consumer(bootstrap: str, group: str, *, committed: bool) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
        "log_level": 0,
    }


def _confluent_found(message: Any) -> Found:
    return Found(message.partition(), message.offset(), message.value().decode())


class ConfluentClient:
    """confluent-kafka, which is librdkafka."""

    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def producer(self, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> Producer:
        return ConfluentProducer(self._bootstrap, transactional_id, timeout_ms)

    def member(self, topic: str, group: str) -> Member:
        return ConfluentMember(self._bootstrap, topic, group)

    def read(self, topic: str, partitions: int = 1, *, committed: bool = True) -> list[Found]:
        consumer = confluent.Consumer(_confluent_consumer(self._bootstrap, "unused", committed=committed))
        consumer.assign([confluent.TopicPartition(topic, partition, confluent.OFFSET_BEGINNING) for partition in range(partitions)])
        found, at_end = [], set()
        while len(at_end) < partitions:
            message = consumer.poll(SECONDS)
            assert message is not None, f"only {at_end} of {partitions} partitions came to their ends"
            if message.error() is None:
                found.append(_confluent_found(message))
            else:
                assert message.error().code() == confluent.KafkaError._PARTITION_EOF, message.error()
                at_end.add(message.partition())
        consumer.close()
        return found
