"""What is wrong in a share group costs its own request alone: all other records are delivered, and nothing is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.share_members import ShareMember, create_topic, initialize, produce
from tests.support.wire_client import WireClient, a_wire_client

GAP, ACCEPT, RELEASE = range(3)
OTHER = "AAAAAAAAAAAAAAAAAAAAAg"
MANY = 100_000
SESSIONS = 2_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path, share_coordinator_state_topic_num_partitions=2) as started:
        yield started


@pytest.fixture
def member(client: WireClient) -> ShareMember:
    """A member with an open session, and ten records before it."""
    topic_id = create_topic(client, "t")
    initialize(client, "g", topic_id)
    found = ShareMember(client, topic_id)
    assert found.acquire(0) == []
    produce(client, "t", 10)
    return found


def states(broker: InProcessBroker) -> int:
    return int(broker.run(lambda: len(list(broker.services.coordinators.shares.states))))


def test_records_that_a_member_does_not_have_are_for_others(broker: InProcessBroker, client: WireClient, member: ShareMember) -> None:
    produce(client, "t", 5)
    assert member.acquire(max_records=1) == [(0, 9, 1)]
    assert member.acknowledge((10, 14, ACCEPT)) == ErrorCode.INVALID_REQUEST, "never acquired"
    with a_wire_client(broker.port) as second:
        other = ShareMember(second, member.topic_id, OTHER)
        assert other.acquire(0, max_records=1) == [(10, 14, 1)]
        assert other.acknowledge((0, 4, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE, "of another member"
    assert [member.acknowledge((2, 2, ACCEPT)) for _ in range(2)] == [ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE]
    assert member.acknowledge_all({}, epoch=-1).error_code == ErrorCode.NONE
    assert member.acknowledge_all({0: [(0, 1, ACCEPT)]}).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND, "the session is closed"
    again = ShareMember(client, member.topic_id)
    taken: list[tuple[int, int, int]] = []

    def has_taken_all() -> bool:
        taken.extend(again.acquire(0))
        return len(taken) == 3

    eventually(has_taken_all, 30)
    assert sorted(taken) == [(0, 1, 2), (3, 9, 2), (10, 14, 2)]


def test_acknowledgements_of_an_old_state_epoch_are_refused(broker: InProcessBroker, client: WireClient, member: ShareMember) -> None:
    assert member.acquire() == [(0, 9, 1)]
    initialize(client, "g", member.topic_id, start=1, epoch=1)
    assert member.acknowledge((0, 9, ACCEPT)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert member.acquire(0, max_wait_ms=30_000) == [(1, 9, 1)]
    assert member.acknowledge((1, 9, ACCEPT)) == ErrorCode.NONE


def test_as_many_gaps_as_a_request_may_have_are_refused(member: ShareMember) -> None:
    assert member.acquire() == [(0, 9, 1)]
    assert member.acknowledge((0, MANY - 1, *[GAP] * MANY)) == ErrorCode.INVALID_REQUEST
    assert member.acknowledge(*((offset, offset, GAP) for offset in range(MANY))) == ErrorCode.INVALID_REQUEST
    assert member.acknowledge((0, 9, ACCEPT)) == ErrorCode.NONE


def test_a_million_gaps_cost_the_connection(
    broker: InProcessBroker, client: WireClient, member: ShareMember, caplog: pytest.LogCaptureFixture
) -> None:
    assert member.acquire() == [(0, 9, 1)]
    with pytest.raises(ConnectionError):
        member.acknowledge((0, 10 * MANY - 1, *[GAP] * 10 * MANY))
    assert [record.message for record in caplog.records if "more than 500000 elements" in record.message]
    with a_wire_client(broker.port) as second:
        assert ShareMember(second, member.topic_id, OTHER).acquire(0, max_wait_ms=30_000) == [(0, 9, 2)]


def test_types_that_change_with_each_record_are_as_good_as_one(broker: InProcessBroker, member: ShareMember) -> None:
    assert member.acquire() == [(0, 9, 1)]
    assert member.acknowledge((0, 9, *[ACCEPT, RELEASE] * 5)) == ErrorCode.NONE
    assert member.acquire() == [(offset, offset, 2) for offset in range(1, 10, 2)]
    assert member.acknowledge(*((offset, offset, ACCEPT) for offset in range(1, 10, 2))) == ErrorCode.NONE
    (led,) = broker.run(lambda: list(broker.services.coordinators.share_leader.led))
    assert led.machine is not None
    assert not led.machine.runs


def test_as_many_sessions_as_allowed_are_served(broker: InProcessBroker, client: WireClient, member: ShareMember) -> None:
    for number in range(1, SESSIONS):
        found = ShareMember(client, member.topic_id, f"member-{number}").fetch_all(max_wait_ms=0)
        assert found.error_code == 0
    refused = ShareMember(client, member.topic_id, OTHER).fetch_all(max_wait_ms=0)
    assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert member.acquire() == [(0, 9, 1)]
    assert broker.run(lambda: len(broker.services.coordinators.share_leader.sessions)) == SESSIONS


def test_a_topic_that_was_deleted_and_made_anew_begins_anew(broker: InProcessBroker, client: WireClient, member: ShareMember) -> None:
    assert member.acquire() == [(0, 9, 1)]
    assert states(broker) == 1
    client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=30_000), 6)
    eventually(lambda: states(broker) == 0, 30, "the state of the deleted topic is deleted")
    assert member.fetch(max_wait_ms=0)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert member.acknowledge((0, 9, ACCEPT)) == ErrorCode.UNKNOWN_TOPIC_ID
    eventually(lambda: broker.run(lambda: len(broker.services.coordinators.share_leader.led)) == 0, 30, "nothing is kept of it")

    topic_id = create_topic(client, "t")
    initialize(client, "g", topic_id)
    produce(client, "t", 3)
    assert topic_id != member.topic_id
    assert ShareMember(client, topic_id, OTHER).acquire(0) == [(0, 2, 1)]
