"""What a broker does about directories that are broken when it starts or break while it runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import confluent_kafka as confluent
import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.admin_requests import OK, a_topic, create, delete, said
from tests.support.batches import a_batch
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.clients import ConfluentClient, read_all
from tests.support.small_disk import a_small_disk
from tests.support.wire_client import WireClient, a_wire_client

TOPIC = "t"


def write(client: WireClient, partition: int, topic: str = TOPIC) -> str:
    """The name of the error code of one produced batch."""
    data = PartitionProduceData(index=partition, records=bytes(a_batch(3)))
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
    return ErrorCode.of(client.ask(request, 9).responses[0].partition_responses[0].error_code).name


def where(directory: Path) -> int:
    """The partition of the topic that stands there."""
    (found,) = directory.glob(f"{TOPIC}-?")
    return int(found.name.rpartition("-")[2])


def log_of(broker: BrokerProcess) -> str:
    """All of it."""
    return broker.log_file.read_text()


def count(broker: BrokerProcess, partition: int) -> int:
    return len(read_all(broker.bootstrap, [(TOPIC, partition)])[TOPIC, partition])


def test_garbage_in_a_checkpoint_takes_that_directory_out_and_the_other_serves(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with a_broker(tmp_path, broker_id=0, log_dirs=f"{a},{b}") as broker:
        with a_wire_client(broker.port) as client:
            create(client, a_topic(TOPIC, 2))
            assert [write(client, partition) for partition in (0, 1)] == ["NONE", "NONE"]
        in_a, in_b = where(a), where(b)
        broker.stop()
        good = (b / "recovery-point-offset-checkpoint").read_bytes()
        (b / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\ngarbage\n")
        broker.start()
        with a_wire_client(broker.port) as client:
            assert (write(client, in_a), write(client, in_b)) == ("NONE", "KAFKA_STORAGE_ERROR")
        assert f"{b}/recovery-point-offset-checkpoint" in log_of(broker)
        broker.stop()
        (b / "recovery-point-offset-checkpoint").write_bytes(good)
        broker.start()
        assert (count(broker, in_a), count(broker, in_b)) == (6, 3)


def test_what_a_cleaning_left_and_an_index_of_another_log_do_no_harm(tmp_path: Path) -> None:
    with a_broker(tmp_path, broker_id=0) as broker:
        client = ConfluentClient(broker.bootstrap)
        client.create_topic(TOPIC, 2)
        producer = confluent.Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 10})
        for number in range(2000):
            producer.produce(TOPIC, b"%d" % number + b"x" * (100 + number % 50), partition=number % 2)
        assert producer.flush(30) == 0
        broker.stop()
        zero, one = broker.data / f"{TOPIC}-0", broker.data / f"{TOPIC}-1"
        (zero / f"{0:020d}.log.cleaned").write_bytes(b"garbage")
        (zero / f"{0:020d}.index.cleaned").write_bytes(b"garbage")
        (zero / f"{0:020d}.index").write_bytes((one / f"{0:020d}.index").read_bytes()[:64])
        (one / f"{0:020d}.timeindex").unlink()
        broker.start()
        for partition in (0, 1):
            values = [int(record.value.partition(b"x")[0]) for record in read_all(broker.bootstrap, [(TOPIC, partition)])[TOPIC, partition]]
            assert values == list(range(partition, 2000, 2))
        assert not list(zero.glob("*.cleaned"))
        assert f"{one}/{0:020d}.log: its index files are missing or wrong" in log_of(broker)


def test_a_log_of_another_topic_of_that_name_is_set_aside_and_not_served(tmp_path: Path) -> None:
    with a_broker(tmp_path, broker_id=0) as broker:
        with a_wire_client(broker.port) as client:
            create(client, a_topic(TOPIC), a_topic("u"))
            assert [write(client, 0, topic) for topic in (TOPIC, "u")] == ["NONE", "NONE"]
        broker.stop()
        former = (broker.data / f"{TOPIC}-0" / f"{0:020d}.log").read_bytes()
        metadata = broker.data / f"{TOPIC}-0" / "partition.metadata"
        metadata.write_bytes((broker.data / "u-0" / "partition.metadata").read_bytes())
        broker.start()
        with a_wire_client(broker.port) as client:
            assert [write(client, 0, topic) for topic in (TOPIC, "u")] == ["NONE", "NONE"]
        assert f"{TOPIC}-0: its topic was deleted while this broker was away" in log_of(broker)
        (stray,) = broker.data.glob(f"{TOPIC}-0.*-stray")
        assert (stray / f"{0:020d}.log").read_bytes() == former


SMALL_SEGMENTS = {"log_segment_bytes": 1000, "log_index_size_max_bytes": 4096}


def test_a_directory_that_is_read_only_at_the_start_is_offline_and_the_other_serves(tmp_path: Path) -> None:
    a = tmp_path / "a"
    with a_small_disk(tmp_path / "disk", "20m") as disk:
        b = disk / "b"
        with a_broker(tmp_path, broker_id=0, log_dirs=f"{a},{b}") as broker:
            with a_wire_client(broker.port) as client:
                create(client, a_topic(TOPIC, 2))
                assert [write(client, partition) for partition in (0, 1)] == ["NONE", "NONE"]
            in_a, in_b = where(a), where(b)
            broker.stop()
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            broker.start()
            with a_wire_client(broker.port) as client:
                assert (write(client, in_a), write(client, in_b)) == ("NONE", "KAFKA_STORAGE_ERROR")
            assert f"log directory {b} is offline" in log_of(broker)
            assert "Read-only file system" in log_of(broker)
            broker.stop()
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
            broker.start()
            assert (count(broker, in_a), count(broker, in_b)) == (6, 3)


def test_partitions_that_are_created_on_a_full_disk_take_its_directory_offline_and_the_others_serve(tmp_path: Path) -> None:
    a = tmp_path / "a"
    with a_small_disk(tmp_path / "disk", "20m") as disk:
        b = disk / "b"
        with a_broker(tmp_path, broker_id=0, log_dirs=f"{a},{b}") as broker, a_wire_client(broker.port) as client:
            create(client, a_topic(TOPIC, 2))
            in_a, in_b = where(a), where(b)
            assert [write(client, partition) for partition in (0, 1)] == ["NONE", "NONE"]
            subprocess.run(["dd", "if=/dev/zero", f"of={disk}/filler", "bs=4096"], check=False, capture_output=True)
            create(client, a_topic("u", 6))
            codes = ["NONE"]
            while codes[-1] == "NONE" and len(codes) < 1000:
                codes.append(write(client, in_b))
            assert codes[-1] == "KAFKA_STORAGE_ERROR"
            assert write(client, in_a) == "NONE"
            made_in_a = [int(found.name.rpartition("-")[2]) for found in a.glob("u-?")]
            assert len(made_in_a) >= 3
            assert {write(client, partition, "u") for partition in made_in_a} == {"NONE"}
            assert f"log directory {b} is offline" in log_of(broker)
            assert "No space left on device" in log_of(broker)
            (disk / "filler").unlink()
            assert broker.stop() == 0
            broker.start()
            assert count(broker, in_b) == 3 * (len(codes) - 1)


def test_a_directory_that_vanishes_goes_offline_and_the_other_serves(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with a_broker(tmp_path, broker_id=0, log_dirs=f"{a},{b}", **SMALL_SEGMENTS) as broker:
        with a_wire_client(broker.port) as client:
            create(client, a_topic(TOPIC, 2))
            in_a, in_b = where(a), where(b)
            assert write(client, in_b) == "NONE"
            b.rename(tmp_path / "gone")
            codes = [write(client, in_b) for _ in range(30)]
            acknowledged = codes.index("KAFKA_STORAGE_ERROR")
            assert set(codes[:acknowledged]) <= {"NONE"}
            assert set(codes[acknowledged:]) == {"KAFKA_STORAGE_ERROR"}
            assert [write(client, in_a) for _ in range(30)] == ["NONE"] * 30
        (line,) = [line for line in log_of(broker).splitlines() if " ERROR " in line]
        assert f"log directory {b} is offline: {b}" in line
        assert "No such file or directory" in line
        assert broker.stop() == 0
        (tmp_path / "gone").rename(b)
        broker.start()
        assert count(broker, in_b) == 3 * (1 + acknowledged)
        assert count(broker, in_a) == 90


def test_a_topic_is_deleted_and_created_again_while_a_directory_is_offline_and_no_old_record_comes_back(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with a_broker(tmp_path, broker_id=0, log_dirs=f"{a},{b}", **SMALL_SEGMENTS) as broker:
        with a_wire_client(broker.port) as client:
            create(client, a_topic(TOPIC, 2))
            in_b = where(b)
            assert [write(client, partition) for partition in (0, 1, in_b)] == ["NONE"] * 3
            b.rename(tmp_path / "gone")
            while write(client, in_b) != "KAFKA_STORAGE_ERROR":
                pass
            assert [said(result) for result in delete(client, TOPIC)] == [OK]
            assert [said(result) for result in create(client, a_topic(TOPIC, 2))] == [OK]
            assert [write(client, partition) for partition in (0, 1)] == ["NONE"] * 2
        assert broker.stop() == 0
        (tmp_path / "gone").rename(b)
        broker.start()
        assert [count(broker, partition) for partition in (0, 1)] == [3, 3]
        (stray,) = b.glob(f"{TOPIC}-{in_b}.*-stray")
        assert (stray / f"{0:020d}.log").stat().st_size
        assert not (b / f"{TOPIC}-{in_b}").exists()


def test_a_broker_whose_last_directory_fails_stops_with_status_1(tmp_path: Path) -> None:
    with a_broker(tmp_path, broker_id=0, **SMALL_SEGMENTS) as broker:
        with a_wire_client(broker.port) as client:
            create(client, a_topic(TOPIC))
            assert write(client, 0) == "NONE"
            (broker.data / f"{TOPIC}-0").rename(broker.data / "elsewhere")
            with pytest.raises(ConnectionError):
                while True:
                    write(client, 0)
        assert broker.wait() == 1
        assert f"none of the log directories can be used: {broker.data} (" in log_of(broker)
        (broker.data / "elsewhere").rename(broker.data / f"{TOPIC}-0")
        broker.start()
        assert count(broker, 0) >= 3
        assert broker.stop() == 0
