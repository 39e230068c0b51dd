"""ZooKeeper is gone for longer than every session lasts: who only reads and writes does not notice, and everybody comes back with it."""

import time
from pathlib import Path

import pytest

from tests.support.broker_process import eventually
from tests.support.cluster import SESSION_TIMEOUT_MS, a_cluster
from tests.support.cluster_clients import a_reader, a_writer, read_all
from tests.support.history import History
from tests.support.zookeeper import a_zookeeper

pytestmark = [pytest.mark.java, pytest.mark.slow]

AWAY_SECONDS = 3 * SESSION_TIMEOUT_MS / 1000


def test_brokers_serve_without_zookeeper_and_are_a_cluster_again_when_it_is_back(tmp_path: Path) -> None:
    with a_zookeeper(tmp_path / "ensemble") as zookeeper, a_cluster(tmp_path / "brokers", 3, zookeeper=zookeeper) as cluster:
        cluster.create_topic("t", partitions=3, min_insync_replicas=2)
        history = History()
        with a_writer(cluster, "t", history, partitions=3) as writer, a_reader(cluster, "t", history, partitions=3):
            zookeeper.stop()
            end = time.monotonic() + AWAY_SECONDS
            while time.monotonic() < end:
                writer.go_on_for(50)
            zookeeper.start()
            cluster.wait_until_registered(0, 1, 2)
            for partition in range(3):
                cluster.wait_until_isr_is("t", partition, 0, 1, 2, seconds=90)
            writer.go_on_for(200)
            assert cluster.controller_id() in {0, 1, 2}
            cluster.create_topic("afterwards", partitions=3)
        read_all(cluster, "t", history, partitions=3)
        assert history.violations() == []


@pytest.mark.soak
def test_a_leader_that_dies_while_zookeeper_is_away_is_replaced_when_that_is_back(tmp_path: Path) -> None:
    with a_zookeeper(tmp_path / "ensemble") as zookeeper, a_cluster(tmp_path / "brokers", 3, zookeeper=zookeeper) as cluster:
        cluster.create_topic("t", replicas=[[0, 1, 2]], min_insync_replicas=2)
        history = History()
        with a_writer(cluster, "t", history) as writer, a_reader(cluster, "t", history):
            zookeeper.kill()
            cluster.broker(0).kill()
            assert cluster.partition("t", 0).leader_id == 0
            zookeeper.start()
            cluster.wait_until_led_by_another("t", 0, than=0, seconds=90)
            writer.go_on_for(200)
            cluster.broker(0).start()
            cluster.wait_until_isr_is("t", 0, 0, 1, 2)
        read_all(cluster, "t", history)
        assert history.violations() == []


@pytest.mark.soak
def test_brokers_that_all_die_while_zookeeper_is_away_come_back_with_their_data(tmp_path: Path) -> None:
    with a_zookeeper(tmp_path / "ensemble") as zookeeper, a_cluster(tmp_path / "brokers", 3, zookeeper=zookeeper) as cluster:
        cluster.create_topic("t", partitions=3, min_insync_replicas=2)
        history = History()
        with a_writer(cluster, "t", history, partitions=3) as writer:
            zookeeper.stop()
            writer.go_on_for(50)
        for broker in cluster.brokers.values():
            broker.kill()
        zookeeper.start()
        for broker in cluster.brokers.values():
            broker.launch()
        assert all(broker.wait_until_ready() for broker in cluster.brokers.values())
        cluster.wait_until_registered(0, 1, 2)

        def all_are_led() -> bool:
            return all(partition.leader_id >= 0 for partition in cluster.metadata("t").topics[0].partitions)

        eventually(all_are_led, 90, "every partition has a leader")
        read_all(cluster, "t", history, partitions=3)
        assert history.violations() == []
