"""A leader goes, in every way in which leaders go: an idempotent producer and a consumer notice nothing but a pause."""

from pathlib import Path

import pytest

from tests.support.broker_process import eventually
from tests.support.cluster import SESSION_TIMEOUT_MS, Cluster, a_cluster
from tests.support.cluster_clients import a_reader, a_writer, read_all
from tests.support.cluster_links import some_links
from tests.support.cluster_stores import needs_zookeeper_store, zookeeper_of
from tests.support.history import History

_ZOOKEEPER = pytest.param("zookeeper", marks=[pytest.mark.java, needs_zookeeper_store, pytest.mark.soak])
each_store = pytest.mark.parametrize("store", ["embedded", _ZOOKEEPER])
"""The fault matrix has the same faults on a ZooKeeper."""


def verify(cluster: Cluster, history: History) -> None:
    """What was acknowledged is there, once, in order, whoever leads now."""
    read_all(cluster, "t", history)
    assert history.violations() == []


def has_offsets_topic(cluster: Cluster) -> bool:
    """Whether the topic for the reader's group has all its leaders.

    A broker that stands still in the middle of a change of metadata holds the lock of the embedded store, and nobody takes over from it.
    """
    (topic,) = cluster.metadata("__consumer_offsets").topics
    return bool(topic.partitions) and all(each.leader_id >= 0 for each in topic.partitions)


@each_store
def test_a_killed_leader_loses_nothing_that_was_acknowledged(tmp_path: Path, store: str) -> None:
    with a_cluster(tmp_path, 3, zookeeper=zookeeper_of(store)) as cluster:
        cluster.create_topic("t", replicas=[[0, 1, 2]])
        history = History()
        with a_writer(cluster, "t", history) as writer, a_reader(cluster, "t", history):
            cluster.broker(0).kill()
            cluster.wait_until_led_by_another("t", 0, than=0)
            writer.go_on_for(200)
        verify(cluster, history)


@each_store
def test_a_leader_that_is_stopped_hands_over_first(tmp_path: Path, store: str) -> None:
    with a_cluster(tmp_path, 3, zookeeper=zookeeper_of(store)) as cluster:
        cluster.create_topic("t", replicas=[[0, 1, 2]])
        history = History()
        with a_writer(cluster, "t", history) as writer, a_reader(cluster, "t", history):
            assert cluster.broker(0).stop() == 0
            assert cluster.leader_of("t", 0) != 0
            writer.go_on_for(200)
        verify(cluster, history)


@each_store
def test_a_leader_that_stands_still_is_replaced_and_comes_back_as_a_follower(tmp_path: Path, store: str) -> None:
    with a_cluster(tmp_path, 3, zookeeper=zookeeper_of(store), auto_leader_rebalance_enable="false") as cluster:
        cluster.create_topic("t", replicas=[[0, 1, 2]])
        history = History()
        with a_writer(cluster, "t", history) as writer, a_reader(cluster, "t", history):
            eventually(lambda: has_offsets_topic(cluster), what="nobody changes metadata any more")
            cluster.broker(0).pause()
            cluster.wait_until_led_by_another("t", 0, than=0, seconds=5 * SESSION_TIMEOUT_MS / 1000)
            writer.go_on_for(200)
            cluster.broker(0).resume()
            # It takes itself for the leader of a whole ISR until somebody tells it, so it is asked whether it has learned better.
            eventually(lambda: cluster.partition("t", 0, broker_id=0).leader_id != 0)
            cluster.wait_until_isr_is("t", 0, 0, 1, 2)
            writer.go_on_for(100)
            assert cluster.leader_of("t", 0) != 0
        verify(cluster, history)


def test_a_restarted_leader_cuts_what_was_never_acknowledged(tmp_path: Path) -> None:
    with some_links() as links, a_cluster(tmp_path, 3, links=links, auto_leader_rebalance_enable="false") as cluster:
        cluster.create_topic("t", replicas=[[0, 1, 2]], min_insync_replicas=2)
        history = History()
        with a_writer(cluster, "t", history) as writer, a_reader(cluster, "t", history):
            # Nobody fetches from the leader for a moment: what it is sent now only it has.
            links.isolate(0, 1, 2)
            cluster.broker(0).kill()
            links.heal()
            cluster.wait_until_led_by_another("t", 0, than=0)
            writer.go_on_for(200)
            cluster.broker(0).start()
            cluster.wait_until_isr_is("t", 0, 0, 1, 2)
            writer.go_on_for(50)
        verify(cluster, history)


@pytest.mark.soak
def test_leaders_are_killed_one_after_the_other(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t", partitions=3)
        history = History()
        with a_writer(cluster, "t", history, partitions=3) as writer, a_reader(cluster, "t", history, partitions=3):
            for broker in cluster.brokers.values():
                broker.kill()
                for partition in range(3):
                    cluster.wait_until_led_by_another("t", partition, than=broker.id)
                writer.go_on_for(100)
                broker.start()
                for partition in range(3):
                    cluster.wait_until_isr_is("t", partition, 0, 1, 2)
        read_all(cluster, "t", history, partitions=3)
        assert history.violations() == []


@pytest.mark.soak
def test_all_brokers_are_restarted_in_turns_under_load(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t", partitions=3)
        history = History()
        with a_writer(cluster, "t", history, partitions=3) as writer:
            for broker in cluster.brokers.values():
                broker.restart()
                for partition in range(3):
                    cluster.wait_until_isr_is("t", partition, 0, 1, 2)
                writer.go_on_for(50)
        read_all(cluster, "t", history, partitions=3)
        assert history.violations() == []
