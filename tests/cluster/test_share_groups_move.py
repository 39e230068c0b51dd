"""Records of a share group outlive the leaders of their partition, and the coordinators that have their state: each is accepted."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ottla.client.group_offsets.starts import move_starts, share_starts
from ottla.protocol.topic_partition import TopicPartition
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.share_acceptors import Acceptor, Acceptors, write

RECORDS = 2_000
MOST_DELIVERIES = 10
MANY_RECORDS = 100_000
WRITTEN_AT_ONCE = 2_000
CONSUMERS = 20
BETWEEN_KILLS = 5_000
STATE_TOPIC = "__share_group_state"
FIRST = TopicPartition("queue", 0)
CONFIG: dict[str, object] = {
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 3,
    "share_coordinator_state_topic_num_partitions": 1,
    "share_coordinator_state_topic_replication_factor": 3,
    "share_coordinator_state_topic_min_isr": 2,
    "group_share_min_record_lock_duration_ms": 1_000,
    "group_share_record_lock_duration_ms": 3_000,
    "group_share_delivery_count_limit": MOST_DELIVERIES,
}

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]


def kill_leader(cluster: Cluster, topic: str) -> None:
    """Kill the leader, let another lead, and start the broker again."""
    leader = cluster.leader_of(topic, 0)
    cluster.broker(leader).kill()
    cluster.wait_until_led_by_another(topic, 0, leader)
    cluster.broker(leader).start()


def test_every_record_is_accepted_although_the_leader_and_the_coordinator_are_killed(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3, **CONFIG) as cluster:
        cluster.create_topic(FIRST.topic, replicas=[[0, 1, 2]], min_insync_replicas=2)
        cluster.ask(lambda client: move_starts(client, "g", {FIRST: 0}), seconds=60)
        acceptor = Acceptor(cluster.bootstrap, FIRST.topic)

        def is_complete() -> bool:
            found = cluster.ask(lambda client: share_starts(client, "g"), seconds=30)
            assert isinstance(found, dict)
            return len(acceptor.delivered) == RECORDS and bool(found[FIRST].lag == 0)

        try:
            write(cluster.bootstrap, FIRST.topic, 0, 700)
            acceptor.work_until(lambda: len(acceptor.accepted) >= 10, "the first records are accepted")
            write(cluster.bootstrap, FIRST.topic, 700, 1_400)
            acceptor.hold_over(lambda: kill_leader(cluster, FIRST.topic))
            acceptor.work_until(lambda: len(acceptor.delivered) == 1_400, "the records of the new leader are delivered")
            cluster.wait_until_isr_is(FIRST.topic, 0, 0, 1, 2)
            cluster.wait_until_isr_is(STATE_TOPIC, 0, 0, 1, 2)
            write(cluster.bootstrap, FIRST.topic, 1_400, RECORDS)
            acceptor.hold_over(lambda: kill_leader(cluster, STATE_TOPIC))
            acceptor.work_until(is_complete, "all records are delivered, and the group has no lag")
        finally:
            acceptor.close()
        assert acceptor.delivered.keys() == set(range(RECORDS))
        assert len(acceptor.accepted) > RECORDS // 2
        assert max(acceptor.delivered.values()) < MOST_DELIVERIES, "none was archived because it failed too often"


def complete(cluster: Cluster) -> bool:
    """Whether the group has no record before it."""
    found = cluster.ask(lambda client: share_starts(client, "g"), seconds=30)
    assert isinstance(found, dict)
    return bool(found[FIRST].lag == 0)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("topic", [FIRST.topic, STATE_TOPIC])
def test_no_record_is_missing_although_leaders_are_killed_all_the_time(tmp_path: Path, topic: str) -> None:
    with a_cluster(tmp_path, 3, **{**CONFIG, "group_share_record_lock_duration_ms": 10_000}) as cluster:
        cluster.create_topic(FIRST.topic, replicas=[[0, 1, 2]], min_insync_replicas=2)
        cluster.ask(lambda client: move_starts(client, "g", {FIRST: 0}), seconds=60)
        writing = threading.Thread(target=write_slowly, args=(cluster.bootstrap,))
        writing.start()
        kills = 0
        with Acceptors(cluster.bootstrap, FIRST.topic, CONSUMERS) as acceptors:
            while writing.is_alive():
                enough = len(acceptors.delivered) + BETWEEN_KILLS
                eventually(lambda enough=enough: len(acceptors.delivered) > enough or not writing.is_alive(), 120, "records are delivered")
                kill_leader(cluster, topic)
                cluster.wait_until_isr_is(topic, 0, 0, 1, 2)
                kills += 1
            eventually(lambda: len(acceptors.delivered) == MANY_RECORDS, 300, "all records are delivered")
            eventually(lambda: complete(cluster), 120, "the group has no lag")
        writing.join()
        assert kills >= 5
        assert acceptors.delivered.keys() == set(range(MANY_RECORDS))
        assert len(acceptors.accepted) > MANY_RECORDS * 0.9
        assert max(acceptors.delivered.values()) < MOST_DELIVERIES, "none was archived because it failed too often"


def write_slowly(bootstrap: str) -> None:
    """All records, some of them each second."""
    pause = threading.Event()
    for begin in range(0, MANY_RECORDS, WRITTEN_AT_ONCE):
        write(bootstrap, FIRST.topic, begin, begin + WRITTEN_AT_ONCE)
        pause.wait(1)
