"""Where a consumer should read: the closest replica that has what it asks for (KIP-392)."""

import pytest

from ottla.config.errors import ConfigError
from ottla.replication.ports.replica_selector import SELECTORS, ReplicaView, select_by_rack, select_leader, selector_of
from ottla.replication.reading.asked_partition import READ_UNCOMMITTED
from ottla.replication.reading.fetch_read import FetchParams
from tests.support.replicas import TOPIC_ID, Asked, Replicas, state

LEADER = ReplicaView(0, "r0", 10, 0)
NEAR = ReplicaView(1, "r1", 10, 5)
FAR = ReplicaView(2, "r2", 10, 5)


@pytest.mark.parametrize(
    ("rack", "followers", "selected"),
    [
        ("r1", [NEAR, FAR], NEAR),
        ("r0", [NEAR, FAR], LEADER),
        ("r0", [NEAR._replace(rack="r0")], LEADER),
        ("nowhere", [NEAR, FAR], LEADER),
        ("", [NEAR, FAR], LEADER),
        ("r1", [NEAR, FAR._replace(rack="r1", log_end_offset=11)], FAR._replace(rack="r1", log_end_offset=11)),
        ("r1", [NEAR, FAR._replace(rack="r1", ms_since_caught_up=4)], FAR._replace(rack="r1", ms_since_caught_up=4)),
        ("r1", [NEAR, FAR._replace(rack="r1")], FAR._replace(rack="r1")),
    ],
)
def test_the_replica_in_the_rack_of_the_consumer_is_selected_and_of_several_the_furthest(
    rack: str, followers: list[ReplicaView], selected: ReplicaView
) -> None:
    assert select_by_rack(rack, LEADER, followers) == selected
    assert select_leader(rack, LEADER, followers) == LEADER


def test_only_the_classes_of_apache_kafka_can_be_configured() -> None:
    assert selector_of(None) is None
    assert selector_of("org.apache.kafka.common.replica.RackAwareReplicaSelector") is select_by_rack
    with pytest.raises(ConfigError, match=r"org\.example\.Mine"):
        selector_of("org.example.Mine")


def leading(isr: tuple[int, ...] = (0, 1, 2)) -> Replicas:
    """Broker 0 leads; the followers have the three records. Broker i stands in rack ri."""
    replicas = Replicas()
    replicas.manager.replica_selector = SELECTORS["org.apache.kafka.common.replica.RackAwareReplicaSelector"]
    replicas.say(state(isr=isr))
    replicas.append(3, acks=1)
    for broker_id in (1, 2):
        replicas.follow(broker_id, 3)
    return replicas


def preferred(replicas: Replicas, rack: str | None, offset: int = 1, *, listener: str = "PLAINTEXT", leader_epoch: int = -1) -> int:
    """Where the answer sends a consumer that stands in `rack`."""
    params = FetchParams(-1, READ_UNCOMMITTED, or_follower=True, rack_id=rack, listener=listener)
    answer = replicas.read(Asked(offset, topic_id=TOPIC_ID, leader_epoch=leader_epoch), params)
    assert bool(answer.records) == (answer.preferred_read_replica == -1 and offset < 3)
    assert answer.high_watermark == replicas.partition.log.high_watermark
    return answer.preferred_read_replica


def test_a_consumer_is_sent_to_the_replica_in_its_rack_and_gets_no_records() -> None:
    replicas = leading()
    assert preferred(replicas, "r1") == 1
    assert preferred(replicas, "r0") == -1
    assert preferred(replicas, "") == -1


def test_without_a_selector_or_a_version_that_has_racks_the_leader_is_read() -> None:
    replicas = leading()
    assert preferred(replicas, None) == -1
    replicas.manager.replica_selector = None
    assert preferred(replicas, "r1") == -1


def test_a_replica_outside_the_isr_is_not_read_from() -> None:
    replicas = leading(isr=(0, 2))
    assert replicas.partition.isr == (0, 2)
    assert preferred(replicas, "r1") == -1


def test_a_replica_that_does_not_have_the_offset_is_not_read_from() -> None:
    replicas = leading()
    assert preferred(replicas, "r1", 3) == 1
    replicas.follow(1, 3, start=2)
    assert preferred(replicas, "r1", 1) == -1
    assert preferred(replicas, "r1", 2) == 1


def test_a_replica_that_is_dead_or_does_not_listen_where_the_consumer_came_from_is_not_read_from() -> None:
    replicas = leading()
    assert preferred(replicas, "r1", listener="OTHER") == -1
    replicas.alive(0, 2)
    assert preferred(replicas, "r1") == -1


def test_a_replica_that_only_follows_sends_nobody_away() -> None:
    replicas = leading()
    replicas.say(state(leader=1, epoch=1, partition_epoch=1))
    assert preferred(replicas, "r1") == -1
