"""Fetch from the frame to the bytes of the answer, on a real disk: every version, any offset, any size."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.handlers.data.fetch import handle_fetch_frame
from ottla.broker.network.request_channel import Pending
from ottla.broker.request.services import Services
from ottla.controller.admin.topic_admin import NewTopic
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.protocol.messages.header import ResponseHeader
from ottla.protocol.records.batch import LOG_OVERHEAD
from ottla.protocol.schema.registry import api
from ottla.protocol.schema.wire import ProtocolError
from ottla.storage.log.origins import CLIENT
from ottla.storage.log.pending_topic_id import make_durable
from ottla.storage.segment.file_region import FileRegion
from ottla.storage.segment.transaction_index import AbortedTransaction as AbortedInLog
from tests.support.batches import FIRST_TIMESTAMP, a_batch, a_run
from tests.support.connections import ClientConnection
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process

TOPIC = "hot"
VERSIONS = tuple(range(4, 18))
RECORDS = 10
BATCHES = 40
CONNECTION: Any = ClientConnection()
LARGE = 1 << 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path_factory.mktemp("hot"), log_segment_bytes=20_000, log_index_interval_bytes=2000) as running:
        running.run(running.services.administration.topic_admin.create_topics, [NewTopic(TOPIC, 3, 1)])
        running.run(fill, running.services)
        yield running


def fill(services: Services) -> None:
    for index in (0, 2):
        partition = services.data.replica_manager.partition_or_raise(TOPIC, index)
        make_durable(partition.log)
        for _ in range(BATCHES):
            partition.append(a_run(a_batch(RECORDS, value_bytes=100)), -1, FIRST_TIMESTAMP, CLIENT)


def a_fetch(services: Services, version: int, *indexes: int, **changes: Any) -> FetchRequest:
    """For these partitions from offset 0, outside any session; `changes` go to partitions where they have such a field, else to the
    request."""
    asked = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=LARGE) for index in indexes or (0,)]
    topic_id = services.data.replica_manager.partition_or_raise(TOPIC, 0).topic_id
    topic = FetchTopic(topic_id=topic_id, partitions=asked) if version >= 13 else FetchTopic(topic=TOPIC, partitions=asked)
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])
    if version >= 3:
        request.max_bytes = 1 << 25
    for name, value in changes.items():
        for each in asked if hasattr(asked[0], name) else [topic] if hasattr(topic, name) else [request]:
            setattr(each, name, value)
    return request


def answered(services: Services, version: int, request: FetchRequest) -> FetchResponse | None:
    """The answer; None when it waits. What it is decoded to is encoded to the same bytes."""
    frame = memoryview(bytearray(b"header" + request.encode(version)))
    answer = handle_fetch_frame(frame, 6, version, 77, CONNECTION, services)
    if isinstance(answer, Pending):
        assert answer.on_closed is not None
        answer.on_closed()
        return None
    assert isinstance(answer, list)
    content = b"".join(part.read() if isinstance(part, FileRegion) else bytes(part) for part in answer)
    header, at = ResponseHeader.decode(content, api(ApiKey.FETCH).response_header_version(version))
    assert header.correlation_id == 77
    response, end = FetchResponse.decode(content, version, at)
    assert end == len(content)
    assert content[at:] == response.encode(version)
    return response


def the_partition(services: Services, version: int, **changes: Any) -> PartitionData:
    response = answered(services, version, a_fetch(services, version, **changes))
    assert response is not None
    (topic,) = response.responses
    (partition,) = topic.partitions
    return partition


def batches_of(records: bytes) -> list[tuple[int, int]]:
    """(base offset, size) of whole batches."""
    found = []
    position = 0
    while position < len(records):
        base_offset, length = struct.unpack_from(">qi", records, position)
        found.append((base_offset, length + LOG_OVERHEAD))
        position += length + LOG_OVERHEAD
    assert position == len(records)
    return found


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("version", VERSIONS)
def test_whole_batches_from_any_offset_up_to_any_size(broker: InProcessBroker, version: int, isolation_level: int) -> None:
    def compare(services: Services) -> None:
        log = services.data.replica_manager.partition_or_raise(TOPIC, 0).log
        bases = [segment.base_offset for segment in log.segments][1:]
        assert len(bases) > 1
        for offset in (0, 5, 10, 11, 155, 390, 399):
            for size in (1, 100, 1500, 3000, 15_000, LARGE):
                told = the_partition(services, version, fetch_offset=offset, partition_max_bytes=size, isolation_level=isolation_level)
                assert (told.error_code, told.high_watermark, told.last_stable_offset) == (0, RECORDS * BATCHES, RECORDS * BATCHES)
                assert told.log_start_offset == (0 if version >= 5 else -1)
                assert told.aborted_transactions == ([] if isolation_level else None)
                found = batches_of(bytes(told.records or b""))
                first = offset - offset % RECORDS
                assert [base_offset for base_offset, _ in found] == list(range(first, first + RECORDS * len(found), RECORDS))
                total = sum(length for _, length in found)
                _, batch_bytes = found[0]
                assert total <= max(size, batch_bytes)
                next_offset = first + RECORDS * len(found)
                # Less than would fit is returned only at the end of a segment, or where an index leads near the end.
                assert next_offset == RECORDS * BATCHES or next_offset in bases or total + batch_bytes > size * 3 // 4

    broker.run(compare, broker.services)


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 17])
def test_several_partitions_are_answered_in_their_order_within_the_limit_of_the_request(broker: InProcessBroker, version: int) -> None:
    def compare(services: Services) -> None:
        response = answered(services, version, a_fetch(services, version, 2, 1, 0, max_bytes=5000))
        assert response is not None
        (topic,) = response.responses
        assert [(each.partition_index, each.error_code, each.high_watermark) for each in topic.partitions] == [
            (2, 0, 400),
            (1, 0, 0),
            (0, 0, 400),
        ]
        sizes = [len(each.records or b"") for each in topic.partitions]
        assert sizes[0] > 3500
        assert sizes[1] == 0
        assert sum(sizes) <= 5000

    broker.run(compare, broker.services)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"fetch_offset": 1 << 40}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"fetch_offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"partition": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"current_leader_epoch": 9}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
    ids=["beyond the end", "before the start", "no such partition", "an epoch of the future"],
)
@pytest.mark.parametrize("version", [9, 12, 17])
def test_what_cannot_be_read_is_said_with_its_error(
    broker: InProcessBroker, version: int, changes: dict[str, int], code: ErrorCode
) -> None:
    def ask(services: Services) -> None:
        told = the_partition(services, version, **changes)
        assert (told.error_code, told.high_watermark, told.records) == (code, -1, b"")

    broker.run(ask, broker.services)


@pytest.mark.parametrize(
    "changes",
    [{"fetch_offset": RECORDS * BATCHES}, {"partition": 1}, {"min_bytes": LARGE}],
    ids=["nothing there yet", "an empty partition", "less than is wanted"],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_too_little_is_waited_for(broker: InProcessBroker, version: int, changes: dict[str, int]) -> None:
    def ask(services: Services) -> None:
        assert answered(services, version, a_fetch(services, version, **changes)) is None
        assert services.data.fetch_purgatory.delayed == 0

    broker.run(ask, broker.services)


@pytest.mark.parametrize("version", [7, 9, 11, 12, 13, 17])
def test_a_session_goes_on_from_fetch_to_fetch(broker: InProcessBroker, version: int) -> None:
    def ask(services: Services) -> None:
        begun = answered(services, version, a_fetch(services, version, session_epoch=0, partition_max_bytes=1))
        assert begun is not None
        assert begun.session_id
        for epoch in range(1, 20):
            changes = {"session_id": begun.session_id, "session_epoch": epoch, "fetch_offset": epoch * 7, "partition_max_bytes": 1500}
            response = answered(services, version, a_fetch(services, version, **changes))
            assert response is not None
            assert response.session_id == begun.session_id
            ((base_offset, _),) = batches_of(bytes(response.responses[0].partitions[0].records or b""))
            assert base_offset == epoch * 7 - epoch * 7 % RECORDS
            assert services.data.fetch_sessions.sessions[begun.session_id].epoch == epoch + 1
        ended = answered(services, version, a_fetch(services, version, session_id=begun.session_id, session_epoch=-1))
        assert ended is not None
        assert ended.session_id == 0
        assert begun.session_id not in services.data.fetch_sessions.sessions

    broker.run(ask, broker.services)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_that_is_cut_anywhere_is_refused_and_changes_nothing(broker: InProcessBroker, version: int) -> None:
    def ask(services: Services) -> None:
        session_id, epoch = 0, -1
        if version >= 7:
            begun = answered(services, version, a_fetch(services, version, session_epoch=0))
            assert begun is not None
            session_id, epoch = begun.session_id, 1
        body = a_fetch(services, version, 0, 1, 2, session_id=session_id, session_epoch=epoch, fetch_offset=9).encode(version)
        for end in range(len(body)):
            with pytest.raises(ProtocolError):
                handle_fetch_frame(memoryview(bytearray(body[:end])), 0, version, 1, CONNECTION, services)
        if session_id:
            session = services.data.fetch_sessions.sessions[session_id]
            assert (session.epoch, [asked.offset for asked in session]) == (1, [0])

    broker.run(ask, broker.services)


def test_aborted_transactions_are_told_to_those_who_read_committed_records(tmp_path: Path) -> None:
    def ask(services: Services) -> None:
        fill(services)
        log = services.data.replica_manager.partition_or_raise(TOPIC, 0).log
        log.segments.active.transaction_index.append(AbortedInLog(5, 10, 20, 21))
        assert the_partition(services, 17, isolation_level=1).aborted_transactions == [AbortedTransaction(producer_id=5, first_offset=10)]
        assert the_partition(services, 17, isolation_level=0).aborted_transactions is None

    with a_broker_in_process(tmp_path) as running:
        running.run(running.services.administration.topic_admin.create_topics, [NewTopic(TOPIC, 3, 1)])
        running.run(ask, running.services)
