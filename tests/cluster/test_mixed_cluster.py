"""An Apache Kafka 3.9.1 broker and Ottla's in one cluster on one ZooKeeper: each leads, follows and controls the other's partitions."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.apache_kafka.brokers import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.cluster_clients import a_writer, read_all
from tests.support.cluster_stores import needs_zookeeper_store
from tests.support.history import History

pytestmark = [*needs_apache_kafka, needs_zookeeper_store, pytest.mark.slow]

APACHE = 9
"""The id of the broker that is not Ottla's."""


@contextmanager
def a_mixed_cluster(directory: Path) -> Iterator[tuple[Cluster, ApacheKafka]]:
    """Brokers 0 and 1 are Ottla's; Apache's is the controller at first."""
    with (
        ApacheKafka(directory / "apache", 1, {"replica.lag.time.max.ms": "2000"}, first_id=APACHE) as apache,
        a_cluster(directory / "ottla", 2, zookeeper=apache.zookeeper) as cluster,
    ):
        eventually(lambda: {each.node_id for each in cluster.metadata().brokers} == {0, 1, APACHE}, what="all three are registered")
        yield cluster, apache


def test_each_replicates_from_the_other_byte_for_byte(tmp_path: Path) -> None:
    with a_mixed_cluster(tmp_path) as (cluster, apache):
        cluster.create_topic("t", replicas=[[0, APACHE, 1], [APACHE, 1, 0]])
        history = History()
        with a_writer(cluster, "t", history, partitions=2) as writer:
            writer.go_on_for(500)
        read_all(cluster, "t", history, partitions=2)
        assert history.violations() == []
        for partition in range(2):

            def equal(partition: int = partition) -> bool:
                logs = cluster.log_files("t", partition)
                logs[APACHE] = (apache.data_directory(APACHE) / f"t-{partition}" / f"{0:020}.log").read_bytes()
                return len(logs) == 3 and len(set(logs.values())) == 1

            eventually(equal, what=f"the logs of t-{partition} are equal")


def test_ottla_takes_over_from_an_apache_kafka_that_is_killed_and_leads_it_when_it_is_back(tmp_path: Path) -> None:
    with a_mixed_cluster(tmp_path) as (cluster, apache):
        cluster.create_topic("t", replicas=[[APACHE, 0, 1]])
        history = History()
        with a_writer(cluster, "t", history) as writer:
            apache.kill_broker(APACHE)
            cluster.wait_until_led_by_another("t", 0, than=APACHE)
            assert cluster.controller_id() in {0, 1}
            writer.go_on_for(200)
            apache.start_broker(APACHE)
            cluster.wait_until_isr_is("t", 0, 0, 1, APACHE)
        read_all(cluster, "t", history)
        assert history.violations() == []


def test_apache_kafka_takes_over_from_an_ottla_broker_that_is_killed(tmp_path: Path) -> None:
    with a_mixed_cluster(tmp_path) as (cluster, _):
        cluster.create_topic("t", replicas=[[0, APACHE, 1]])
        history = History()
        with a_writer(cluster, "t", history) as writer:
            cluster.broker(0).kill()
            assert cluster.wait_until_led_by_another("t", 0, than=0) == APACHE
            writer.go_on_for(200)
            cluster.broker(0).start()
            cluster.wait_until_isr_is("t", 0, 0, 1, APACHE)
        read_all(cluster, "t", history)
        assert history.violations() == []


def test_topics_made_by_either_controller_are_served_by_all(tmp_path: Path) -> None:
    with a_mixed_cluster(tmp_path) as (cluster, _):
        for name in ("by-apache", "by-ottla"):
            cluster.create_topic(name, replicas=[[0, 1, APACHE], [1, APACHE, 0], [APACHE, 0, 1]])
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
            for partition in range(3):
                producer.produce(name, b"hello", partition=partition)
            assert producer.flush(20) == 0
