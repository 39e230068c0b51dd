"""Members acquire and acknowledge records by requests; outcomes and codes are those of Apache Kafka 4.4."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.coordination.shares import sessions
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.reader import iter_records
from ottla.protocol.uuid import ZERO_UUID
from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.share_members import ShareMember, create_topic, initialize, produce
from tests.support.wire_client import WireClient, a_wire_client

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
RECORD_LIMIT = 1
OTHER = "AAAAAAAAAAAAAAAAAAAAAg"
CONFIG = {"group.share.min.record.lock.duration.ms": 1000, "group.share.record.lock.duration.ms": 2000}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path, share_coordinator_state_topic_num_partitions=2, **CONFIG) as started:
        yield started


@pytest.fixture
def topic_id(client: WireClient) -> bytes:
    """The id of a topic `t` with two partitions, whose first is a share partition of group `g`."""
    found = create_topic(client, "t", 2)
    initialize(client, "g", found)
    return found


@pytest.fixture
def member(client: WireClient, topic_id: bytes) -> ShareMember:
    """A member with an open session."""
    found = ShareMember(client, topic_id)
    assert found.acquire(0) == []
    return found


def test_a_member_gets_the_batches_of_the_log_and_the_ranges_that_it_has_acquired(client: WireClient, member: ShareMember) -> None:
    produce(client, "t", 10)
    produce(client, "t", 10)
    found = member.fetch()[0]
    assert [(each.first_offset, each.last_offset, each.delivery_count) for each in found.acquired_records] == [(0, 19, 1)]
    data = bytes(found.records)
    assert [record.offset for at, header in iter_batches(data) for record in iter_records(data, at, header)] == list(range(20))
    assert member.fetch() == {}


def test_two_members_share_a_partition(client: WireClient, member: ShareMember) -> None:
    other = ShareMember(client, member.topic_id, OTHER)
    for _ in range(4):
        produce(client, "t", 10)
    assert member.acquire(max_records=5) == [(0, 9, 1)]
    assert other.acquire(0, max_records=5) == [(10, 19, 1)]
    assert member.acknowledge((0, 9, ACCEPT)) == ErrorCode.NONE
    assert other.acknowledge((0, 9, ACCEPT)) == ErrorCode.NONE, "below the start nothing is left to do"
    assert member.acknowledge((10, 19, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    assert member.acquire(max_records=3, share_acquire_mode=RECORD_LIMIT) == [(20, 22, 1)]
    assert other.acquire(max_records=3, share_acquire_mode=RECORD_LIMIT) == [(23, 25, 1)]


def test_only_the_batches_with_acquired_records_are_sent(client: WireClient, member: ShareMember) -> None:
    for _ in range(3):
        produce(client, "t", 10)
    member.acquire(max_records=30)
    assert member.acknowledge((0, 12, ACCEPT), (13, 13, RELEASE), (14, 29, ACCEPT)) == ErrorCode.NONE
    found = member.fetch()[0]
    assert [header.base_offset for _, header in iter_batches(bytes(found.records))] == [10]
    assert [(each.first_offset, each.last_offset, each.delivery_count) for each in found.acquired_records] == [(13, 13, 2)]


def test_acknowledgements_come_with_a_fetch(client: WireClient, member: ShareMember) -> None:
    produce(client, "t", 4)
    produce(client, "t", 4)
    assert member.acquire(max_records=4) == [(0, 3, 1)]
    found = member.fetch(acknowledged={0: [(0, 1, ACCEPT), (2, 3, ACCEPT, REJECT)]}, max_records=4)[0]
    assert (found.error_code, found.acknowledge_error_code) == (0, 0)
    assert [(each.first_offset, each.last_offset) for each in found.acquired_records] == [(4, 7)]
    found = member.fetch(acknowledged={0: [(0, 3, ACCEPT), (7, 9, ACCEPT)]})[0]
    assert (found.error_code, found.acknowledge_error_code) == (0, ErrorCode.INVALID_REQUEST)


def in_background(function: Any) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    return thread, found


def test_a_fetch_waits_for_new_records(broker: InProcessBroker, client: WireClient, member: ShareMember) -> None:
    thread, found = in_background(lambda: member.acquire(max_wait_ms=60_000))
    eventually(lambda: broker.run(lambda: broker.services.coordinators.share_leader.purgatory.delayed) == 1)
    with a_wire_client(broker.port) as producer:
        produce(producer, "t", 3)
    thread.join(30)
    assert found == [[(0, 2, 1)]]


def test_a_fetch_waits_for_records_that_another_member_releases(broker: InProcessBroker, client: WireClient, member: ShareMember) -> None:
    produce(client, "t", 3)
    member.acquire()
    with a_wire_client(broker.port) as second:
        other = ShareMember(second, member.topic_id, OTHER)
        thread, found = in_background(lambda: other.acquire(0, max_wait_ms=60_000))
        eventually(lambda: broker.run(lambda: broker.services.coordinators.share_leader.purgatory.delayed) == 1)
        assert member.acknowledge((1, 1, RELEASE)) == ErrorCode.NONE
        thread.join(30)
    assert found == [[(1, 1, 2)]]


def test_a_fetch_ends_with_its_connection(broker: InProcessBroker, client: WireClient, member: ShareMember) -> None:
    def delayed() -> int:
        return int(broker.run(lambda: broker.services.coordinators.share_leader.purgatory.delayed))

    with a_wire_client(broker.port, seconds=0.5) as second, pytest.raises(TimeoutError):
        ShareMember(second, member.topic_id, OTHER).acquire(0, max_wait_ms=60_000)
    eventually(lambda: delayed() == 0)
    produce(client, "t", 2)
    assert member.acquire() == [(0, 1, 1)], "nothing was acquired for the closed connection"


def test_a_fetch_waits_for_the_end_of_a_lock(broker: InProcessBroker, client: WireClient, member: ShareMember) -> None:
    produce(client, "t", 3)
    member.acquire()
    with a_wire_client(broker.port) as second:
        assert ShareMember(second, member.topic_id, OTHER).acquire(0, max_wait_ms=30_000) == [(0, 2, 2)]
    assert member.acknowledge((0, 2, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


def test_a_renewed_lock_lasts_longer(client: WireClient, member: ShareMember) -> None:
    produce(client, "t", 2)
    member.acquire()
    began = time.monotonic()
    while time.monotonic() < began + 3:
        assert member.acknowledge((0, 0, RENEW), renews=True) == ErrorCode.NONE
        time.sleep(0.2)
    other = ShareMember(client, member.topic_id, OTHER)
    assert other.acquire(0) == [(1, 1, 2)]
    assert member.acknowledge((0, 0, ACCEPT)) == ErrorCode.NONE


def test_the_records_of_a_session_that_ends_are_for_others(broker: InProcessBroker, client: WireClient, member: ShareMember) -> None:
    produce(client, "t", 2)
    member.acquire()
    response = member.acknowledge_all({0: [(0, 0, ACCEPT)]}, epoch=-1)
    assert response.error_code == 0
    assert member.fetch_all(epoch=3).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    with a_wire_client(broker.port) as second:
        assert ShareMember(second, member.topic_id, OTHER).acquire(0) == [(1, 1, 2)]
    assert ShareMember(client, member.topic_id).acquire(0, max_wait_ms=20_000) == [(1, 1, 3)], "the connection of the other is closed"


def test_sessions_have_epochs(client: WireClient, topic_id: bytes) -> None:
    member = ShareMember(client, topic_id)
    assert member.fetch_all(epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.fetch_all(epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.acknowledge_all({}, epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch_all(acknowledged={0: [(0, 0, ACCEPT)]}).error_code == ErrorCode.INVALID_REQUEST
    assert member.fetch_all(0).error_code == 0
    assert member.fetch_all(epoch=2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge_all({}, epoch=5).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch_all().error_code == 0
    for group, member_id in ((None, "m"), ("g", None), ("g", "")):
        wrong = ShareMember(client, topic_id, member_id, group)  # type: ignore[arg-type]  # null on purpose
        assert wrong.fetch_all(0).error_code == ErrorCode.INVALID_REQUEST
        assert wrong.acknowledge_all({}).error_code == ErrorCode.INVALID_REQUEST


def test_the_number_of_sessions_has_a_limit(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path, group_share_max_share_sessions=2) as broker, a_wire_client(broker.port) as client:
        found = create_topic(client, "t")
        for number in range(2):
            assert ShareMember(client, found, f"m{number}").fetch_all(max_wait_ms=0).error_code == 0
        assert ShareMember(client, found, "m2").fetch_all(max_wait_ms=0).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        client.close()
        with a_wire_client(broker.port) as again:
            eventually(lambda: ShareMember(again, found, "m2").fetch_all(max_wait_ms=0).error_code == 0)


@pytest.mark.parametrize(
    ("batches", "error"),
    [
        ([(5, 3, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(5, 6, ACCEPT), (3, 4, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 3, ACCEPT), (3, 4, ACCEPT)], ErrorCode.INVALID_RECORD_STATE),
        ([(0, 3, ACCEPT, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 3)], ErrorCode.INVALID_REQUEST),
        ([(0, 3, 5)], ErrorCode.INVALID_REQUEST),
        ([(0, 3, -1)], ErrorCode.INVALID_REQUEST),
        ([(0, 3, RENEW)], ErrorCode.INVALID_REQUEST),
        ([(5, 10, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 2**62, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 99_999, *[GAP] * 100_000)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_wrong_acknowledgements_change_nothing(client: WireClient, member: ShareMember, batches: list[Any], error: ErrorCode) -> None:
    produce(client, "t", 10)
    member.acquire()
    assert member.acknowledge(*batches) == error
    assert member.acknowledge((0, 9, ACCEPT)) == ErrorCode.NONE
    assert member.acknowledge((0, 9, ACCEPT)) == ErrorCode.NONE, "they are below the start"


def test_renewing_has_rules(client: WireClient, member: ShareMember) -> None:
    produce(client, "t", 2)
    member.acquire()
    limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 0}
    renewing = {0: [(0, 1, RENEW)]}
    assert member.fetch_all(acknowledged=renewing, is_renew_ack=True).error_code == ErrorCode.INVALID_REQUEST
    found = member.fetch(acknowledged=renewing, is_renew_ack=True, **limits)[0]
    assert found.acknowledge_error_code == 0
    assert member.fetch(acknowledged=renewing)[0].acknowledge_error_code == ErrorCode.INVALID_REQUEST


def test_partitions_that_cannot_be_read_have_errors_of_their_own(client: WireClient, member: ShareMember) -> None:
    produce(client, "t", 2)
    found = member.fetch(0, 1, 7)
    assert {index: each.error_code for index, each in found.items()} == {
        0: ErrorCode.NONE,
        1: ErrorCode.UNKNOWN_SERVER_ERROR,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    response = member.acknowledge_all({0: [(0, 1, ACCEPT)], 1: [(0, 1, ACCEPT)], 7: [(0, 0, ACCEPT)]})
    assert {each.partition_index: each.error_code for each in response.responses[0].partitions} == {0: 0, 1: 3, 7: 3}
    stranger = ShareMember(client, ZERO_UUID, OTHER)
    assert stranger.fetch(0)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_the_start_of_the_log_moves_the_share_partition(client: WireClient, member: ShareMember) -> None:
    for _ in range(3):
        produce(client, "t", 10)
    assert member.acquire(max_records=5) == [(0, 9, 1)]
    partitions = [DeleteRecordsPartition(partition_index=0, offset=15)]
    client.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=30_000), 2)
    assert member.acquire() == [(15, 29, 1)]
    assert member.acknowledge((0, 9, ACCEPT)) == ErrorCode.NONE


def test_acknowledged_records_stay_so_when_the_broker_starts_again(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path) as broker, a_wire_client(broker.port) as client:
        found = create_topic(client, "t")
        initialize(client, "g", found)
        member = ShareMember(client, found)
        produce(client, "t", 10)
        assert member.acquire(0) == [(0, 9, 1)]
        assert member.acknowledge((0, 2, ACCEPT), (4, 4, REJECT), (6, 6, RELEASE), (7, 7, GAP)) == ErrorCode.NONE
    with a_broker_in_process(tmp_path) as broker, a_wire_client(broker.port) as client:
        acquired: list[tuple[int, int, int]] = []
        member = ShareMember(client, found)

        def fetches() -> bool:
            acquired.extend(member.acquire(0))
            return bool(acquired)

        eventually(fetches)
        assert acquired == [(3, 3, 1), (5, 5, 1), (6, 6, 2), (8, 9, 1)]


def test_a_session_without_room_for_its_partitions_ends_and_its_records_are_for_others(
    client: WireClient, broker: InProcessBroker, member: ShareMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept() -> tuple[int, int]:
        sessions_of_leader = broker.services.coordinators.share_leader.sessions
        return len(sessions_of_leader), sessions_of_leader.partitions

    assert broker.run(kept) == (1, 1)
    monkeypatch.setattr(sessions, "MAX_PARTITIONS", 3)
    produce(client, "t", 5)
    assert member.acquire() == [(0, 4, 1)]
    response = member.fetch_all(*range(4))
    assert (response.error_code, response.responses) == (ErrorCode.SHARE_SESSION_LIMIT_REACHED, [])
    assert broker.run(kept) == (0, 0)
    assert member.fetch_all().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    with a_wire_client(broker.port) as another:
        other = ShareMember(another, member.topic_id, OTHER)
        assert other.acquire(0, max_wait_ms=30_000) == [(0, 4, 2)]
