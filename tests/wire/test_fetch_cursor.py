"""The reader and the writer of Fetch say what the generated codec says: recorded frames, every version and shape, and damaged bytes."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.fetch import FetchAnswer, FetchReader
from ottla.protocol.cursors.request_reader import END, FORGOTTEN, PARTITION
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.protocol.messages.header import ResponseHeader
from ottla.protocol.schema.registry import api
from ottla.protocol.schema.wire import MAX_ELEMENTS, ProtocolError, TooManyElements, UnsupportedField, uvarint
from tests.support.fetch_requests import fetch_requests, fetch_responses
from tests.support.golden_frames import all_golden_frames
from tests.support.produce_requests import MANY_EXAMPLES
from tests.wire.test_produce_cursor import BYTES

LAST_VERSION = FetchRequest.SCHEMA.versions.last
VERSIONS = range(LAST_VERSION + 1)


def reader_of(data: bytes, version: int, offset: int = 0) -> FetchReader:
    return FetchReader(memoryview(bytearray(data)), offset, version)


def head_of(reader: FetchReader) -> tuple[int, ...]:
    return (
        reader.max_wait_ms, reader.min_bytes, reader.max_bytes, reader.isolation_level, reader.session_id, reader.session_epoch
    )  # fmt: skip


def end_of(reader: FetchReader) -> tuple[Any, ...]:
    return reader.rack_id, reader.cluster_id, reader.replica_id, reader.replica_epoch


def asked_of(reader: FetchReader) -> tuple[list[tuple[Any, ...]], list[tuple[bytes, int]]]:
    """The partitions that are asked for, and those that are to be forgotten."""
    asked: list[tuple[Any, ...]] = []
    forgotten: list[tuple[bytes, int]] = []
    while (kind := reader.advance()) != END:
        if kind == PARTITION:
            assert not forgotten
            asked.append(
                (
                    reader.topic, reader.index, reader.current_leader_epoch, reader.fetch_offset, reader.last_fetched_epoch,
                    reader.log_start_offset, reader.partition_max_bytes, reader.replica_directory_id,
                )
            )  # fmt: skip
        elif kind == FORGOTTEN:
            forgotten.append((reader.topic, reader.index))
    return asked, forgotten


def read_equally(data: bytes, version: int, offset: int = 0) -> bool:
    """Both readers accept the bytes and read the same, or both refuse them; whether they accept."""
    try:
        request, end = FetchRequest.decode(data, version, offset)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            reader_of(data, version, offset).verify(1_000_000)
        return False
    reader = reader_of(data, version, offset)
    assert reader.verify(1_000_000)
    state = request.replica_state
    replica = (state.replica_id, state.replica_epoch) if version >= 15 else (request.replica_id, -1)
    cluster_id = None if request.cluster_id is None else request.cluster_id.encode()
    assert head_of(reader) == (
        request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level, request.session_id, request.session_epoch
    )  # fmt: skip
    assert end_of(reader) == (request.rack_id.encode(), cluster_id, *replica)
    asked, forgotten = asked_of(reader)
    assert asked == [
        (
            topic.topic_id if version >= 13 else topic.topic.encode(), asked.partition, asked.current_leader_epoch, asked.fetch_offset,
            asked.last_fetched_epoch, asked.log_start_offset, asked.partition_max_bytes, asked.replica_directory_id,
        )
        for topic in request.topics
        for asked in topic.partitions
    ]  # fmt: skip
    assert forgotten == [
        (topic.topic_id if version >= 13 else topic.topic.encode(), index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    assert reader.advance() == END
    assert reader.at == end
    return True


def test_every_recorded_fetch_is_read_the_same() -> None:
    checked = 0
    for frame in all_golden_frames():
        if frame.is_request and frame.api.key == ApiKey.FETCH:
            _, offset = frame.header_class.decode(frame.data, frame.header_version)
            assert read_equally(frame.data, frame.version, offset), frame.where
            checked += 1
    assert checked > 20


@MANY_EXAMPLES
@given(st.sampled_from(VERSIONS), st.data())
def test_any_request_is_read_the_same(version: int, data: st.DataObject) -> None:
    request = data.draw(fetch_requests(version))
    assert read_equally(request.encode(version), version)


@MANY_EXAMPLES
@given(st.sampled_from(VERSIONS), st.data())
def test_a_changed_or_cut_request_is_read_the_same_or_refused_by_both(version: int, data: st.DataObject) -> None:
    changed = bytearray(data.draw(fetch_requests(version)).encode(version))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed)))
        changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=5))
    read_equally(bytes(changed[: data.draw(st.integers(0, len(changed)))]), version)
    read_equally(bytes(changed), version)


@MANY_EXAMPLES
@given(version=st.sampled_from(VERSIONS), data=BYTES)
@example(version=17, data=bytes(21) + b"\x01\x01\x01\x01\x00\x03\x02ab")
@example(version=17, data=bytes(21) + b"\x01\x01\x01\x01\x01\x0d" + bytes(13))
@example(version=14, data=bytes(25) + b"\x01\x01\x01\x01\x01\x0d" + bytes(13))
@example(version=12, data=bytes(25) + b"\x01\x01\x02\xfc\x01\x00\x01\x00")
def test_arbitrary_bytes_are_read_the_same_or_refused_by_both(version: int, data: bytes) -> None:
    read_equally(data, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_is_refused(version: int) -> None:
    topics = [FetchTopic(partitions=[FetchPartition(partition=number, fetch_offset=7) for number in range(3)])] * 2
    data = FetchRequest(topics=topics).encode(version)
    for cut in range(len(data)):
        assert not read_equally(data[:cut], version)
    assert read_equally(data + b"behind it", version)


def test_elements_of_all_arrays_together_are_too_many() -> None:
    partitions = [FetchPartition()] * (MAX_ELEMENTS // 2)
    data = FetchRequest(topics=[FetchTopic(topic="t", partitions=partitions)] * 2).encode(4)
    with pytest.raises(TooManyElements):
        reader_of(data, 4).verify(2 * MAX_ELEMENTS)


def test_tagged_fields_count_like_elements() -> None:
    def tagged(count: int) -> bytes:
        return FetchRequest().encode(17)[:-1] + uvarint(count) + b"\x7e\x00" * count

    assert reader_of(tagged(MAX_ELEMENTS), 17).verify(10)
    with pytest.raises(TooManyElements):
        reader_of(tagged(MAX_ELEMENTS + 1), 17).verify(10)


# -- the response ----------------------------------------------------------------------------------------------------------


def put(answer: FetchAnswer, data: PartitionData) -> None:
    aborted = data.aborted_transactions
    pairs = None if aborted is None else [(entry.producer_id, entry.first_offset) for entry in aborted]
    offsets = data.high_watermark, data.last_stable_offset, data.log_start_offset
    leader = data.current_leader.leader_id, data.current_leader.leader_epoch
    if data.diverging_epoch.epoch != -1:
        diverging = data.diverging_epoch
        answer.put_diverging(data.partition_index, *offsets, pairs, diverging.epoch, diverging.end_offset)
    elif leader != (-1, -1) or data.records is None:
        answer.put_failed(data.partition_index, data.error_code, pairs, data.records, *leader)
    else:
        answer.put(data.partition_index, data.error_code, *offsets, pairs, data.preferred_read_replica, data.records)


def written(response: FetchResponse, version: int, correlation_id: int) -> list[Any]:
    answer = FetchAnswer(version, correlation_id)
    for topic in response.responses:
        answer.begin_topic(topic.topic_id if version >= 13 else topic.topic.encode())
        for data in topic.partitions:
            put(answer, data)
    nodes = [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]
    return answer.finish(response.throttle_time_ms, response.error_code, response.session_id, nodes)


def encoded(response: FetchResponse, version: int, correlation_id: int) -> bytes:
    return ResponseHeader(correlation_id=correlation_id).encode(api(ApiKey.FETCH).response_header_version(version)) + response.encode(
        version
    )


@MANY_EXAMPLES
@given(st.sampled_from(VERSIONS), st.data())
def test_any_response_is_written_as_the_generated_encoder_writes_it(version: int, data: st.DataObject) -> None:
    response = data.draw(fetch_responses(version))
    assert b"".join(written(response, version, 77)) == encoded(response, version, 77)


FLEXIBLE = FetchResponse.SCHEMA.flexible.first
"""From this version on a count has one to five bytes, before it four."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "count"),
    [
        *((version, count) for version in VERSIONS for count in (0, 1, 126, 127)),
        *((version, 16_383) for version in (FLEXIBLE - 1, FLEXIBLE, LAST_VERSION)),
    ],
)
def test_counts_of_every_length_are_written(version: int, count: int) -> None:
    def a_topic(number: int, partitions: int) -> FetchableTopicResponse:
        data = [PartitionData(partition_index=index, records=b"r" * (index % 3)) for index in range(partitions)]
        return FetchableTopicResponse(**({"topic_id": bytes(15) + b"i"} if version >= 13 else {"topic": f"t{number}"}), partitions=data)

    response = FetchResponse(responses=[a_topic(1, count)] if count else [])
    assert b"".join(written(response, version, 1)) == encoded(response, version, 1)


def test_records_are_parts_of_their_own_and_nobody_copies_them() -> None:
    records = [bytearray(b"a" * 10), bytearray(b"b" * 200)]
    topics = [FetchableTopicResponse(topic_id=bytes([number]) * 16, partitions=[]) for number in range(2)]
    for topic, of_topic in zip(topics, records, strict=True):
        topic.partitions = [PartitionData(partition_index=0, records=b""), PartitionData(partition_index=1, records=of_topic)]
    parts = written(FetchResponse(responses=topics), LAST_VERSION, 1)
    assert [part for part in parts if isinstance(part, bytearray)] == records
    assert parts[1] is records[0]
    assert parts[3] is records[1]
    assert len(parts) == 5


def test_what_a_version_cannot_say_is_not_dropped_silently() -> None:
    answer = FetchAnswer(10, 5)
    answer.begin_topic(b"t")
    with pytest.raises(UnsupportedField):
        answer.put_failed(0, 6, None, b"", 3, 4)
    with pytest.raises(UnsupportedField):
        answer.put(0, 0, 1, 1, 1, None, 3, None)
    with pytest.raises(UnsupportedField):
        answer.put_diverging(0, 1, 1, 1, None, 3, 9)
