"""The controller goes: another broker takes over, and what it decides binds everybody; nobody listens to the old one any more."""

import time
from pathlib import Path

import pytest

from ottla.client.cluster import Cluster as Client
from ottla.client.topic_admin import NewTopic, create_topics
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.cluster_clients import a_writer, read_all
from tests.support.cluster_stores import each_store, needs_zookeeper_store, zookeeper_of
from tests.support.history import History
from tests.support.zookeeper import a_zookeeper


def wait_until_all_follow_another(cluster: Cluster, than: int) -> int:
    """Every broker that answers names the same controller, which is not `than`; its id."""

    def look() -> list[int]:
        said = {cluster.metadata(broker_id=broker.id).controller_id for broker in cluster.brokers.values() if broker.answers}
        return list(said) if len(said) == 1 and not said & {-1, than} else []

    found = eventually(look, what=f"another controller than {than}")
    assert isinstance(found, list)
    return int(found[0])


@each_store
def test_another_broker_takes_over_from_a_killed_controller_and_moves_its_leaders(tmp_path: Path, store: str) -> None:
    with a_cluster(tmp_path, 3, zookeeper=zookeeper_of(store)) as cluster:
        controller = cluster.controller_id()
        others = [broker.id for broker in cluster.others(controller)]
        cluster.create_topic("t", replicas=[[controller, *others]])
        history = History()
        with a_writer(cluster, "t", history) as writer:
            cluster.broker(controller).kill()
            wait_until_all_follow_another(cluster, than=controller)
            assert cluster.wait_until_led_by_another("t", 0, than=controller) == others[0]
            cluster.wait_until_isr_is("t", 0, *others)
            writer.go_on_for(100)
            cluster.create_topic("made-by-the-next", partitions=2, replicas=[others, others])
            cluster.broker(controller).start()
            cluster.wait_until_isr_is("t", 0, 0, 1, 2)
        read_all(cluster, "t", history)
        assert history.violations() == []


@pytest.mark.java
@needs_zookeeper_store
def test_brokers_stop_cleanly_while_zookeeper_is_away_the_controller_too(tmp_path: Path) -> None:
    with a_zookeeper(tmp_path / "zookeeper") as zookeeper, a_cluster(tmp_path, 3, zookeeper=zookeeper) as cluster:
        cluster.create_topic("t", partitions=3)
        zookeeper.stop()
        assert set(cluster.stop().values()) == {0}
        for broker in cluster.brokers.values():
            assert (broker.data / ".kafka_cleanshutdown").exists()


@each_store
def test_a_controller_that_stood_still_obeys_the_next_one(tmp_path: Path, store: str) -> None:
    with a_cluster(tmp_path, 3, zookeeper=zookeeper_of(store)) as cluster:
        controller = cluster.controller_id()
        cluster.create_topic("t", partitions=3)
        cluster.broker(controller).pause()
        wait_until_all_follow_another(cluster, than=controller)
        cluster.create_topic("meanwhile", replicas=[[broker.id for broker in cluster.others(controller)]])
        cluster.broker(controller).resume()
        cluster.wait_until_registered(0, 1, 2)
        wait_until_all_follow_another(cluster, than=controller)
        for partition in range(3):
            cluster.wait_until_isr_is("t", partition, 0, 1, 2)
        cluster.create_topic("afterwards", replicas=[[controller, *(broker.id for broker in cluster.others(controller))]])
        assert cluster.leader_of("afterwards", 0) == controller


def test_a_command_does_not_wait_for_a_controller_that_stands_still(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        controller = cluster.controller_id()
        others = cluster.others(controller)
        with Client(others[0].bootstrap, timeout_seconds=90.0) as client:
            client.controller()
            cluster.broker(controller).pause()
            began = time.monotonic()
            assert create_topics(client, [NewTopic("t", assignments=[[broker.id for broker in others]])]) == {"t": None}
            assert time.monotonic() - began < 60


def test_a_controller_that_is_stopped_moves_its_own_leaders_first(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        controller = cluster.controller_id()
        others = [broker.id for broker in cluster.others(controller)]
        cluster.create_topic("t", replicas=[[controller, *others]])
        history = History()
        with a_writer(cluster, "t", history) as writer:
            assert cluster.broker(controller).stop() == 0
            wait_until_all_follow_another(cluster, than=controller)
            assert cluster.leader_of("t", 0) == others[0]
            writer.go_on_for(100)
        read_all(cluster, "t", history)
        assert history.violations() == []


def test_controllers_are_killed_until_one_broker_is_left_and_all_come_back(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t", partitions=4)
        for _ in range(2):
            controller = cluster.controller_id()
            cluster.broker(controller).kill()
            wait_until_all_follow_another(cluster, than=controller)
        (left,) = [broker for broker in cluster.brokers.values() if broker.answers]
        for partition in range(4):
            cluster.wait_until_isr_is("t", partition, left.id)
            assert cluster.leader_of("t", partition) == left.id
        for broker in cluster.others(left.id):
            broker.start()
        for partition in range(4):
            cluster.wait_until_isr_is("t", partition, 0, 1, 2)
