"""A log directory whose disk is full goes offline: producers are told so, and the other directory goes on."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as confluent
import pytest

from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.clients import ConfluentClient, Record, read_all
from tests.support.small_disk import a_small_disk

TOPIC = "spread"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MiB."""
    with a_small_disk(tmp_path / "small", "6m") as disk:
        yield disk


def partition_in(broker: BrokerProcess, log_dir: Path) -> int:
    """The partition of the topic that stands there."""
    (found,) = log_dir.glob(f"{TOPIC}-*")
    return int(found.name.rpartition("-")[2])


def write(broker: BrokerProcess, partition: int, values: list[bytes]) -> list[int]:
    """The error code of each record, 0 if it was acknowledged; nothing is tried twice."""
    codes: list[int] = []
    config = {"bootstrap.servers": broker.bootstrap, "retries": 0, "message.timeout.ms": 3000, "batch.num.messages": 1, "log_level": 0}
    producer = confluent.Producer({**config, "acks": "all"})
    for value in values:
        producer.produce(TOPIC, value, partition=partition, on_delivery=lambda error, _: codes.append(error.code() if error else 0))
        assert producer.flush(20) == 0
    return codes


def test_a_full_disk_takes_its_directory_offline_and_no_other(tmp_path: Path, small_disk: Path) -> None:
    large, small = tmp_path / "large", small_disk / "data"
    with a_broker(tmp_path, log_dirs=f"{large},{small}", log_index_size_max_bytes=4096) as broker:
        ConfluentClient(broker.bootstrap).create_topic(TOPIC, 2)
        on_large, on_small = partition_in(broker, large), partition_in(broker, small)
        values = [b"%03d" % number + bytes(300_000) for number in range(30)]

        codes = write(broker, on_small, values)

        acknowledged = codes.index(confluent.KafkaError.KAFKA_STORAGE_ERROR)
        assert codes[:acknowledged] == [0] * acknowledged
        assert acknowledged > 10
        assert 0 not in codes[acknowledged:]
        assert str(small) in broker.log()

        assert write(broker, on_large, values) == [0] * len(values)
        read = read_all(broker.bootstrap, [(TOPIC, on_large)])[TOPIC, on_large]
        assert [record.value for record in read] == values
        client = ConfluentClient(broker.bootstrap)
        client.create_topic("later", 3)
        client.produce("later", [Record(b"value")])
        assert len(list(large.glob("later-*"))) == 3

        # With more room, all that was acknowledged is there after a restart.
        assert broker.stop() == 0
        assert (large / ".kafka_cleanshutdown").exists()
        subprocess.run(["mount", "-o", "remount,size=60m", str(small_disk)], check=True)
        broker.start()
        assert write(broker, on_small, [b"again"]) == [0]
        read = read_all(broker.bootstrap, [(TOPIC, on_small)])[TOPIC, on_small]
        assert [record.value for record in read][:acknowledged] == values[:acknowledged]
        assert read[-1].value == b"again"


def test_a_broker_whose_last_disk_is_full_ends_with_an_error(tmp_path: Path, small_disk: Path) -> None:
    with a_broker(tmp_path, log_dirs=small_disk / "data", log_index_size_max_bytes=4096) as broker:
        ConfluentClient(broker.bootstrap).create_topic(TOPIC)

        codes: list[int] = []
        while broker.is_running and len(codes) < 100:
            codes += write(broker, 0, [bytes(300_000)])

        assert codes.count(0) > 10
        eventually(lambda: not broker.is_running, 30, "its end")
        assert broker.wait() == 1
        assert "Traceback" not in broker.log()
