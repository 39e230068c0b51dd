"""The launcher of a real Apache Kafka, its tools, and the load generator against it."""

import time
from functools import partial
from pathlib import Path

import pytest

from benchmarks.brokers import process
from benchmarks.loadgen import librdkafka
from benchmarks.loadgen.runner import Load, LoadFailedError, run_load
from benchmarks.loads import frames
from benchmarks.loads.admin import Admin, BrokerRefusedError
from benchmarks.loads.batches import batch_of_size, batch_of_values, values_like_text
from tests.support.apache_kafka import ApacheKafka, DidNotStartError, ZooKeeper, known_brokers, run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually

pytestmark = [*needs_apache_kafka, pytest.mark.slow]


def a_load(prepared: list[bytes], error_offsets: tuple[int, ...], total: int) -> Load:
    return Load(prepared, connections=2, in_flight=2, warm_up_s=0, duration_s=60, total=total, error_offsets=error_offsets)


def now_ms() -> int:
    return int(time.time() * 1000)


def test_tools_write_read_and_describe(kafka: ApacheKafka) -> None:
    to = ("--bootstrap-server", kafka.bootstrap)

    created = run_tool("org.apache.kafka.tools.TopicCommand", *to, "--create", "--topic", "tools", "--partitions", "1")
    written = run_tool("kafka.tools.ConsoleProducer", *to, "--topic", "tools", input="one\ntwo\n")
    reading = ("--topic", "tools", "--from-beginning", "--max-messages", "2")
    read = run_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *to, *reading)
    segment = kafka.data_directory() / "tools-0" / "00000000000000000000.log"
    dumped = run_tool("kafka.tools.DumpLogSegments", "--files", str(segment), "--print-data-log")

    assert (created.returncode, created.stdout) == (0, "Created topic tools.\n")
    assert written.returncode == 0, written.stderr
    assert read.stdout == "one\ntwo\n"
    assert "payload: two" in dumped.stdout


def test_a_load_of_produce_requests_is_answered_and_can_be_fetched(kafka: ApacheKafka) -> None:
    with Admin("127.0.0.1", kafka.port()) as admin:
        topic = admin.create_topic("loaded", 2)
    batch = batch_of_size(16384, 150, now_ms(), "lz4")

    produced = run_load(
        "127.0.0.1",
        kafka.port(),
        a_load([frames.produce("loaded", partition, batch) for partition in (0, 1)], frames.produce_error_offsets("loaded"), 100),
        probe=partial(process.cpu_s, kafka.pid()),
    )
    asked = [frames.fetch(topic.topic_id, partition, 0, 65536) for partition in (0, 1)]
    fetched = run_load("127.0.0.1", kafka.port(), a_load(asked, frames.fetch_error_offsets(), 20))

    assert produced.responses >= 100
    assert produced.broker_cpu_s > 0
    assert fetched.bytes_received / fetched.responses > 65000


def test_a_load_with_a_broken_batch_fails_with_the_brokers_error_code(kafka: ApacheKafka) -> None:
    with Admin("127.0.0.1", kafka.port()) as admin:
        admin.create_topic("broken", 1)
    batch = bytearray(batch_of_values(values_like_text(1, 100), now_ms()))
    batch[-1] ^= 1

    with pytest.raises(LoadFailedError, match="first code 2\\)"):  # CORRUPT_MESSAGE
        run_load("127.0.0.1", kafka.port(), a_load([frames.produce("broken", 0, bytes(batch))], frames.produce_error_offsets("broken"), 10))


def test_topics_cannot_be_made_twice_and_can_be_dropped(kafka: ApacheKafka) -> None:
    with Admin("127.0.0.1", kafka.port()) as admin:
        admin.create_topic("twice", 1)
        with pytest.raises(BrokerRefusedError, match="error code 36"):  # TOPIC_ALREADY_EXISTS
            admin.create_topic("twice", 1)
        admin.delete_topic("twice")
        with pytest.raises(BrokerRefusedError, match="error code 3"):  # UNKNOWN_TOPIC_OR_PARTITION
            admin.delete_topic("twice")


@pytest.mark.parametrize("group", [True, False])
def test_librdkafka_reads_back_as_many_messages_as_it_wrote(kafka: ApacheKafka, group: bool) -> None:
    name = f"librdkafka-{group}"
    with Admin("127.0.0.1", kafka.port()) as admin:
        admin.create_topic(name, 2)

    produced = librdkafka.produce(kafka.bootstrap, name, 0.1, 0.3, lambda: 0.0)
    consumed = librdkafka.consume(kafka.bootstrap, name, produced.in_all, 2, lambda: 0.0, group=group)

    assert produced.in_all > 0
    assert 0 <= produced.count <= produced.in_all  # none, where a busy machine acknowledges nothing within the window
    assert 0 <= consumed.count <= produced.in_all


@pytest.mark.soak
def test_a_killed_broker_comes_back_on_its_port_with_its_data(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path, first_id=1, heap="256m") as kafka:
        port = kafka.port(1)
        kafka.kill_broker(1)
        kafka.start_broker(1)

        assert kafka.port(1) == port
        eventually(lambda: known_brokers("127.0.0.1", port)[1] >= {1})
        assert (kafka.data_directory(1) / "meta.properties").exists()


def test_a_zookeeper_alone_keeps_its_port_over_a_restart(tmp_path: Path) -> None:
    zookeeper = ZooKeeper(tmp_path)
    zookeeper.start()
    try:
        address = zookeeper.connect
        zookeeper.kill()
        zookeeper.start()

        assert zookeeper.connect == address
        assert not zookeeper.has_ephemeral("/brokers/ids/0")
    finally:
        zookeeper.stop()


@pytest.mark.soak
def test_a_broker_that_refuses_its_configuration_is_reported_with_its_log(tmp_path: Path) -> None:
    kafka = ApacheKafka(tmp_path, config={"log.retention.bytes": "many"}, heap="256m")

    with pytest.raises(DidNotStartError, match=r"ended before it served(.|\n)*log\.retention\.bytes"):
        kafka.start()
