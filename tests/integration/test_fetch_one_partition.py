"""The hot path of Fetch answers what the ordinary way answers, byte by byte, or leaves the request to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.fetching.fetch_sessions import Partitions, SessionPartition, key_of
from broker.handlers.data.fetch import handle_fetch
from broker.handlers.data.fetch_one_partition import handle_fetch_frame
from broker.network.request_channel import Pending
from broker.request.context import RequestContext
from broker.request.services import Services
from broker.serving.route import Route
from controller.admin.topic_admin import NewTopic
from protocol.api_keys import ApiKey
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from protocol.schema.message import Message
from protocol.schema.registry import api
from protocol.uuid import ZERO_UUID
from storage.log.origins import CLIENT
from storage.log.partition_log import PartitionLog
from storage.log.reads import FetchSlice
from storage.segment.file_region import FileRegion
from storage.segment.transaction_index import AbortedTransaction
from tests.support.batches import FIRST_TIMESTAMP, a_batch, a_run
from tests.support.connections import ClientConnection
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process

TOPIC = "hot"
VERSIONS = (11, 13, 14, 15, 16, 17)
RECORDS = 10
BATCHES = 40
CONNECTION: Any = ClientConnection()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path_factory.mktemp("hot"), log_segment_bytes=20_000, log_index_interval_bytes=2000) as running:
        running.run(running.services.topic_admin.create_topics, [NewTopic(TOPIC, 2, 1)])
        running.run(fill, running.services)
        yield running


def fill(services: Services) -> None:
    partition = services.replica_manager.partition_or_raise(TOPIC, 0)
    for _ in range(BATCHES):
        partition.append(a_run(a_batch(RECORDS, value_bytes=100)), -1, FIRST_TIMESTAMP, CLIENT)


def a_fetch(services: Services, version: int, **changes: Any) -> FetchRequest:
    """For partition 0 from offset 0, outside any session; `changes` go to the partition where it has such a field, else to the request."""
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic_id = services.replica_manager.partition_or_raise(TOPIC, 0).topic_id
    topic = FetchTopic(topic_id=topic_id, partitions=[asked]) if version >= 13 else FetchTopic(topic=TOPIC, partitions=[asked])
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 25, topics=[topic])
    for name, value in changes.items():
        setattr(asked if hasattr(asked, name) else topic if hasattr(topic, name) else request, name, value)
    return request


def content_of(answer: Any) -> bytes:
    return b"".join(part.read() if isinstance(part, FileRegion) else bytes(part) for part in answer)


def by_hand(services: Services, version: int, request: FetchRequest) -> bytes | None:
    frame = memoryview(b"header" + request.encode(version))
    answer = handle_fetch_frame(frame, 6, version, 77, CONNECTION, services)
    return None if answer is None else content_of(answer)


def ordinarily(services: Services, version: int, request: FetchRequest) -> bytes | None:
    """None when it waits."""
    route = Route(api(ApiKey.FETCH), version, handle_fetch, None)
    context = RequestContext(ApiKey.FETCH, version, 77, "client", CONNECTION, services, route.encode)
    decoded, _ = FetchRequest.decode(request.encode(version), version)
    answer = handle_fetch(decoded, context)
    if isinstance(answer, Pending):
        assert answer.on_closed is not None
        answer.on_closed()
        return None
    assert isinstance(answer, Message)
    return content_of(route.encode(77, answer))


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_bytes_from_any_offset_up_to_any_size(broker: InProcessBroker, version: int, isolation_level: int) -> None:
    def compare(services: Services) -> None:
        for offset in (0, 5, 10, 11, 155, 399):
            for size in (1, 100, 1500, 15_000, 1 << 20):
                request = a_fetch(services, version, fetch_offset=offset, partition_max_bytes=size, isolation_level=isolation_level)
                expected = ordinarily(services, version, request)
                assert expected is not None
                assert by_hand(services, version, request) == expected

    broker.run(compare, broker.services)


@pytest.mark.parametrize("size", [126, 127, 128, 16_382, 16_383, 16_384, 2_097_151, 300_000_000])
@pytest.mark.parametrize("version", [11, 17])
def test_the_size_of_the_records_is_written_as_the_encoder_writes_it(broker: InProcessBroker, version: int, size: int) -> None:
    class Claiming(FileRegion):
        def read(self) -> bytes:
            return b""

    def compare(services: Services, patch: pytest.MonkeyPatch) -> None:
        log = services.replica_manager.partition_or_raise(TOPIC, 0).log
        found = FetchSlice(Claiming(log.active_segment.file, 0, size), 1)
        patch.setattr(PartitionLog, "read", lambda *_: found)
        request = a_fetch(services, version)
        assert by_hand(services, version, request) == ordinarily(services, version, request)

    with pytest.MonkeyPatch.context() as patch:
        broker.run(compare, broker.services, patch)


UNCOMMON: dict[str, dict[str, Any]] = {
    "nothing there yet": {"fetch_offset": RECORDS * BATCHES},
    "an empty partition": {"partition": 1},
    "less than is wanted": {"min_bytes": 1 << 20},
    "beyond the end": {"fetch_offset": 1 << 40},
    "before the start": {"fetch_offset": -1},
    "no such partition": {"partition": 7},
    "an epoch of the future": {"current_leader_epoch": 9},
    "a session's first request": {"session_epoch": 0},
    "a session nobody has": {"session_id": 123, "session_epoch": 5},
    "forgotten topics": {"forgotten_topics_data": [ForgottenTopic(topic="x", partitions=[1])]},
    "nothing asked": {"topics": []},
    "no bytes": {"max_bytes": 0, "min_bytes": 1},
}


@pytest.mark.parametrize("changes", UNCOMMON.values(), ids=UNCOMMON.keys())
@pytest.mark.parametrize("version", [11, 13, 17])
def test_what_is_uncommon_is_left_to_the_ordinary_way_or_answered_alike(
    broker: InProcessBroker, version: int, changes: dict[str, Any]
) -> None:
    def compare(services: Services) -> None:
        request = a_fetch(services, version, **changes)
        answer = by_hand(services, version, request)
        assert answer is None or answer == ordinarily(services, version, request)

    broker.run(compare, broker.services)


def test_followers_are_left_to_the_ordinary_way(broker: InProcessBroker) -> None:
    def ask(services: Services) -> None:
        assert by_hand(services, 11, a_fetch(services, 11, replica_id=1)) is None
        assert by_hand(services, 17, a_fetch(services, 17, replica_state=ReplicaState(replica_id=1))) is None
        assert by_hand(services, 17, a_fetch(services, 17, last_fetched_epoch=0)) is None

    broker.run(ask, broker.services)


def test_unknown_ids_and_old_versions_are_left_to_the_ordinary_way(broker: InProcessBroker) -> None:
    def ask(services: Services) -> None:
        assert by_hand(services, 17, a_fetch(services, 17, topic_id=b"?" * 16)) is None
        assert by_hand(services, 11, a_fetch(services, 11, topic="other")) is None
        assert by_hand(services, 10, a_fetch(services, 10)) is None
        assert by_hand(services, 12, a_fetch(services, 12)) is None

    broker.run(ask, broker.services)


def test_a_partition_that_is_not_led_here_is_left_to_the_ordinary_way(broker: InProcessBroker) -> None:
    def ask(services: Services, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(services.replica_manager.partition_or_raise(TOPIC, 0), "is_leader", False)
        assert by_hand(services, 17, a_fetch(services, 17)) is None

    with pytest.MonkeyPatch.context() as patch:
        broker.run(ask, broker.services, patch)


def a_session(services: Services, version: int) -> int:
    asked = a_fetch(services, version).topics[0]
    topic_id = asked.topic_id if version >= 13 else ZERO_UUID
    partitions: Partitions = {key_of(TOPIC, topic_id, 0): SessionPartition(TOPIC, topic_id, asked.partitions[0])}
    return services.fetch_sessions.maybe_create(partitions, is_follower=False, uses_topic_ids=version >= 13, now_ms=0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_goes_on_alike_on_both_ways(broker: InProcessBroker, version: int) -> None:
    def compare(services: Services) -> None:
        one, other = a_session(services, version), a_session(services, version)
        for epoch in range(1, 20):
            changes = {"session_epoch": epoch, "fetch_offset": epoch * 7, "partition_max_bytes": epoch * 1000}
            expected = ordinarily(services, version, a_fetch(services, version, session_id=other, **changes))
            assert expected is not None
            answer = by_hand(services, version, a_fetch(services, version, session_id=one, **changes))
            if answer is not None:
                assert answer == expected.replace(other.to_bytes(4, "big"), one.to_bytes(4, "big"), 1)
            sessions = services.fetch_sessions.sessions
            assert sessions[one].epoch == sessions[other].epoch == epoch + 1
            (left,), (right,) = sessions[one].partitions.values(), sessions[other].partitions.values()
            assert all(getattr(left, name) == getattr(right, name) for name in SessionPartition.__slots__)
        assert answer is not None

    broker.run(compare, broker.services)


def test_a_session_in_another_epoch_or_that_waits_does_not_move(broker: InProcessBroker) -> None:
    def ask(services: Services) -> None:
        session_id = a_session(services, 17)
        assert by_hand(services, 17, a_fetch(services, 17, session_id=session_id, session_epoch=2)) is None
        assert by_hand(services, 17, a_fetch(services, 17, session_id=session_id, session_epoch=1, min_bytes=1 << 20)) is None
        assert by_hand(services, 11, a_fetch(services, 11, session_id=session_id, session_epoch=1)) is None
        assert services.fetch_sessions.sessions[session_id].epoch == 1

    broker.run(ask, broker.services)


def test_the_final_request_of_a_session_ends_it(broker: InProcessBroker) -> None:
    def ask(services: Services) -> None:
        session_id = a_session(services, 17)
        assert by_hand(services, 17, a_fetch(services, 17, session_id=session_id, session_epoch=-1)) is not None
        assert session_id not in services.fetch_sessions.sessions

    broker.run(ask, broker.services)


def test_aborted_transactions_are_left_to_the_ordinary_way(tmp_path: Path) -> None:
    def ask(services: Services) -> None:
        fill(services)
        log = services.replica_manager.partition_or_raise(TOPIC, 0).log
        log.active_segment.transaction_index.append(AbortedTransaction(5, 10, 20, 21))
        assert by_hand(services, 17, a_fetch(services, 17, isolation_level=1)) is None
        assert by_hand(services, 17, a_fetch(services, 17, isolation_level=0)) is not None

    with a_broker_in_process(tmp_path) as running:
        running.run(running.services.topic_admin.create_topics, [NewTopic(TOPIC, 1, 1)])
        running.run(ask, running.services)
