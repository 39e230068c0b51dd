"""The reader and the writer of OffsetCommit say what the generated codec says: recorded frames, every version and shape, damaged bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.offset_commit import OffsetCommitAnswer, OffsetCommitReader
from ottla.protocol.cursors.request_reader import END, PARTITION
from ottla.protocol.messages.header import ResponseHeader
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.schema.registry import api
from ottla.protocol.schema.wire import ProtocolError
from tests.support.golden_frames import all_golden_frames
from tests.support.produce_requests import MANY_EXAMPLES, NAMES, TAGS, TEXTS, advance_to, id_of, key_of, tagged
from tests.wire.test_produce_cursor import BYTES

VERSIONS = range(OffsetCommitRequest.SCHEMA.versions.last + 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def read_equally(data: bytes, version: int, offset: int = 0) -> bool:
    """Both readers accept the bytes and read the same, or both refuse them; whether they accept."""
    frame = memoryview(bytearray(data))
    try:
        request, end = OffsetCommitRequest.decode(data, version, offset)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            OffsetCommitReader(frame, offset, version, version).verify(1_000_000)
        return False
    reader = OffsetCommitReader(frame, offset, version, version)
    assert (reader.group_id, reader.generation_id, reader.member_id, reader.group_instance_id, reader.retention_time_ms) == (
        request.group_id.encode(),
        request.generation_id_or_member_epoch,
        request.member_id.encode(),
        encoded(request.group_instance_id),
        request.retention_time_ms,
    )
    for _ in range(2):
        found = []
        while advance_to(reader, PARTITION):
            found.append(
                (
                    reader.topic, reader.index, reader.committed_offset, reader.committed_leader_epoch, reader.commit_timestamp,
                    reader.committed_metadata,
                )
            )  # fmt: skip
        assert found == [
            (
                key_of(topic, is_id=version >= 10), each.partition_index, each.committed_offset, each.committed_leader_epoch,
                each.commit_timestamp, encoded(each.committed_metadata),
            )
            for topic in request.topics
            for each in topic.partitions
        ]  # fmt: skip
        assert reader.advance() == END
        assert reader.at == end
        reader = OffsetCommitReader(frame, offset, version, version)
        assert reader.verify(1_000_000)
    return True


def test_every_recorded_commit_is_read_the_same() -> None:
    checked = 0
    for frame in all_golden_frames():
        if frame.is_request and frame.api.key == ApiKey.OFFSET_COMMIT:
            _, offset = frame.header_class.decode(frame.data, frame.header_version)
            assert read_equally(frame.data, frame.version, offset), frame.where
            checked += 1
    assert checked > 5


@st.composite
def requests(draw: st.DrawFn, version: int) -> OffsetCommitRequest:
    tags = TAGS if version >= 8 else st.none()
    entry = st.builds(
        lambda tags, **values: tagged(OffsetCommitRequestPartition(**values), tags),
        tags,
        partition_index=INT32,
        committed_offset=INT64,
        committed_leader_epoch=INT32 if version >= 6 else st.just(-1),
        commit_timestamp=INT64 if version == 1 else st.just(-1),
        committed_metadata=st.none() | TEXTS,
    )
    topic = st.builds(
        lambda name, partitions, tags: tagged(OffsetCommitRequestTopic(name=name, topic_id=id_of(name), partitions=partitions), tags),
        NAMES,
        st.lists(entry, max_size=15),
        tags,
    )
    request = OffsetCommitRequest(
        group_id=draw(NAMES),
        generation_id_or_member_epoch=draw(INT32) if version >= 1 else -1,
        member_id=draw(NAMES) if version >= 1 else "",
        group_instance_id=draw(st.none() | NAMES) if version >= 7 else None,
        retention_time_ms=draw(INT64) if 2 <= version <= 4 else -1,
        topics=draw(st.lists(topic, max_size=4)),
    )
    return tagged(request, draw(tags))


@MANY_EXAMPLES
@given(st.sampled_from(VERSIONS), st.data())
def test_any_request_is_read_the_same(version: int, data: st.DataObject) -> None:
    assert read_equally(data.draw(requests(version)).encode(version), version)


@MANY_EXAMPLES
@given(st.sampled_from(VERSIONS), st.data())
def test_a_changed_or_cut_request_is_read_the_same_or_refused_by_both(version: int, data: st.DataObject) -> None:
    changed = bytearray(data.draw(requests(version)).encode(version))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed)))
        changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=5))
    read_equally(bytes(changed[: data.draw(st.integers(0, len(changed)))]), version)
    read_equally(bytes(changed), version)


@MANY_EXAMPLES
@given(version=st.sampled_from(VERSIONS), data=BYTES)
def test_arbitrary_bytes_are_read_the_same_or_refused_by_both(version: int, data: bytes) -> None:
    read_equally(data, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_is_refused(version: int) -> None:
    partitions = [OffsetCommitRequestPartition(partition_index=index, committed_metadata="note") for index in range(3)]
    data = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="t", topic_id=id_of("t"), partitions=partitions)] * 2
    ).encode(version)
    for cut in range(len(data)):
        assert not read_equally(data[:cut], version)
    assert read_equally(data + b"behind it", version)


# -- the response ----------------------------------------------------------------------------------------------------------


def response_topic(name: str, partitions: list[OffsetCommitResponsePartition]) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(name=name, topic_id=id_of(name), partitions=partitions)


def written_equally(response: OffsetCommitResponse, version: int) -> None:
    answer = OffsetCommitAnswer(version, 77)
    for topic in response.topics:
        answer.name_topic(key_of(topic, is_id=version >= 10))
        for each in topic.partitions:
            answer.put(each.partition_index, each.error_code)
    header = ResponseHeader(correlation_id=77).encode(api(ApiKey.OFFSET_COMMIT).response_header_version(version))
    assert answer.finish(response.throttle_time_ms) == header + response.encode(version)


@MANY_EXAMPLES
@given(st.sampled_from(VERSIONS), st.data())
def test_any_response_is_written_as_the_generated_encoder_writes_it(version: int, data: st.DataObject) -> None:
    partition = st.builds(OffsetCommitResponsePartition, partition_index=INT32, error_code=st.integers(-1, 200))
    topic = st.builds(response_topic, NAMES, st.lists(partition, max_size=10))
    topics = data.draw(st.lists(topic, max_size=5, unique_by=lambda topic: topic.name))
    written_equally(OffsetCommitResponse(throttle_time_ms=data.draw(INT32), topics=topics), version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("partitions", "topics"), [(1, 1), (126, 1), (127, 1), (1000, 1), (3, 5), (1, 126), (1, 127), (0, 3)])
def test_counts_of_every_length_are_written(version: int, partitions: int, topics: int) -> None:
    answers = [OffsetCommitResponsePartition(partition_index=index, error_code=index % 3) for index in range(partitions)]
    named = [response_topic(f"topic-{number}", answers) for number in range(topics)]
    written_equally(OffsetCommitResponse(topics=named), version)
