"""Flink's source and sink on Ottla: a job with checkpoints copies a topic in transactions, exactly once, also while a broker is killed."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.neighbours.artifacts import FLINK, whole
from tests.support.neighbours.flink import a_copy
from tests.support.read_committed import counting_committed, read_committed

pytestmark = FLINK.marks

SECONDS = 150.0


def write(cluster: Cluster, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in numbers:
        producer.produce("input", str(number).encode(), partition=0)
    assert producer.flush(60) == 0


def wait_for(cluster: Cluster, count: int) -> None:
    with counting_committed(cluster, "output") as copied:
        eventually(lambda: copied() >= count, SECONDS, f"{count} records are copied")


def check(cluster: Cluster, count: int) -> None:
    assert [each.value for each in read_committed(cluster, "output")] == [str(number) for number in range(count)]


@whole
def test_a_job_copies_a_topic_exactly_once(tmp_path: Path) -> None:
    FLINK.jars()
    with a_cluster(tmp_path / "cluster", 1) as cluster:
        for topic in ("input", "output"):
            cluster.create_topic(topic)
        write(cluster, range(500))
        with a_copy(cluster.bootstrap, tmp_path / "flink"):
            wait_for(cluster, 500)
        check(cluster, 500)


@whole
def test_a_job_copies_exactly_once_while_brokers_are_killed(tmp_path: Path) -> None:
    FLINK.jars()
    with a_cluster(tmp_path / "cluster", 3) as cluster:
        for topic in ("input", "output"):
            cluster.create_topic(topic, min_insync_replicas=2)
        write(cluster, range(2_000))
        with a_copy(cluster.bootstrap, tmp_path / "flink"):
            wait_for(cluster, 2_000)
            for turn in (1, 2):
                write(cluster, range(turn * 2_000, turn * 2_000 + 1_000))
                leader = cluster.broker(cluster.leader_of("output", 0))
                leader.kill()
                write(cluster, range(turn * 2_000 + 1_000, turn * 2_000 + 2_000))
                wait_for(cluster, (turn + 1) * 2_000)
                leader.start()
                cluster.wait_until_registered()
        check(cluster, 6_000)
