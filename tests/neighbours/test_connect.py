"""Kafka Connect in distributed mode on Ottla: a file goes through a topic into another file, also while a worker and a broker die."""

from __future__ import annotations

from pathlib import Path

from tests.support.cluster import Cluster, a_cluster
from tests.support.neighbours.artifacts import CONNECT, whole
from tests.support.neighbours.connect import FileCopy, workers
from tests.support.read_committed import read_committed

pytestmark = CONNECT.marks


def check(cluster: Cluster, copy: FileCopy) -> None:
    """The topic has every line once and in order, the sink at least once, and in order where it had it first."""
    expected = list(range(copy.written))
    assert [each.value for each in read_committed(cluster, "lines")] == [f"<{number}>" for number in expected]
    assert list(dict.fromkeys(copy.sunk())) == expected


@whole
def test_lines_of_a_file_arrive_in_another(tmp_path: Path) -> None:
    with a_cluster(tmp_path / "cluster", 1) as cluster, workers(cluster, tmp_path / "connect", 1) as (worker,):
        cluster.create_topic("lines")
        copy = FileCopy(tmp_path)
        copy.write(150)
        copy.begin(worker)
        copy.write(150)
        copy.wait()
        check(cluster, copy)
        assert copy.sunk() == list(range(copy.written))


@whole
def test_lines_arrive_once_in_order_while_workers_and_brokers_are_killed(tmp_path: Path) -> None:
    with a_cluster(tmp_path / "cluster", 3) as cluster, workers(cluster, tmp_path / "connect", 2) as both:
        cluster.create_topic("lines", min_insync_replicas=2)
        copy = FileCopy(tmp_path)
        copy.begin(both[0])
        for _ in range(2):
            copy.write(3_000)
            copy.wait()
            (victim,) = (worker for worker in both if worker.id == both[0].worker_of("source"))
            copy.write(1_000)
            victim.kill()
            copy.write(3_000)
            copy.wait()
            victim.launch()
            victim.wait_until_ready()
            leader = cluster.broker(cluster.leader_of("lines", 0))
            copy.write(1_000)
            leader.kill()
            copy.write(3_000)
            copy.wait()
            leader.start()
            cluster.wait_until_registered()
        copy.write(100)
        copy.wait()
        check(cluster, copy)
