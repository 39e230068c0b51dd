"""Real clients read from where they ask to: the start, an offset, a time, the end; and again after the broker has been away."""

import threading
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as confluent
import pytest

from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.clients import Client, Clients, ConfluentClient, Reading, Record

FIRST = 1_700_000_000_000
COUNT = 500
TOPIC = "read"


def a_value(number: int) -> bytes:
    return b"%d-" % number + b"x" * 200


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Holds `TOPIC`: a record a second, in many batches, many segments and all codecs."""
    with a_broker(tmp_path_factory.mktemp("consume"), log_index_interval_bytes=512) as running:
        client = ConfluentClient(running.bootstrap)
        client.create_topic(TOPIC, config={"segment.bytes": "20000", "retention.ms": "-1"})
        for start in range(0, COUNT, 20):
            records = [Record(a_value(number), timestamp=FIRST + 1000 * number) for number in range(start, start + 20)]
            client.produce(TOPIC, records, codec=("none", "gzip", "snappy", "lz4", "zstd")[start // 20 % 5])
        yield running


@pytest.fixture(params=Clients.all)
def client(broker: BrokerProcess, request: pytest.FixtureRequest) -> Client:
    return Clients.all[request.param](broker.bootstrap)


def numbers(found: list[Record]) -> list[int]:
    """What was read, once it is shown to be what was written."""
    for record in found:
        assert record.offset is not None
        assert (record.value, record.timestamp) == (a_value(record.offset), FIRST + 1000 * record.offset)
    return [record.offset for record in found if record.offset is not None]


@pytest.mark.parametrize("committed", [False, True])
def test_from_the_start_everything_comes_in_order(client: Client, committed: bool) -> None:
    assert numbers(client.consume(TOPIC, Reading(committed=committed))) == list(range(COUNT))


@pytest.mark.parametrize("offset", [1, 19, 20, 333, COUNT - 1, COUNT])
def test_from_an_offset_nothing_before_it_comes(client: Client, offset: int) -> None:
    assert numbers(client.consume(TOPIC, Reading(offset))) == list(range(offset, COUNT))


@pytest.mark.parametrize(("late_ms", "first"), [(-1, 0), (0, 0), (1, 1), (250_000, 250), (250_001, 251), (1000 * COUNT, COUNT)])
def test_from_a_time_the_first_record_is_not_older(client: Client, late_ms: int, first: int) -> None:
    assert numbers(client.consume(TOPIC, Reading(timestamp=FIRST + late_ms))) == list(range(first, COUNT))


def test_a_consumer_at_the_end_gets_what_is_written_while_it_waits(broker: BrokerProcess) -> None:
    client = ConfluentClient(broker.bootstrap)
    client.create_topic("awaited")
    consumer = confluent.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "fetch.wait.max.ms": 55_000})
    consumer.assign([confluent.TopicPartition("awaited", 0, 0)])
    assert consumer.poll(0.5) is None  # its fetch waits at the broker by now, unless the machine is very busy
    writer = threading.Thread(target=client.produce, args=("awaited", [Record(b"at last")]))
    writer.start()

    message = consumer.poll(50)  # before the fetch would come back by itself

    writer.join()
    consumer.close()
    assert message is not None
    assert message.value() == b"at last"


@pytest.mark.parametrize(("reset", "offset"), [("earliest", 0), ("latest", COUNT)])
def test_an_offset_that_is_not_there_is_reset(broker: BrokerProcess, reset: str, offset: int) -> None:
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.partition.eof": True, "auto.offset.reset": reset}
    consumer = confluent.Consumer(config)
    consumer.assign([confluent.TopicPartition(TOPIC, 0, COUNT + 1000)])

    message = consumer.poll(60)

    consumer.close()
    assert message is not None
    assert message.offset() == offset


def test_small_fetches_bring_every_batch(broker: BrokerProcess) -> None:
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.partition.eof": True, "fetch.message.max.bytes": 1}
    consumer = confluent.Consumer(config)
    consumer.assign([confluent.TopicPartition(TOPIC, 0, 0)])
    found = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append(message.offset())
    consumer.close()

    assert found == list(range(COUNT))


def test_many_partitions_are_read_in_one_session(broker: BrokerProcess) -> None:
    client = ConfluentClient(broker.bootstrap)
    client.create_topic("wide", 40)
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(4000):
        producer.produce("wide", b"%d" % number, partition=number % 40)
    assert producer.flush(15) == 0
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "auto.offset.reset": "earliest"}
    consumer = confluent.Consumer(config)
    consumer.assign([confluent.TopicPartition("wide", partition, 0) for partition in range(40)])
    by_partition: dict[int, list[int]] = {}
    while sum(map(len, by_partition.values())) < 4000:
        messages = consumer.consume(1000, 15)
        assert messages
        for message in messages:
            by_partition.setdefault(message.partition(), []).append(int(message.value()))
    consumer.close()

    assert by_partition == {partition: list(range(partition, 4000, 40)) for partition in range(40)}


@pytest.mark.parametrize("name", Clients.all)
def test_everything_is_read_again_after_a_restart(tmp_path: Path, name: str) -> None:
    with a_broker(tmp_path) as broker:
        ConfluentClient(broker.bootstrap).create_topic(TOPIC, config={"segment.bytes": "150000", "retention.ms": "-1"})
        client = Clients.all[name](broker.bootstrap)
        sent = [Record(a_value(number)) for number in range(COUNT)]
        client.produce(TOPIC, sent)
        assert broker.stop() == 0
        broker.start()
        client.produce(TOPIC, sent)
        broker.kill()
        broker.start()

        assert [record.value for record in client.consume(TOPIC)] == [record.value for record in sent] * 2
