"""The hand-made encoder of a follower's Fetch and the hand-made reader of the answer, held equal to the generated ones."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from protocol.api_keys import ApiKey
from protocol.follower_fetch import (
    FIRST_VERSION,
    LAST_VERSION,
    encode_follower_fetch,
    read_follower_answer,
)
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from protocol.messages.header import RequestHeader, ResponseHeader
from tests.support.golden_frames import golden_frames

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
topic_ids = st.binary(min_size=16, max_size=16)
versions = st.integers(FIRST_VERSION, LAST_VERSION)

partitions = st.builds(
    FetchPartition,
    partition=int32,
    current_leader_epoch=int32,
    fetch_offset=int64,
    last_fetched_epoch=int32,
    log_start_offset=int64,
    partition_max_bytes=int32,
)


@st.composite
def requests(draw: st.DrawFn) -> FetchRequest:
    """Of a follower in a session, most of them of the common shape."""
    return FetchRequest(
        replica_state=ReplicaState(replica_id=draw(st.integers(0, 9)), replica_epoch=draw(int64)),
        max_wait_ms=draw(int32),
        min_bytes=draw(int32),
        max_bytes=draw(int32),
        session_id=draw(int32),
        session_epoch=draw(int32),
        topics=[
            FetchTopic(topic_id=draw(topic_ids), partitions=draw(st.lists(partitions, max_size=3))) for _ in range(draw(st.integers(0, 4)))
        ],
        forgotten_topics_data=draw(st.sampled_from([[], [], [], [ForgottenTopic(topic_id=bytes(16), partitions=[1])]])),
        rack_id=draw(st.sampled_from(["", "", "", "a rack"])),
    )


@settings(max_examples=150, deadline=None)
@given(requests(), versions)
def test_requests_of_followers_are_encoded_as_the_generated_encoder_encodes_them(request: FetchRequest, version: int) -> None:
    encoded = encode_follower_fetch(request)
    if request.forgotten_topics_data or request.rack_id:
        assert encoded is None
    else:
        assert encoded == request.encode(version)


@pytest.mark.parametrize("count", [126, 127, 128, 16_384])
def test_long_lists_of_partitions_are_encoded_the_same(count: int) -> None:
    named = [FetchPartition(partition=index) for index in range(count)]
    for topics in ([FetchTopic(topic_id=bytes(16), partitions=named)], [FetchTopic(topic_id=bytes(16), partitions=named[:1])] * count):
        request = FetchRequest(replica_state=ReplicaState(replica_id=1), topics=topics)
        assert encode_follower_fetch(request) == request.encode(LAST_VERSION)


@pytest.mark.parametrize(
    "changed",
    [
        {"cluster_id": "one"},
        {"isolation_level": 1},
        {"replica_id": 3},
        {"replica_state": ReplicaState()},
        {"topics": [FetchTopic(partitions=[FetchPartition(replica_directory_id=bytes(15) + b"x")])]},
    ],
)
def test_requests_that_say_more_are_left_to_the_generated_encoder(changed: dict[str, Any]) -> None:
    assert encode_follower_fetch(FetchRequest(**{"replica_state": ReplicaState(replica_id=1), **changed})) is None


def test_requests_with_other_tags_are_left_to_the_generated_encoder() -> None:
    asked = FetchPartition()
    topic = FetchTopic(topic_id=bytes(16), partitions=[asked])
    request = FetchRequest(replica_state=ReplicaState(replica_id=1), topics=[topic])
    assert encode_follower_fetch(request) == request.encode(LAST_VERSION)
    for each in (request, request.replica_state, topic, asked):
        each.unknown_tagged_fields = {9: b"x"}
        assert encode_follower_fetch(request) is None
        each.unknown_tagged_fields = None
    assert encode_follower_fetch(request) == request.encode(LAST_VERSION)


def test_the_fetches_of_apache_kafkas_followers_are_encoded_by_hand() -> None:
    encoded = 0
    for golden in golden_frames("interbroker"):
        if golden.api.key != ApiKey.FETCH or not golden.is_request or golden.version < FIRST_VERSION:
            continue
        _, offset = RequestHeader.decode(golden.data, golden.header_version)
        request = FetchRequest.decode(golden.data, golden.version, offset)[0]
        found = encode_follower_fetch(request)
        if found is None:
            assert request.forgotten_topics_data, golden.where
        else:
            assert found == golden.data[offset:], golden.where
            encoded += 1
    assert encoded


answered = st.tuples(int32, int64, int64, int64, st.none() | st.sampled_from([0, 1, 126, 127, 16_382, 16_383]).map(bytes))


@settings(max_examples=100, deadline=None)
@given(int32, int32, st.lists(st.tuples(topic_ids, st.lists(answered, max_size=4)), max_size=3), versions)
def test_answers_are_read_as_the_generated_decoder_reads_them(
    correlation_id: int,
    session_id: int,
    topics: list[tuple[bytes, list[tuple[int, int, int, int, bytes | None]]]],
    version: int,
) -> None:
    response = FetchResponse(
        session_id=session_id,
        responses=[
            FetchableTopicResponse(
                topic_id=topic_id,
                partitions=[
                    PartitionData(
                        partition_index=index,
                        high_watermark=high_watermark,
                        last_stable_offset=last_stable_offset,
                        log_start_offset=log_start_offset,
                        aborted_transactions=None,
                        records=records or b"",
                    )
                    for index, high_watermark, last_stable_offset, log_start_offset, records in told
                ],
            )
            for topic_id, told in topics
        ],
    )
    header = ResponseHeader(correlation_id=correlation_id).encode(1)
    body = response.encode(version)
    frame = memoryview(header + body)
    read = read_follower_answer(frame, len(header))
    assert read == FetchResponse.decode(frame, version, len(header))[0]


@pytest.mark.parametrize("size", [2**14 - 2, 2**14 - 1, 2**21 - 2, 2**21 - 1, 2**22])
def test_answers_of_any_length_are_read_the_same(size: int) -> None:
    data = PartitionData(high_watermark=1, aborted_transactions=None, records=bytes(size))
    response = FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic_id=bytes(16), partitions=[data])])
    frame = memoryview(response.encode(LAST_VERSION))
    assert read_follower_answer(frame, 0) in (FetchResponse.decode(frame, LAST_VERSION)[0], None)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_answers_that_are_broken_or_uncommon_are_left_to_the_generated_decoder_or_mean_the_same(data: st.DataObject) -> None:
    partition = PartitionData(partition_index=1, high_watermark=5, aborted_transactions=None, records=data.draw(st.binary(max_size=300)))
    if data.draw(st.booleans()):
        partition.diverging_epoch = EpochEndOffset(epoch=3, end_offset=9)
    topic = FetchableTopicResponse(topic_id=bytes(16), partitions=[partition] * data.draw(st.integers(0, 2)))
    frame = bytearray(FetchResponse(session_id=7, responses=[topic] * data.draw(st.integers(0, 2))).encode(LAST_VERSION))
    if data.draw(st.booleans()):
        del frame[data.draw(st.integers(0, len(frame))) :]
    for _ in range(data.draw(st.integers(0, 3)) if frame else 0):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    read = read_follower_answer(memoryview(frame), 0)
    if read is not None:
        assert (read, len(frame)) == FetchResponse.decode(memoryview(frame), LAST_VERSION)
