"""Internal topics that were made to grow, in a cluster of two brokers that are killed: nothing is out of sight, whoever leads what."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assigned

from ottla.client.cluster import Cluster as Client
from ottla.client.group_offsets.committed import commit_offsets, committed_offsets
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.topic_partition import TopicPartition
from tests.support.admin_requests import OK, grow
from tests.support.cluster import Cluster, a_cluster
from tests.support.wire_client import a_wire_client

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
GROUPS = [f"group-{number}" for number in range(20)]
CONFIG = {
    "offsets_topic_num_partitions": 2,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_num_partitions": 2,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
    "ottla_internal_topics_can_grow": True,
}
T0 = TopicPartition("t", 0)
SECONDS = 30.0


def add_partitions(cluster: Cluster, topic: str) -> None:
    """Ask the controller for more partitions of an internal topic."""
    with a_wire_client(cluster.brokers[cluster.controller_id()].port) as client:
        assert grow(client, topic, 7) == OK


def restart(cluster: Cluster) -> None:
    """Kill all brokers, and start them again."""
    for broker in cluster.brokers.values():
        broker.kill()
    for broker in cluster.brokers.values():
        broker.start()


def listed(cluster: Cluster) -> list[str]:
    """The groups that all brokers list together."""
    found: list[str] = []
    for broker in cluster.brokers.values():
        with a_wire_client(broker.port) as client:
            found += [each.group_id for each in client.ask(ListGroupsRequest(), 4).groups]
    return sorted(found)


def commit(client: Client, offset: int) -> None:
    for group in GROUPS:
        commit_offsets(client, group, {T0: offset})


def offsets(client: Client) -> list[int]:
    return [found[T0].offset if T0 in (found := committed_offsets(client, group)) else -1 for group in GROUPS]


def test_groups_of_a_grown_topic_are_found_by_all_brokers(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 2, **CONFIG) as cluster:
        cluster.create_topic("t")
        cluster.ask(partial(commit, offset=1), seconds=SECONDS)
        add_partitions(cluster, OFFSETS)
        assert cluster.ask(offsets, seconds=SECONDS) == [1] * len(GROUPS)
        for start in (2, 3):
            restart(cluster)
            assert cluster.ask(offsets, seconds=SECONDS) == [start - 1] * len(GROUPS)
            assert listed(cluster) == sorted(GROUPS)
            cluster.ask(partial(commit, offset=start), seconds=SECONDS)


def test_transactions_of_a_grown_topic_go_on(tmp_path: Path) -> None:
    """A producer whose transaction was open is fenced by its next instance, and no consumer of committed records waits for ever."""
    with a_cluster(tmp_path, 2, **CONFIG) as cluster:
        cluster.create_topic("t")
        ids = [f"id-{number}" for number in range(4)]
        for name in ids:
            producer = a_producer(cluster, name)
            producer.begin_transaction()
            producer.produce("t", b"committed", partition=0)
            producer.commit_transaction(SECONDS)
            producer.begin_transaction()
            producer.produce("t", b"open", partition=0)
            producer.flush(SECONDS)
        add_partitions(cluster, TRANSACTIONS)
        restart(cluster)
        for name in ids:
            producer = a_producer(cluster, name)
            producer.begin_transaction()
            producer.produce("t", b"committed", partition=0)
            producer.commit_transaction(SECONDS)
        assert read_committed(cluster) == [b"committed"] * 8


def a_producer(cluster: Cluster, name: str) -> Producer:
    config = {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000, "log_level": 0}
    producer = Producer(config)
    producer.init_transactions(SECONDS)
    return producer


def read_committed(cluster: Cluster) -> list[bytes | None]:
    config = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer(config)
    consumer.assign([Assigned("t", 0, 0)])
    found: list[bytes | None] = []
    try:
        while (message := consumer.poll(SECONDS)) is not None and not message.error():
            found.append(message.value())
    finally:
        consumer.close()
    return found
