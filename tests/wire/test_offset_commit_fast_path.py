"""The hand-made reader and writer of OffsetCommit say what the generated ones say, or leave it to them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.api_keys import ApiKey
from protocol.messages.header import ResponseHeader
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.offset_commit_fast_path import (
    FIRST_VERSION,
    LAST_VERSION,
    MOST_OFFSETS,
    OffsetCommitShape,
    encode_offset_commit_response,
    read_offset_commit,
)
from protocol.schema.registry import api
from tests.support.golden_frames import all_golden_frames

VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
NAMES = st.one_of(st.text(max_size=8), st.sampled_from(["g" * 126, "g" * 127, "ü" * 63, "ü" * 64]))


def shape_of(request: OffsetCommitRequest) -> object:
    """What the reader by hand would say."""
    topics = [
        (
            topic.name,
            topic.name.encode(),
            [each.partition_index for each in topic.partitions],
            [each.partition_index.to_bytes(4, "big", signed=True) for each in topic.partitions],
            [
                each.committed_offset.to_bytes(8, "big", signed=True) + each.committed_leader_epoch.to_bytes(4, "big", signed=True)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return request.group_id, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id, topics


def as_lists(shape: OffsetCommitShape) -> object:
    """The same with lists where it has sequences of any kind."""
    topics = [(topic.topic, topic.name, list(topic.indexes), list(topic.index_bytes), list(topic.positions)) for topic in shape.topics]
    return *shape[:4], topics


def a_request(partitions: int = 1, topics: int = 1, metadata: str | None = "", **more: Any) -> OffsetCommitRequest:
    entries = [
        OffsetCommitRequestPartition(partition_index=i, committed_offset=i + 7, committed_metadata=metadata) for i in range(partitions)
    ]
    named = [OffsetCommitRequestTopic(name=f"topic-{number}", partitions=entries) for number in range(topics)]
    return OffsetCommitRequest(group_id="group", topics=named, **more)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("partitions", "topics"), [(1, 1), (126, 1), (127, 1), (128, 1), (MOST_OFFSETS, 1), (3, 5), (1, 126)])
@pytest.mark.parametrize("metadata", ["", None])
def test_what_is_common_is_read_by_hand(version: int, partitions: int, topics: int, metadata: str | None) -> None:
    request = a_request(partitions, topics, metadata)
    shape = read_offset_commit(memoryview(request.encode(version)), 0, version)
    assert shape is not None
    assert as_lists(shape) == shape_of(request)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("request_", [a_request(MOST_OFFSETS + 1), a_request(600, 2), a_request(3, metadata="note"), a_request(0)])
def test_what_is_not_common_is_left_to_the_general_way(version: int, request_: OffsetCommitRequest) -> None:
    assert read_offset_commit(memoryview(request_.encode(version)), 0, version) is None


def test_a_retention_time_and_the_oldest_versions_are_left_to_the_general_way() -> None:
    request = a_request(retention_time_ms=5)
    assert [read_offset_commit(memoryview(request.encode(version)), 0, version) for version in (2, 3, 4)] == [None] * 3
    assert [read_offset_commit(memoryview(a_request().encode(version)), 0, version) for version in (0, 1)] == [None] * 2


def test_every_recorded_commit_is_read_the_same() -> None:
    by_hand = 0
    for frame in all_golden_frames():
        if frame.is_request and frame.api.key == ApiKey.OFFSET_COMMIT:
            _, offset = frame.header_class.decode(frame.data, frame.header_version)
            request, _ = OffsetCommitRequest.decode(frame.data, frame.version, offset)
            shape = read_offset_commit(memoryview(frame.data), offset, frame.version)
            if shape is not None:
                assert as_lists(shape) == shape_of(request), frame.where
                by_hand += 1
    assert by_hand > 5


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, bytes]:
    """A version, and a request in it whose bytes may have been changed or cut off."""
    version = draw(st.sampled_from(VERSIONS))
    entry = st.builds(
        OffsetCommitRequestPartition,
        partition_index=INT32,
        committed_offset=INT64,
        committed_leader_epoch=INT32 if version >= 6 else st.just(-1),
        committed_metadata=st.sampled_from(["", "", None, "note"]),
    )
    topic = st.builds(OffsetCommitRequestTopic, name=NAMES, partitions=st.lists(entry, max_size=4))
    request = draw(
        st.builds(
            OffsetCommitRequest,
            group_id=NAMES,
            generation_id_or_member_epoch=INT32,
            member_id=NAMES,
            group_instance_id=st.none() | NAMES if version >= 7 else st.none(),
            topics=st.lists(topic, max_size=3),
        )
    )
    data = bytearray(request.encode(version))
    for place in draw(st.lists(st.integers(0, len(data) - 1), max_size=2)):
        data[place] = draw(st.integers(0, 255))
    return version, bytes(data[: draw(st.one_of(st.just(len(data)), st.integers(0, len(data))))])


@settings(max_examples=100, deadline=None)
@given(requests())
def test_whatever_is_read_by_hand_is_what_the_general_way_reads(asked: tuple[int, bytes]) -> None:
    version, data = asked
    shape = read_offset_commit(memoryview(data), 0, version)
    if shape is not None:
        request, end = OffsetCommitRequest.decode(data, version)
        assert end == len(data)
        assert as_lists(shape) == shape_of(request)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("partitions", "topics"), [(1, 1), (126, 1), (127, 1), (1000, 1), (3, 5), (1, 126)])
@pytest.mark.parametrize("error_code", [0, -1, 25])
def test_the_answer_is_what_the_encoder_writes(version: int, partitions: int, topics: int, error_code: int) -> None:
    shape = read_offset_commit(memoryview(a_request(partitions, topics).encode(version)), 0, version)
    assert shape is not None
    answers = [OffsetCommitResponsePartition(partition_index=index, error_code=error_code) for index in range(partitions)]
    expected = OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name=f"topic-{number}", partitions=answers) for number in range(topics)]
    ).encode(version)
    header = ResponseHeader(correlation_id=77).encode(api(ApiKey.OFFSET_COMMIT).response_header_version(version))
    assert encode_offset_commit_response(version, 77, shape.topics, error_code) == header + expected
