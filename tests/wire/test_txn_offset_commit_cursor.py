"""The reader of TxnOffsetCommit says what the generated codec says, and the answer to it is what the generated encoder writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.offset_commit import TXN_LAYOUTS, OffsetCommitAnswer, TxnOffsetCommitReader
from ottla.protocol.cursors.request_reader import END, PARTITION
from ottla.protocol.messages.header import ResponseHeader
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.schema.api_versions import versions_in_3_9
from ottla.protocol.schema.registry import api
from ottla.protocol.schema.wire import ProtocolError
from tests.support.golden_frames import all_golden_frames
from tests.support.produce_requests import MANY_EXAMPLES, NAMES, TAGS, TEXTS, advance_to, id_of, key_of, tagged
from tests.wire.test_offset_commit_cursor import INT32, INT64, encoded
from tests.wire.test_produce_cursor import BYTES

VERSIONS = range(TxnOffsetCommitRequest.SCHEMA.versions.last + 1)
INT16 = st.integers(-(1 << 15), (1 << 15) - 1)


def reader_of(frame: memoryview, offset: int, version: int) -> TxnOffsetCommitReader:
    return TxnOffsetCommitReader(frame, offset, version, TXN_LAYOUTS[version])


def read_equally(data: bytes, version: int, offset: int = 0) -> bool:
    """Both readers accept the bytes and read the same, or both refuse them; whether they accept."""
    frame = memoryview(bytearray(data))
    try:
        request, end = TxnOffsetCommitRequest.decode(data, version, offset)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            reader_of(frame, offset, version).verify(1_000_000)
        return False
    reader = reader_of(frame, offset, version)
    assert (reader.transactional_id, reader.group_id, reader.producer_id, reader.producer_epoch) == (
        request.transactional_id.encode(),
        request.group_id.encode(),
        request.producer_id,
        request.producer_epoch,
    )
    assert (reader.generation_id, reader.member_id, reader.group_instance_id, reader.retention_time_ms) == (
        request.generation_id_or_member_epoch,
        request.member_id.encode(),
        encoded(request.group_instance_id),
        -1,
    )
    found = []
    while advance_to(reader, PARTITION):
        found.append((reader.topic, reader.index, reader.committed_offset, reader.committed_leader_epoch, reader.committed_metadata))
    assert reader.commit_timestamp == -1
    assert found == [
        (
            key_of(topic, is_id=version >= 6),
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch,
            encoded(each.committed_metadata),
        )
        for topic in request.topics
        for each in topic.partitions
    ]
    assert reader.advance() == END
    assert reader.at == end
    return True


def test_every_recorded_commit_is_read_the_same() -> None:
    versions = set()
    for frame in all_golden_frames():
        if frame.is_request and frame.api.key == ApiKey.TXN_OFFSET_COMMIT:
            _, offset = frame.header_class.decode(frame.data, frame.header_version)
            assert read_equally(frame.data, frame.version, offset), frame.where
            versions.add(frame.version)
    assert versions == set(range(versions_in_3_9(ApiKey.TXN_OFFSET_COMMIT).last + 1))


@st.composite
def requests(draw: st.DrawFn, version: int) -> TxnOffsetCommitRequest:
    tags = TAGS if version >= 3 else st.none()
    entry = st.builds(
        lambda tags, **values: tagged(TxnOffsetCommitRequestPartition(**values), tags),
        tags,
        partition_index=INT32,
        committed_offset=INT64,
        committed_leader_epoch=INT32 if version >= 2 else st.just(-1),
        committed_metadata=st.none() | TEXTS,
    )
    topic = st.builds(
        lambda name, partitions, tags: tagged(TxnOffsetCommitRequestTopic(name=name, topic_id=id_of(name), partitions=partitions), tags),
        NAMES,
        st.lists(entry, max_size=15),
        tags,
    )
    request = TxnOffsetCommitRequest(
        transactional_id=draw(NAMES),
        group_id=draw(NAMES),
        producer_id=draw(INT64),
        producer_epoch=draw(INT16),
        generation_id_or_member_epoch=draw(INT32) if version >= 3 else -1,
        member_id=draw(NAMES) if version >= 3 else "",
        group_instance_id=draw(st.none() | NAMES) if version >= 3 else None,
        topics=draw(st.lists(topic, max_size=4)),
    )
    return tagged(request, draw(tags))


@pytest.mark.slow
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


@MANY_EXAMPLES
@given(st.sampled_from(VERSIONS), st.data())
def test_any_response_is_written_as_the_generated_encoder_writes_it(version: int, data: st.DataObject) -> None:
    partition = st.builds(TxnOffsetCommitResponsePartition, partition_index=INT32, error_code=st.integers(-1, 200))
    topic = st.builds(
        lambda name, partitions: TxnOffsetCommitResponseTopic(name=name, topic_id=id_of(name), partitions=partitions),
        NAMES,
        st.lists(partition, max_size=10),
    )
    topics = data.draw(st.lists(topic, max_size=5, unique_by=lambda topic: topic.name))
    response = TxnOffsetCommitResponse(throttle_time_ms=data.draw(INT32), topics=topics)
    answer = OffsetCommitAnswer(TXN_LAYOUTS[version], 77)
    for each in topics:
        answer.name_topic(key_of(each, is_id=version >= 6))
        for one in each.partitions:
            answer.put(one.partition_index, one.error_code)
    header = ResponseHeader(correlation_id=77).encode(api(ApiKey.TXN_OFFSET_COMMIT).response_header_version(version))
    assert answer.finish(response.throttle_time_ms) == header + response.encode(version)
