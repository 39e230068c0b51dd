"""Idempotent producers over a network that cuts, delays and trickles, and a broker that dies: no duplicate, no gap, no disorder.

The values are numbers, written in order; what a partition holds must be the ascending numbers that went to it, and all together each number
once. Five requests are in flight, so that a cut leaves the broker and the producer with different ideas of what was written.
"""

import os
import threading
import time
from pathlib import Path

import confluent_kafka as confluent
import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.reader import iter_records
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.apache_kafka.tools import run_tool
from tests.support.batches import a_batch
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.clients import ConfluentClient
from tests.support.cutting_proxy import CuttingProxy, a_broker_behind, a_cutting_proxy
from tests.support.wire_client import WireClient, a_wire_client

PARTITIONS = 4
RECORDS = 30_000
TOPIC = "numbers"
SECONDS = 90.0

pytestmark = pytest.mark.slow


class Writer:
    """Produces the numbers in order, in small batches, and counts what was delivered."""

    def __init__(self, bootstrap: str) -> None:
        self.delivered = 0
        self.failures: list[confluent.KafkaError] = []
        config: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "max.in.flight.requests.per.connection": 5,
            "batch.num.messages": 20,
            "linger.ms": 1,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
        self._producer = confluent.Producer(config)

    def _on_delivery(self, error: confluent.KafkaError | None, _: confluent.Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failures.append(error)

    def write(self) -> None:
        for number in range(RECORDS):
            self._producer.produce(TOPIC, str(number), partition=number // 10 % PARTITIONS, on_delivery=self._on_delivery)
            if number % 10 == 0:
                self._producer.poll(0.001)
        assert self._producer.flush(SECONDS) == 0


def numbers_on_disk(broker: BrokerProcess) -> list[list[int]]:
    """The values in each partition's log, by offset."""
    found = []
    for partition in range(PARTITIONS):
        data = b"".join(path.read_bytes() for path in sorted((broker.data / f"{TOPIC}-{partition}").glob("*.log")))
        records = [record for position, header in iter_batches(data) for record in iter_records(data, position, header)]
        assert [record.offset for record in records] == list(range(len(records)))
        found.append([int(record.value or b"") for record in records])
    return found


def assert_all_is_there_once_and_in_order(broker: BrokerProcess, count: int) -> None:
    partitions = numbers_on_disk(broker)
    assert [numbers == sorted(numbers) for numbers in partitions] == [True] * PARTITIONS
    assert sorted(number for numbers in partitions for number in numbers) == list(range(count))


def interrupt(broker: BrokerProcess, how: str) -> None:
    """The broker goes away, in one way or the other, and comes back."""
    if how == "killed":
        broker.kill()
    else:
        broker.stop()
    broker.start()


@pytest.mark.parametrize("seed", range(10 if "OTTLA_SOAK" in os.environ else 1))
def test_librdkafka_writes_each_number_once_over_connections_that_are_cut(seed: int, tmp_path: Path) -> None:
    with a_cutting_proxy(seed) as proxy, a_broker_behind(proxy, tmp_path) as broker:
        create_topic(broker, proxy)
        writer = Writer(broker.bootstrap)
        writing = threading.Thread(target=writer.write)
        writing.start()
        for part, how in enumerate(("killed", "stopped"), 1):
            eventually(lambda part=part: writer.delivered > part * RECORDS // 4, SECONDS, f"{part} quarters of the numbers")
            interrupt(broker, how)
        writing.join()
        assert writer.failures == []
        assert writer.delivered == RECORDS
        assert proxy.cuts > 10
        assert_all_is_there_once_and_in_order(broker, RECORDS)


@pytest.mark.java
@needs_apache_kafka[1]
def test_the_java_producer_writes_each_number_once_over_connections_that_are_cut(tmp_path: Path) -> None:
    lines = "".join(f"{number:0100}\n" for number in range(RECORDS))
    properties = {
        "enable.idempotence": "true",
        "max.in.flight.requests.per.connection": "5",
        "batch.size": "2000",
        "linger.ms": "1",
        "retry.backoff.ms": "20",
        "retry.backoff.max.ms": "100",
        "reconnect.backoff.ms": "10",
        "reconnect.backoff.max.ms": "100",
    }
    arguments = [argument for name, value in properties.items() for argument in ("--producer-property", f"{name}={value}")]
    with a_cutting_proxy(7) as proxy, a_broker_behind(proxy, tmp_path) as broker:
        create_topic(broker, proxy)
        to = ("--bootstrap-server", broker.bootstrap, "--topic", TOPIC, "--max-partition-memory-bytes", "2000")
        to += ("--message-send-max-retries", str(2**31 - 1))  # the tool would give up after three, the producer by itself does not
        said: list[str] = []

        def write() -> None:
            done = run_tool("kafka.tools.ConsoleProducer", *to, *arguments, input=lines, timeout=SECONDS)
            said.append(f"{done.returncode} {[line for line in done.stderr.splitlines() if 'ERROR' in line]}")

        writing = threading.Thread(target=write)
        writing.start()
        eventually(lambda: sum(map(len, numbers_on_disk(broker))) > RECORDS // 4, SECONDS, "a quarter of the numbers")
        interrupt(broker, "killed")
        writing.join()
        assert said == ["0 []"]
        assert proxy.cuts > 10
        assert_all_is_there_once_and_in_order(broker, RECORDS)


def create_topic(broker: BrokerProcess, proxy: CuttingProxy) -> None:
    """While the network is well."""
    proxy.is_calm = True
    ConfluentClient(broker.bootstrap).create_topic(TOPIC, PARTITIONS)
    proxy.is_calm = False


def produce(client: WireClient, sequence: int, epoch: int = 0) -> tuple[int, int]:
    """(error, base offset) of a batch of one record."""
    now_ms = int(time.time() * 1000)  # who wrote nothing for a day is forgotten
    records = memoryview(a_batch(timestamps=[now_ms], producer_id=1000, producer_epoch=epoch, base_sequence=sequence))
    partitions = [PartitionProduceData(index=0, records=records)]
    request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=partitions)])
    (topic,) = client.ask(request, 9).responses
    (partition,) = topic.partition_responses
    return partition.error_code, partition.base_offset


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_what_a_broker_knows_of_a_producer_outlives_it(how: str, tmp_path: Path) -> None:
    with a_broker(tmp_path) as broker:
        ConfluentClient(broker.bootstrap).create_topic(TOPIC, 1)
        with a_wire_client(broker.port) as client:
            assert [produce(client, sequence) for sequence in range(8)] == [(0, offset) for offset in range(8)]
        for _ in range(2):
            interrupt(broker, how)
            with a_wire_client(broker.port) as client:
                assert [produce(client, sequence) for sequence in range(3, 8)] == [(0, offset) for offset in range(3, 8)]
                assert produce(client, 9) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        with a_wire_client(broker.port) as client:
            assert produce(client, 8) == (0, 8)
            assert produce(client, 0, epoch=1) == (0, 9)
            interrupt(broker, how)
        with a_wire_client(broker.port) as client:
            assert produce(client, 9, epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
            assert produce(client, 0, epoch=1) == (0, 9)
            assert produce(client, 1, epoch=1) == (0, 10)
