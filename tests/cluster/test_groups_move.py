"""A consumer group's coordinator is whoever leads its partition of __consumer_offsets: it moves with it, and takes everything along."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client.errors import ClientError
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster

SECONDS = 20.0


def coordinator_of(cluster: Cluster, group: str) -> int:
    """The id of the broker that coordinates the group, when that broker runs; -1 else."""
    try:
        address = cluster.ask(lambda client: client.coordinator(group))
    except ClientError:
        return -1
    (found,) = [broker for broker in cluster.brokers.values() if broker.bootstrap == str(address)]
    return found.id if found.answers else -1


def wait_until_coordinated_by_another(cluster: Cluster, group: str, than: int) -> int:
    def look() -> list[int]:
        found = coordinator_of(cluster, group)
        return [] if found in {-1, than} else [found]

    found = eventually(look, what=f"another coordinator of {group} than {than}")
    assert isinstance(found, list)
    return int(found[0])


def write(cluster: Cluster, topic: str, begin: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in range(begin, end):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(SECONDS) == 0


@contextmanager
def a_member(cluster: Cluster, group: str, *topics: str, **config: object) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 200,
            "reconnect.backoff.ms": 20,
            "log_level": 0,
            "reconnect.backoff.max.ms": 200,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )
    consumer.subscribe(list(topics))
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, count: int) -> list[int]:
    """That many more values."""
    found: list[int] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"read {found}, {count} are there"
        messages = consumer.consume(count - len(found), timeout=0.1)
        found += [int(message.value() or b"") for message in messages if message.error() is None]
    return found


def commit(consumer: Consumer) -> None:
    """What was read so far, tried again while the coordinator moves."""

    def tried() -> bool:
        try:
            consumer.commit(asynchronous=False)
        except Exception:
            consumer.poll(0)
            return False
        return True

    eventually(tried, SECONDS, "the commit is taken")


def test_committed_offsets_are_there_when_the_coordinator_was_killed(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t")
        write(cluster, "t", 0, 10)
        with a_member(cluster, "g", "t") as first:
            assert read(first, 10) == list(range(10))
            first.commit(asynchronous=False)
        coordinator = coordinator_of(cluster, "g")
        cluster.broker(coordinator).kill()
        wait_until_coordinated_by_another(cluster, "g", than=coordinator)
        write(cluster, "t", 10, 15)
        with a_member(cluster, "g", "t") as second:
            assert read(second, 5) == list(range(10, 15))


def test_a_member_goes_on_without_a_rebalance_when_its_coordinator_is_stopped(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t")
        assignments: list[list[TopicPartition]] = []
        with a_member(cluster, "g", "t") as member:
            member.subscribe(["t"], on_assign=lambda _, partitions: assignments.append(partitions))
            write(cluster, "t", 0, 5)
            assert read(member, 5) == list(range(5))
            coordinator = coordinator_of(cluster, "g")
            assert cluster.broker(coordinator).stop() == 0
            wait_until_coordinated_by_another(cluster, "g", than=coordinator)
            write(cluster, "t", 5, 10)
            assert read(member, 5) == list(range(5, 10))
            commit(member)
            assert [each.offset for each in member.committed([TopicPartition("t", 0)], timeout=SECONDS)] == [10]
            assert len(assignments) == 1


def test_members_share_the_partitions_anew_when_one_leaves_after_the_coordinator_was_killed(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t", partitions=4)
        with a_member(cluster, "g", "t") as stays:
            with a_member(cluster, "g", "t") as leaves:

                def shared() -> bool:
                    for each in (stays, leaves):
                        each.poll(0.05)
                    return len(stays.assignment()) == len(leaves.assignment()) == 2

                eventually(shared, SECONDS, "each has two partitions")
                coordinator = coordinator_of(cluster, "g")
                cluster.broker(coordinator).kill()
                wait_until_coordinated_by_another(cluster, "g", than=coordinator)

            def has_all() -> bool:
                stays.poll(0.05)
                return len(stays.assignment()) == 4

            eventually(has_all, SECONDS, "the one that stays has all partitions")


def test_a_group_is_where_its_partition_is_led_again_after_the_broker_came_back(tmp_path: Path) -> None:
    often = {"leader_imbalance_check_interval_seconds": 1, "leader_imbalance_per_broker_percentage": 0}
    with a_cluster(tmp_path, 3, auto_leader_rebalance_enable="true", **often) as cluster:
        cluster.create_topic("t")
        write(cluster, "t", 0, 5)
        with a_member(cluster, "g", "t") as member:
            assert read(member, 5) == list(range(5))
            coordinator = coordinator_of(cluster, "g")
            cluster.broker(coordinator).kill()
            wait_until_coordinated_by_another(cluster, "g", than=coordinator)
            commit(member)
            cluster.broker(coordinator).start()
            eventually(lambda: coordinator_of(cluster, "g") == coordinator, SECONDS, "the preferred leader coordinates again")
            write(cluster, "t", 5, 10)
            assert read(member, 5) == list(range(5, 10))
            commit(member)
            assert [each.offset for each in member.committed([TopicPartition("t", 0)], timeout=SECONDS)] == [10]
