"""A whole cluster of Apache Kafka becomes one of Ottla, broker by broker, on the same ids and data directories, while clients go on."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.apache_kafka.brokers import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster
from tests.support.cluster_clients import a_reader, a_writer, read_all
from tests.support.cluster_stores import needs_zookeeper_store
from tests.support.history import History
from tests.support.mixed_cluster import ApacheBroker, a_cluster_of_apache_kafka, dumps_of, exchange, wait_until_replicas_are_equal

pytestmark = [*needs_apache_kafka, needs_zookeeper_store, pytest.mark.slow, pytest.mark.timeout(600)]  # JVMs, on a busy machine

SECONDS = 90.0
REPLICAS = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]


def commit(cluster: Cluster, offset: int) -> None:
    """As a consumer that was given its partition by hand, again while the coordinator moves."""
    consumer = a_group(cluster)

    def is_taken() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
        except KafkaException:
            return False
        return True

    try:
        eventually(is_taken, SECONDS, f"{offset} is committed")
    finally:
        consumer.close()


def committed(cluster: Cluster) -> int:
    consumer = a_group(cluster)
    found: list[TopicPartition] = []

    def is_told() -> bool:
        try:
            found[:] = consumer.committed([TopicPartition("t", 0)], timeout=SECONDS)
        except KafkaException:
            return False
        return True

    try:
        eventually(is_told, SECONDS, "the committed offset is told")
        return int(found[0].offset)
    finally:
        consumer.close()


def a_group(cluster: Cluster) -> Consumer:
    return Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False, "log_level": 0})


def wait_until_in_sync(cluster: Cluster) -> None:
    for partition in range(len(REPLICAS)):
        cluster.wait_until_isr_is("t", partition, 0, 1, 2, seconds=SECONDS)


def replace(cluster: Cluster, apache: ApacheKafka, broker_id: int) -> None:
    """Stop it, and start the other kind in its place."""
    wait_until_in_sync(cluster)
    assert cluster.broker(broker_id).stop() == 0
    exchange(cluster, apache, broker_id)


@pytest.mark.soak
def test_a_cluster_is_replaced_broker_by_broker_while_clients_go_on(tmp_path: Path) -> None:
    config = {"min.insync.replicas": "2", "log.segment.bytes": "50000"}
    with a_cluster_of_apache_kafka(tmp_path, 3, config) as (cluster, apache):
        cluster.create_topic("t", replicas=REPLICAS)
        history = History()
        with a_writer(cluster, "t", history, partitions=3) as writer, a_reader(cluster, "t", history, partitions=3):
            commit(cluster, 7)
            for broker_id in range(3):
                replace(cluster, apache, broker_id)
                writer.go_on_for(100)
                assert committed(cluster) == 7 + broker_id
                commit(cluster, 8 + broker_id)
            assert not any(isinstance(broker, ApacheBroker) for broker in cluster.brokers.values())
            wait_until_in_sync(cluster)
        read_all(cluster, "t", history, partitions=3)
        assert history.violations() == []

        wait_until_replicas_are_equal(cluster, "t", 0)
        first, second, third = dumps_of(cluster, "t", 0).values()
        assert first == second == third
        assert first.count("payload") == sum(place.partition == 0 for place in history.places())
        replace(cluster, apache, 1)  # and back
        wait_until_in_sync(cluster)
        assert committed(cluster) == 10
