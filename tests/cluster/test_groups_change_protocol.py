"""A group moves from the classic protocol to the new one and back, member by member, under a load that never stops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.rolling_members import Ledger, Member, a_steady_load

PARTITIONS = 6
MEMBERS = 3
SECONDS = 90.0
OFFSETS = "__consumer_offsets"
CONFIG: dict[str, object] = {
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 3,
    "group_consumer_heartbeat_interval_ms": 500,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_min_session_timeout_ms": 1_000,
}

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(600)]


def wait_until_shared(members: Sequence[Member]) -> None:
    """Every partition has one member, and every member some."""

    def is_shared() -> bool:
        parts = [member.assigned for member in members]
        return all(parts) and sorted(each for part in parts for each in part) == list(range(PARTITIONS))

    eventually(is_shared, SECONDS, "the members share the partitions")


def wait_for_more(ledger: Ledger, count: int = 200) -> None:
    """The load goes on, and is read."""
    aim = len(ledger.read) + count
    eventually(lambda: ledger.is_read_to(aim), SECONDS, f"{aim} records are read")


def kill_coordinator(cluster: Cluster) -> None:
    """Kill the coordinator of the group, let another one take over, and start the broker again."""
    leader = cluster.leader_of(OFFSETS, 0)
    cluster.broker(leader).kill()
    cluster.wait_until_led_by_another(OFFSETS, 0, leader)
    cluster.broker(leader).start()
    cluster.wait_until_isr_is(OFFSETS, 0, 0, 1, 2)


@pytest.mark.parametrize("kills", [False, True], ids=["calm", "the-coordinator-is-killed"])
def test_no_record_is_lost_or_read_again_after_its_commit_while_members_change_their_protocol(tmp_path: Path, kills: bool) -> None:
    ledger = Ledger()
    with a_cluster(tmp_path, 3, **CONFIG) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS, min_insync_replicas=2)
        members: list[Member] = []

        def join(protocol: str, number: int) -> None:
            members.append(Member(cluster.bootstrap, "g", "t", protocol, f"{protocol}-{number}", ledger))

        try:
            with a_steady_load(cluster.bootstrap, "t", PARTITIONS, ledger):
                for number in range(MEMBERS):
                    join("classic", number)
                wait_until_shared(members)
                wait_for_more(ledger)
                for number, protocol in enumerate(["consumer"] * MEMBERS + ["classic"] * MEMBERS, MEMBERS):
                    members.pop(0).leave()
                    join(protocol, number)
                    if kills and number % MEMBERS == 1:
                        kill_coordinator(cluster)
                    wait_until_shared(members)
                    wait_for_more(ledger)
            eventually(lambda: ledger.is_read_to(len(ledger.written)), SECONDS, "everything is read")
        finally:
            for member in members:
                member.leave()
    assert ledger.read == ledger.written
    assert ledger.read_again() == []
    assert ledger.committed() == len(ledger.written), "the last members have committed everything"
