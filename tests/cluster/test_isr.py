"""The leader's side of replication: who leaves the ISR and comes back without an election, and who reads from the replica nearby."""

import json
from pathlib import Path

from confluent_kafka import Consumer, Producer

from tests.support.broker_process import eventually
from tests.support.cluster import a_cluster
from tests.support.cluster_clients import a_writer, read_all
from tests.support.cluster_links import some_links
from tests.support.history import History


def test_a_follower_that_its_leader_does_not_hear_leaves_the_isr_and_comes_back_last_without_a_new_leader_epoch(tmp_path: Path) -> None:
    with some_links() as links, a_cluster(tmp_path, 3, links=links) as cluster:
        controller = cluster.controller_id()
        leader, follower = sorted({0, 1, 2} - {controller})
        cluster.create_topic("t", replicas=[[leader, follower, controller]])
        history = History()
        with a_writer(cluster, "t", history) as writer:
            writer.go_on_for(100)
            epoch = cluster.partition("t", 0).leader_epoch
            links.hold(leader, follower)
            cluster.wait_until_isr_is("t", 0, leader, controller)
            assert cluster.partition("t", 0).isr_nodes == [leader, controller]
            writer.go_on_for(100)
            links.heal()
            cluster.wait_until_isr_is("t", 0, 0, 1, 2)
            found = cluster.partition("t", 0)
            assert found.isr_nodes == [leader, controller, follower]
            assert (found.leader_id, found.leader_epoch) == (leader, epoch)
            writer.go_on_for(100)
        read_all(cluster, "t", history)
        assert history.violations() == []


def test_a_follower_that_stands_still_and_has_everything_stays_in_the_isr(tmp_path: Path) -> None:
    """Nothing that was committed could be lost with the leader: Apache Kafka lets it stay, however long it says nothing."""
    with some_links() as links, a_cluster(tmp_path, 3, links=links) as cluster:
        controller = cluster.controller_id()
        leader, follower = sorted({0, 1, 2} - {controller})
        cluster.create_topic("quiet", replicas=[[leader, follower, controller]])
        cluster.create_topic("busy", replicas=[[leader, follower, controller]])
        everywhere = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        everywhere.produce("quiet", b"a record that all have")
        assert everywhere.flush(20) == 0
        links.hold(leader, follower)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "1"})
        producer.produce("busy", b"a record that the follower does not get")
        assert producer.flush(20) == 0
        cluster.wait_until_isr_is("busy", 0, leader, controller)
        assert cluster.isr_of("quiet", 0) == {0, 1, 2}


def test_a_consumer_reads_from_the_replica_in_its_rack(tmp_path: Path) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with a_cluster(tmp_path, 3, replica_selector_class=selector, broker_rack="rack-{id}") as cluster:
        cluster.create_topic("t", replicas=[[0, 1, 2]])
        history = History()
        with a_writer(cluster, "t", history) as writer:
            writer.go_on_for(50)
        read_from: set[int] = set()

        def on_statistics(text: str) -> None:
            for partitions in (topic["partitions"] for topic in json.loads(text)["topics"].values()):
                read_from.update(each["broker"] for number, each in partitions.items() if number == "0")

        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "near",
                "auto.offset.reset": "earliest",
                "client.rack": "rack-2",
                "statistics.interval.ms": 50,
                "stats_cb": on_statistics,
            }
        )
        consumer.subscribe(["t"])
        seen = 0

        def has_read() -> bool:
            nonlocal seen
            seen += consumer.poll(0.1) is not None
            return seen >= 50 and 2 in read_from

        try:
            eventually(has_read, what="50 records are read, from ottla.broker 2")
        finally:
            consumer.close()
