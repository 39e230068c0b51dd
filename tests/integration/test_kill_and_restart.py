"""A broker is killed under hundreds of thousands of messages: nothing is lost, nothing comes twice, every partition keeps its order.

Values are the numbers 0, 1, 2 ... as four bytes each, so that what a partition holds is compared as one block of memory.
"""

import signal
import sys
from array import array
from functools import partial
from itertools import pairwise
from pathlib import Path

import confluent_kafka as confluent
import pytest

from ottla.protocol.records.batch import BatchHeader
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.clients import ConfluentClient
from tests.support.segment_files import batch_headers

COUNT = 400_000
PARTITIONS = 4
CHUNK = 500  # numbers go to one partition until so many are there, then to the next
KILLS = (120_000, 240_000)  # so much is written when the broker begins to die
TOPIC = "numbers"

pytestmark = pytest.mark.slow


def expected() -> list[bytes]:
    """The content of each partition."""
    numbers: list[array[int]] = [array("I") for _ in range(PARTITIONS)]
    for start in range(0, COUNT, CHUNK):
        numbers[start // CHUNK % PARTITIONS].extend(range(start, start + CHUNK))
    if sys.byteorder == "little":
        for of_partition in numbers:
            of_partition.byteswap()
    return [of_partition.tobytes() for of_partition in numbers]


def headers(broker: BrokerProcess) -> list[BatchHeader]:
    """Of all batches on the disk."""
    return [header for partition in range(PARTITIONS) for header in batch_headers(broker.data / f"{TOPIC}-{partition}")]


class Writer:
    """Produces the numbers in order, and counts what could not be delivered."""

    def __init__(self, broker: BrokerProcess, **config: object) -> None:
        settings = {"bootstrap.servers": broker.bootstrap, "acks": "all", "log_level": 0, "linger.ms": 5, "reconnect.backoff.max.ms": 200}
        settings |= {"queue.buffering.max.messages": COUNT + 1, "queue.buffering.max.kbytes": 1 << 20}
        settings |= {"delivery.report.only.error": True, "on_delivery": self._failed}
        self._producer = confluent.Producer(settings | {name.replace("_", "."): value for name, value in config.items()})
        self._written = 0
        self.failures: list[confluent.KafkaError] = []

    def _failed(self, error: confluent.KafkaError | None, _: confluent.Message) -> None:
        if error is not None:
            self.failures.append(error)

    def write(self, start: int, end: int) -> None:
        produce = self._producer.produce
        for first in range(start, end, CHUNK):
            for number in range(first, first + CHUNK):
                produce(TOPIC, number.to_bytes(4, "big"), partition=first // CHUNK % PARTITIONS)
            self._written += CHUNK
            self._producer.poll(0)

    def has_delivered(self, count: int) -> bool:
        self._producer.poll(0)  # what was delivered counts as waiting until then
        return self._written - len(self._producer) >= count

    def finish(self) -> None:
        assert self._producer.flush(90) == 0
        assert self.failures == []


class Reader:
    """Reads all partitions from the start and keeps their values joined."""

    def __init__(self, broker: BrokerProcess) -> None:
        config = {"group.id": "unused", "enable.auto.commit": False, "reconnect.backoff.max.ms": 200, "log_level": 0}
        self._consumer = confluent.Consumer({"bootstrap.servers": broker.bootstrap, **config})
        self._consumer.assign([confluent.TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        self._values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.count = 0

    def read_until(self, count: int) -> None:
        def read() -> bool:
            for message in self._consumer.consume(20_000, 0.2):
                if message.error() is None:
                    self._values[message.partition()].append(message.value())
                    self.count += 1
            return self.count >= count

        eventually(read, 90, f"{count} messages")

    def finish(self) -> list[bytes]:
        assert self._consumer.consume(1, 0.5) == []
        self._consumer.close()
        return [b"".join(values) for values in self._values]


def test_hundreds_of_thousands_of_messages_come_back_in_order_though_the_broker_is_killed_while_they_are_read(tmp_path: Path) -> None:
    with a_broker(tmp_path) as broker:
        ConfluentClient(broker.bootstrap).create_topic(TOPIC, PARTITIONS, {"segment.bytes": "1048576"})
        writer = Writer(broker)
        writer.write(0, COUNT)
        writer.finish()
        reader = Reader(broker)
        reader.read_until(COUNT // 3)

        broker.kill()
        broker.start()
        reader.read_until(COUNT)

        assert reader.finish() == expected()
        assert ConfluentClient(broker.bootstrap).offsets(TOPIC, PARTITIONS) == [(0, COUNT // PARTITIONS)] * PARTITIONS


@pytest.mark.parametrize("codec", ["none", pytest.param("lz4", marks=pytest.mark.soak)])
def test_an_idempotent_producer_leaves_no_gap_and_no_duplicate_though_the_broker_is_killed_twice(tmp_path: Path, codec: str) -> None:
    with a_broker(tmp_path) as broker:
        ConfluentClient(broker.bootstrap).create_topic(TOPIC, PARTITIONS, {"segment.bytes": "1048576"})
        writer = Writer(broker, enable_idempotence=True, compression_type=codec, batch_num_messages=500)

        writer.write(0, KILLS[0])
        for end, next_end in pairwise((*KILLS, COUNT)):
            eventually(partial(writer.has_delivered, end - COUNT // 4), 60, "most of it")
            broker.signal(signal.SIGSTOP)
            writer.write(end, next_end)  # waits, or is on its way, when the broker dies
            broker.kill()
            assert sum(header.record_count for header in headers(broker)) <= end
            broker.start()
        writer.finish()

        reader = Reader(broker)
        reader.read_until(COUNT)
        assert reader.finish() == expected()
