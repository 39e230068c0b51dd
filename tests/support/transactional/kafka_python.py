"""Drives transactional producers and consumers of kafka-python."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.transactional.face import LINGER_MS, SECONDS, TIMEOUT_MS, Fenced, Found, Member, Producer, Refused, pythonic_consumer

with warnings.catch_warnings():  # kafka-python reads its schemas through a function that Python 3.11 wants replaced
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.errors


_CLOSE_SECONDS = 5


@contextmanager
def _kafka_python_refusals() -> Iterator[None]:
    try:
        yield
    except (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError) as failure:
        raise Fenced(repr(failure)) from failure
    except kafka.errors.KafkaError as failure:
        raise Refused(repr(failure)) from failure


class KafkaPythonProducer:
    """kafka-python's."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._sent: list[Any] = []
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=SECONDS * 1000,
            linger_ms=LINGER_MS,
        )
        with _kafka_python_refusals():
            self._producer.init_transactions()

    def begin(self) -> None:
        self._sent.clear()
        with _kafka_python_refusals():
            self._producer.begin_transaction()

    def send(self, topic: str, partition: int, *values: str) -> None:
        with _kafka_python_refusals():
            self._sent += [self._producer.send(topic, value.encode(), partition=partition) for value in values]

    def flush(self) -> None:
        self._producer.flush(SECONDS)
        with _kafka_python_refusals():
            for each in self._sent:
                each.get(SECONDS)

    def send_offsets(self, member: Any, topic: str, partition: int, offset: int) -> None:
        offsets = {kafka.TopicPartition(topic, partition): kafka.OffsetAndMetadata(offset, "", -1)}
        with _kafka_python_refusals():
            self._producer.send_offsets_to_transaction(offsets, member.consumer.group_metadata())

    def commit(self) -> None:
        with _kafka_python_refusals():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with _kafka_python_refusals():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(_CLOSE_SECONDS)


class KafkaPythonMember:
    """kafka-python's."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.consumer = kafka.KafkaConsumer(topic, metadata_max_age_ms=1000, **pythonic_consumer(bootstrap, group, committed=True))
        self.consumer.topics()  # else its first assignment may be computed without the partitions of the topic

    def poll(self) -> list[Found]:
        return [Found(each.partition, each.offset, each.value.decode()) for part in self.consumer.poll(100).values() for each in part]

    def close(self) -> None:
        self.consumer.close()


class KafkaPythonClient:
    """kafka-python."""

    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def producer(self, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> Producer:
        return KafkaPythonProducer(self._bootstrap, transactional_id, timeout_ms)

    def member(self, topic: str, group: str) -> Member:
        return KafkaPythonMember(self._bootstrap, topic, group)

    def read(self, topic: str, partitions: int = 1, *, committed: bool = True) -> list[Found]:
        consumer = kafka.KafkaConsumer(**pythonic_consumer(self._bootstrap, None, committed=committed))
        assigned = [kafka.TopicPartition(topic, partition) for partition in range(partitions)]
        consumer.assign(assigned)
        ends = consumer.end_offsets(assigned)
        consumer.seek_to_beginning(*assigned)
        found = []
        while any(consumer.position(each) < ends[each] for each in assigned):
            for part in consumer.poll(100).values():
                found += [Found(each.partition, each.offset, each.value.decode()) for each in part]
        consumer.close()
        return found
