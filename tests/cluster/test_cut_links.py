"""The network between brokers fails while clients still reach all of them: what a leader cannot replicate it does not acknowledge."""

import time
from pathlib import Path

from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.cluster_clients import a_reader, a_writer, read_all
from tests.support.cluster_links import some_links
from tests.support.history import History


def a_leader_that_is_not_controller(cluster: Cluster) -> tuple[int, list[int]]:
    """Its id, and those of the others, the controller last."""
    controller = cluster.controller_id()
    leader, follower = (broker.id for broker in cluster.others(controller))
    return leader, [follower, controller]


def wait_until_nothing_is_acknowledged_for(history: History, seconds: float) -> int:
    """How many were by then."""
    told, since = -1, time.monotonic()
    while time.monotonic() < since + seconds:
        if history.acknowledged_count != told:
            told, since = history.acknowledged_count, time.monotonic()
        time.sleep(0.02)
    return told


def test_brokers_reach_each_other_through_the_links(tmp_path: Path) -> None:
    with some_links() as links, a_cluster(tmp_path, 3, links=links) as cluster:
        cluster.create_topic("t", replicas=[[0, 1, 2], [1, 2, 0], [2, 0, 1]])
        controller = cluster.controller_id()
        expected = {(one, other) for one in range(3) for other in range(3) if one != other}
        eventually(lambda: links.open_links() >= expected, what=f"every broker fetches from every other; the controller is {controller}")


def test_a_follower_behind_a_dead_link_leaves_the_isr_and_comes_back(tmp_path: Path) -> None:
    with some_links() as links, a_cluster(tmp_path, 3, links=links) as cluster:
        leader, (follower, controller) = a_leader_that_is_not_controller(cluster)
        cluster.create_topic("t", replicas=[[leader, follower, controller]])
        history = History()
        with a_writer(cluster, "t", history) as writer, a_reader(cluster, "t", history):
            links.hold(leader, follower)
            cluster.wait_until_isr_is("t", 0, leader, controller)
            writer.go_on_for(100)
            links.heal()
            cluster.wait_until_isr_is("t", 0, 0, 1, 2)
            writer.go_on_for(100)
        read_all(cluster, "t", history)
        assert history.violations() == []


def test_a_leader_that_reaches_nobody_acknowledges_nothing(tmp_path: Path) -> None:
    with some_links() as links, a_cluster(tmp_path, 3, links=links) as cluster:
        leader, others = a_leader_that_is_not_controller(cluster)
        cluster.create_topic("t", replicas=[[leader, *others]])
        history = History()
        with a_writer(cluster, "t", history) as writer, a_reader(cluster, "t", history):
            links.isolate(leader, *others)
            # What was on its way when the links went silent may still be told. Then nothing more, for longer than replica.lag.time.max.ms:
            # the leader would shrink its ISR if it could ask.
            told = wait_until_nothing_is_acknowledged_for(history, seconds=3.0)
            assert wait_until_nothing_is_acknowledged_for(history, seconds=3.0) == told
            links.heal()
            writer.go_on_for(100)
            cluster.wait_until_isr_is("t", 0, 0, 1, 2)
        read_all(cluster, "t", history)
        assert history.violations() == []


def test_connections_that_break_again_and_again_lose_nothing(tmp_path: Path) -> None:
    with some_links() as links, a_cluster(tmp_path, 3, links=links) as cluster:
        cluster.create_topic("t", partitions=3)
        history = History()
        with a_writer(cluster, "t", history, partitions=3) as writer, a_reader(cluster, "t", history, partitions=3):
            for one, other in ((0, 1), (1, 2), (0, 2)):
                links.cut(one, other)
                writer.go_on_for(30)
                links.heal()
                for partition in range(3):
                    cluster.wait_until_isr_is("t", partition, 0, 1, 2)
        read_all(cluster, "t", history, partitions=3)
        assert history.violations() == []


def test_a_slow_link_does_not_take_a_replica_out_of_the_isr(tmp_path: Path) -> None:
    with some_links() as links, a_cluster(tmp_path, 3, links=links, replica_lag_time_max_ms=5_000) as cluster:
        cluster.create_topic("t", replicas=[[0, 1, 2]])
        history = History()
        with a_writer(cluster, "t", history) as writer:
            links.delay(0, 1, 0.1)
            writer.go_on_for(300)
            assert cluster.isr_of("t", 0) == {0, 1, 2}
            links.heal()
        read_all(cluster, "t", history)
        assert history.violations() == []
