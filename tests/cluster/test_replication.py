"""Three replicas of a partition: what is acknowledged stands on all in-sync ones, byte for byte."""

from pathlib import Path

from confluent_kafka import Producer

from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.cluster_clients import a_writer, read_all
from tests.support.history import History


def wait_until_logs_are_equal(cluster: Cluster, topic: str, partition: int, replicas: int) -> bytes:
    """Nobody writes any more: all replicas have to come to the same bytes."""

    def look() -> list[bytes]:
        found = cluster.log_files(topic, partition)
        same = set(found.values())
        return list(same) if len(found) == replicas and len(same) == 1 else []

    (same,) = eventually(look, what=f"the logs of {topic}-{partition} are equal")  # type: ignore[misc]  # eventually gives what look gave
    assert isinstance(same, bytes)
    return same


def test_all_replicas_have_the_same_bytes(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t", partitions=3, segment_bytes=16_384)
        history = History()
        with a_writer(cluster, "t", history, partitions=3) as writer:
            writer.go_on_for(600)
        read_all(cluster, "t", history, partitions=3)
        assert history.violations() == []
        for partition in range(3):
            assert cluster.isr_of("t", partition) == {0, 1, 2}
            assert len(wait_until_logs_are_equal(cluster, "t", partition, 3)) > 10_000


def test_every_codec_is_replicated_as_it_came(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 2) as cluster:
        codecs = ("none", "gzip", "snappy", "lz4", "zstd")
        cluster.create_topic("t", partitions=len(codecs))
        for partition, codec in enumerate(codecs):
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": codec, "acks": "all"})
            for number in range(200):
                producer.produce("t", f"record {number} ".encode() * 20, partition=partition)
            assert producer.flush(20) == 0
        for partition in range(len(codecs)):
            assert wait_until_logs_are_equal(cluster, "t", partition, 2)


def test_a_replica_that_was_away_catches_up_and_comes_back_into_the_isr(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t", replicas=[[0, 1, 2]])
        history = History()
        with a_writer(cluster, "t", history) as writer:
            cluster.broker(2).kill()
            cluster.wait_until_isr_is("t", 0, 0, 1)
            writer.go_on_for(300)
            cluster.broker(2).start()
            cluster.wait_until_isr_is("t", 0, 0, 1, 2)
            writer.go_on_for(50)
        wait_until_logs_are_equal(cluster, "t", 0, 3)
        read_all(cluster, "t", history)
        assert history.violations() == []


def test_a_replica_that_lost_its_disk_copies_everything(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t", replicas=[[0, 1, 2]])
        history = History()
        with a_writer(cluster, "t", history) as writer:
            writer.go_on_for(200)
            away = cluster.broker(1)
            away.kill()
            for path in (away.data / "t-0").iterdir():
                path.unlink()
            (away.data / "t-0").rmdir()
            away.start()
            cluster.wait_until_isr_is("t", 0, 0, 1, 2)
        wait_until_logs_are_equal(cluster, "t", 0, 3)


def test_without_enough_in_sync_replicas_nothing_is_acknowledged(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t", replicas=[[0, 1, 2]], min_insync_replicas=2)
        cluster.broker(1).kill()
        cluster.broker(2).kill()
        cluster.wait_until_isr_is("t", 0, 0)
        told: list[str] = []
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "retries": 0, "message.timeout.ms": 3_000})
        producer.produce("t", b"alone", on_delivery=lambda error, _: told.append("" if error is None else error.name()))
        assert producer.flush(20) == 0
        assert told != [""], told
        cluster.broker(1).start()
        cluster.wait_until_isr_is("t", 0, 0, 1)
        history = History()
        with a_writer(cluster, "t", history):
            pass
