"""An Apache Kafka 3.9.1 broker takes over as coordinator and leader in mid-transaction, and hands both back to Ottla's."""

from __future__ import annotations

import re
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.coordination.internal_topics import GROUP_METADATA_TOPIC as OFFSETS
from ottla.coordination.internal_topics import TRANSACTION_STATE_TOPIC as STATE
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster
from tests.support.cluster_stores import needs_zookeeper_store
from tests.support.mixed_cluster import APACHE, a_mixed_cluster, dumps_of, wait_until_replicas_are_equal
from tests.support.read_committed import read_committed
from tests.support.reassignments import elect_preferred, move_to_the_end
from tests.support.transactional.confluent import ConfluentClient
from tests.support.transactional.face import Fenced, Producer

pytestmark = [*needs_apache_kafka, needs_zookeeper_store, pytest.mark.slow, pytest.mark.timeout(600)]  # JVMs, on a busy machine

PARTITIONS = 2
CONFIG = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
}


def hand_over(cluster: Cluster, to: int, *more: str) -> None:
    """This broker leads both partitions of the topic, coordinates all transactions, and leads the partition 0 of `more` topics."""
    replicas = [to, *(each for each in cluster.brokers if each != to)]
    for topic, count in ((STATE, 1), ("t", PARTITIONS), *((topic, 1) for topic in more)):
        move_to_the_end(cluster, topic, *[replicas] * count)
        elect_preferred(cluster, topic, *range(count))
        for partition in range(count):
            eventually(lambda at=partition, topic=topic: cluster.leader_of(topic, at) == to, what=f"{topic}-{partition} is led by {to}")


def write(producer: Producer, *values: str) -> None:
    """Each into both partitions; returns when all are acknowledged."""
    for partition in range(PARTITIONS):
        producer.send("t", partition, *values)
    producer.flush()


def values_of(cluster: Cluster, level: str = "read_committed") -> list[list[str]]:
    """Of each partition."""
    found = read_committed(cluster, "t", PARTITIONS, level)
    return [[each.value for each in found if each.partition == partition] for partition in range(PARTITIONS)]


def is_read(cluster: Cluster, kept: list[str]) -> None:
    """Both partitions show these soon: a commit is answered before its markers are written."""
    eventually(lambda: values_of(cluster) == [kept] * PARTITIONS, what=f"both partitions show {kept}")


@pytest.mark.soak
@pytest.mark.parametrize(("protocol", "rounds"), [("3.9", 3), ("2.6", 3), ("2.6/3.9", 3)])
def test_transactions_go_on_where_the_other_kind_takes_over(protocol: str, rounds: int, tmp_path: Path) -> None:
    with a_mixed_cluster(tmp_path, protocol, CONFIG) as cluster:
        cluster.create_topic("t", replicas=[[0, 1, APACHE]] * PARTITIONS, min_insync_replicas=2)
        client = ConfluentClient(cluster.bootstrap)
        producer = client.producer("moving")
        hand_over(cluster, 0)
        kept: list[str] = []
        for number, (to, ending) in enumerate(((APACHE, "commit"), (0, "commit"), (APACHE, "abort"), (1, "abort")) * rounds):
            producer.begin()
            write(producer, f"{number}.before")
            hand_over(cluster, to)
            write(producer, f"{number}.after")
            getattr(producer, ending)()
            kept += [f"{number}.before", f"{number}.after"] if ending == "commit" else []
            is_read(cluster, kept)
        check_logs(cluster)


@pytest.mark.soak
def test_a_producer_is_fenced_and_a_transaction_times_out_where_the_other_kind_has_taken_over(tmp_path: Path) -> None:
    with a_mixed_cluster(tmp_path, config=CONFIG) as cluster:
        cluster.create_topic("t", replicas=[[0, 1, APACHE]] * PARTITIONS, min_insync_replicas=2)
        client = ConfluentClient(cluster.bootstrap)
        first = client.producer("fenced")
        kept: list[str] = []
        for number, (begins, ends) in enumerate(((0, APACHE), (APACHE, 0))):
            hand_over(cluster, begins)
            hasty = client.producer(f"hasty-{number}", timeout_ms=8_000)
            for each in (first, hasty):
                each.begin()
                write(each, f"{number}.lost")
            hand_over(cluster, ends)
            second = client.producer("fenced")
            with pytest.raises(Fenced):
                first.commit()
            second.begin()
            write(second, f"{number}.kept")
            second.commit()
            kept.append(f"{number}.kept")
            is_read(cluster, kept)  # also the hasty one holds nothing back any more
            first.close()
            first = second
        check_logs(cluster)


def committed_offset(cluster: Cluster, group: str) -> int:
    """Of the first partition; an offset that is pending is waited for."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "isolation.level": "read_committed", "log_level": 0})
    try:
        (found,) = consumer.committed([TopicPartition("t", 0)], timeout=60)
        return found.offset
    finally:
        consumer.close()


@pytest.mark.soak
def test_offsets_of_a_transaction_stay_pending_where_the_other_kind_takes_over(tmp_path: Path) -> None:
    with a_mixed_cluster(tmp_path, config=CONFIG) as cluster:
        cluster.create_topic("t", replicas=[[0, 1, APACHE]] * PARTITIONS, min_insync_replicas=2)
        client = ConfluentClient(cluster.bootstrap)
        producer, member = client.producer("offsets"), client.member("t", "group")
        producer.begin()
        write(producer, "first")
        producer.commit()
        eventually(member.poll, what="the member has partitions")
        expected = confluent_kafka.OFFSET_INVALID
        for number, (begins, ends, ending) in enumerate(
            ((0, APACHE, "commit"), (APACHE, 0, "commit"), (0, APACHE, "abort"), (APACHE, 1, "abort")), 1
        ):
            hand_over(cluster, begins, OFFSETS)
            producer.begin()
            write(producer, str(number))
            producer.send_offsets(member, "t", 0, number)
            hand_over(cluster, ends, OFFSETS)
            getattr(producer, ending)()
            expected = number if ending == "commit" else expected
            assert committed_offset(cluster, "group") == expected
        member.close()
        wait_until_replicas_are_equal(cluster, OFFSETS, 0)
        (dump,) = set(dumps_of(cluster, OFFSETS, 0, "--offsets-decoder").values())
        assert re.findall(r"endTxnMarker: (\w+)", dump) == ["COMMIT", "COMMIT", "ABORT", "ABORT"]


def check_logs(cluster: Cluster) -> None:
    """All replicas are equal, and Apache's tool reads them all: each marker, and each state of each transaction."""
    shown = {}
    for topic, partition in (("t", 0), ("t", 1), (STATE, 0)):
        wait_until_replicas_are_equal(cluster, topic, partition)
        decoder = ("--transaction-log-decoder",) if topic == STATE else ()
        (shown[topic],) = set(dumps_of(cluster, topic, partition, *decoder).values())
    endings = re.findall(r"endTxnMarker: (\w+)", shown["t"])
    states = re.findall(r"state=(\w+)", shown[STATE])
    assert {"COMMIT", "ABORT"} == set(endings)
    assert {"Ongoing", "PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort"} <= set(states)
    by_leader = []
    for leader in cluster.brokers:
        hand_over(cluster, leader)
        by_leader.append((values_of(cluster), values_of(cluster, "read_uncommitted")))
    assert by_leader == by_leader[:1] * len(by_leader)
