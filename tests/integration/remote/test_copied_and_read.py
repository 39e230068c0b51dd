"""A broker moves closed segments to its remote store, removes them here, and clients read all records as before."""

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.config.remote_storage import AIVEN_REMOTE_STORAGE, LOCAL_TIERED_STORAGE
from ottla.controller.znodes.layout import config_path
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.moto_server import s3_keys
from tests.support.remote_stores import KEY_RING
from tests.support.s3_servers import an_s3_server
from tests.support.several_brokers import until

RECORDS = 400
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
    "remote.log.manager.task.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
    "ottla.metrics.listener": "127.0.0.1:0",
    "file.delete.delay.ms": "0",
}
TOPIC = {
    "remote.storage.enable": "true", "segment.bytes": "20000", "local.retention.bytes": "1", "retention.ms": "-1",
    "index.interval.bytes": "1000", "file.delete.delay.ms": "0",
}  # fmt: skip

CHUNKS = {"chunk.size": "4096", "key.prefix": "tier/"}
OF_STORE = {"": CHUNKS, " with zstd": CHUNKS | {"compression.enabled": "true"}, " encrypted": CHUNKS | KEY_RING}

ON_VERSITYGW = [pytest.param(f"versitygw{more}", marks=pytest.mark.soak) for more in OF_STORE]


@pytest.fixture(params=["directory", *(f"moto{more}" for more in OF_STORE), *ON_VERSITYGW])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    if request.param == "directory":
        shared = tmp_path / "shared"
        shared.mkdir()
        yield SETTINGS | {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(shared)}
        return
    kind, space, more = request.param.partition(" ")
    with an_s3_server(kind, tmp_path / "s3", "bucket") as s3:
        keys = s3_keys(s3.url, **OF_STORE[space + more])
        yield SETTINGS | {"remote.log.storage.manager.class.name": AIVEN_REMOTE_STORAGE, **keys}


def fill(broker: InProcessBroker, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", partitions, 1, config=TOPIC)])["t"].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.num.messages": 5})
    for at in range(RECORDS):
        for partition in range(partitions):
            producer.produce("t", f"{at:05d}" * 100, partition=partition, timestamp=1_700_000_000_000 + at)
        if at % 20 == 19:
            assert producer.flush(30) == 0


def local_starts(broker: InProcessBroker, partitions: int) -> list[int]:
    found = broker.services.data.replica_manager.partitions["t"]
    return broker.run(lambda: [found[index].log.local_log_start_offset for index in range(partitions)])


def copies_below(folder: Path, offset: int) -> list[str]:
    """The names of the copies that begin below an offset. A later copy may be unfinished, and is made again under another name."""
    return sorted(each.name for each in folder.rglob("*.log") if int(each.name[:20]) < offset)


def scrape(broker: InProcessBroker) -> dict[str, float]:
    metrics = broker.broker.metrics
    assert metrics is not None
    with urlopen(f"http://{metrics.address}/metrics") as answer:
        samples = (line.split() for line in answer.read().decode().splitlines() if line.startswith(("kafka_server_broker", "ottla_")))
    return {sample[0]: float(sample[1]) for sample in samples if "{" not in sample[0]}


def consume(broker: InProcessBroker, *begins: TopicPartition) -> dict[int, list[tuple[int, bytes]]]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False, "check.crcs": True})
    consumer.assign(list(begins))
    found: dict[int, list[tuple[int, bytes]]] = {begin.partition: [] for begin in begins}
    deadline = time.monotonic() + 60
    try:
        while any(not records or records[-1][0] < RECORDS - 1 for records in found.values()):
            assert time.monotonic() < deadline, {index: len(records) for index, records in found.items()}
            for message in consumer.consume(500, 0.5):
                assert message.error() is None, message.error()
                found[message.partition()].append((message.offset(), message.value()))
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("found", [b'{"version":1,"config":{"retention.ms":"1000"}}', b"{"], ids=["removed", "malformed"])
@pytest.mark.parametrize("settings", ["directory"], indirect=True)
def test_a_start_without_the_remote_storage_of_a_topic_loses_nothing(settings: dict[str, str], tmp_path: Path, found: bytes) -> None:
    with a_broker_in_process(tmp_path / "logs", **settings) as broker:
        fill(broker, 1)
        until(lambda: local_starts(broker, 1)[0] > RECORDS // 2)
        local_start = local_starts(broker, 1)[0]
        broker.run(broker.services.administration.store.set, config_path("topics", "t"), found)
    stored = copies_below(tmp_path / "shared", local_start)
    with a_broker_in_process(tmp_path / "logs", **settings) as broker:
        for _ in range(2):  # checks of retention happen meanwhile
            read = consume(broker, TopicPartition("t", 0, 0))[0]
            assert read == [(at, (f"{at:05d}" * 100).encode()) for at in range(RECORDS)]
        assert copies_below(tmp_path / "shared", local_start) == stored


@pytest.mark.parametrize("settings", ["directory"], indirect=True)
def test_a_start_without_the_checkpoint_of_log_starts_loses_nothing(settings: dict[str, str], tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path / "logs", **settings) as broker:
        fill(broker, 1)
        until(lambda: local_starts(broker, 1)[0] > RECORDS // 2)
        local_start = local_starts(broker, 1)[0]
    (tmp_path / "logs" / "log-start-offset-checkpoint").unlink()
    stored = copies_below(tmp_path / "shared", local_start)
    with a_broker_in_process(tmp_path / "logs", **settings) as broker:
        for _ in range(2):  # checks of retention happen meanwhile
            read = consume(broker, TopicPartition("t", 0, 0))[0]
            assert read == [(at, (f"{at:05d}" * 100).encode()) for at in range(RECORDS)]
        assert copies_below(tmp_path / "shared", local_start) == stored


def test_all_records_are_read_wherever_they_are_also_after_a_restart(settings: dict[str, str], tmp_path: Path) -> None:
    partitions = 3
    everything = [(at, (f"{at:05d}" * 100).encode()) for at in range(RECORDS)]
    with a_broker_in_process(tmp_path / "logs", **settings) as broker:
        fill(broker, partitions)
        until(lambda: min(local_starts(broker, partitions)) > RECORDS // 2)
        begins = [TopicPartition("t", index, 0) for index in range(partitions)]
        assert consume(broker, *begins) == dict.fromkeys(range(partitions), everything)
        metrics = scrape(broker)
        assert metrics["kafka_server_brokertopicmetrics_remotefetchbytes_total"] > 100_000
        assert metrics["kafka_server_brokertopicmetrics_remotecopyrequests_total"] >= 2 * partitions
        assert metrics["kafka_server_brokertopicmetrics_remotefetcherrors_total"] == 0
        assert metrics["ottla_remote_chunk_cache_bytes"] > 100_000
    with a_broker_in_process(tmp_path / "logs", **settings) as broker:
        assert min(local_starts(broker, partitions)) > RECORDS // 2
        assert consume(broker, TopicPartition("t", 1, 7)) == {1: everything[7:]}
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        assert consumer.get_watermark_offsets(TopicPartition("t", 0), 10) == (0, RECORDS)
        (found,) = consumer.offsets_for_times([TopicPartition("t", 2, 1_700_000_000_033)], 10)
        assert found.offset == 33
        consumer.close()
