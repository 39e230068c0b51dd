"""The reader and the writer of plain heartbeats say what the generated codec says: every version and shape, damaged bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.consumer_heartbeat import PlainHeartbeat, plain_answer
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.header import ResponseHeader
from ottla.protocol.schema.registry import api
from ottla.protocol.schema.wire import ProtocolError
from tests.support.produce_requests import MANY_EXAMPLES
from tests.wire.test_produce_cursor import BYTES

VERSIONS = range(ConsumerGroupHeartbeatRequest.SCHEMA.versions.last + 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
ASCII = st.text(st.characters(codec="ascii"), max_size=200)
TEXTS = st.none() | ASCII | st.text(max_size=20)
PARTITIONS = st.builds(
    ConsumerGroupHeartbeatRequestTopicPartitions, topic_id=st.just(b"i" * 16), partitions=st.lists(st.integers(0, 9), max_size=2)
)
REQUESTS = st.builds(
    ConsumerGroupHeartbeatRequest,
    group_id=ASCII | st.text(max_size=20),
    member_id=ASCII | st.text(max_size=20),
    member_epoch=st.integers(1, 9) | INT32,
    instance_id=TEXTS,
    rack_id=st.none() | ASCII,
    rebalance_timeout_ms=st.just(-1) | INT32,
    subscribed_topic_names=st.none() | st.lists(ASCII, max_size=2),
    server_assignor=st.none() | ASCII,
    topic_partitions=st.none() | st.lists(PARTITIONS, max_size=2),
)
PLAIN_REQUESTS = st.builds(
    ConsumerGroupHeartbeatRequest,
    group_id=ASCII,
    member_id=ASCII,
    member_epoch=st.integers(1, (1 << 31) - 1),
    instance_id=st.none() | ASCII,
)


def read_equally(data: bytes, version: int, offset: int = 0) -> bool:
    """Whether the reader takes the bytes for a plain heartbeat; the codec reads the same then."""
    beat = PlainHeartbeat(memoryview(bytearray(data)), offset, version)
    if not beat.is_plain:
        return False
    request, end = ConsumerGroupHeartbeatRequest.decode(data, version, offset)
    instance_id = None if beat.instance_id is None else beat.instance_id.decode()
    plain = ConsumerGroupHeartbeatRequest(
        group_id=beat.group_id.decode(), member_id=beat.member_id.decode(), member_epoch=beat.epoch, instance_id=instance_id
    )
    assert request == plain
    assert end <= len(data)
    return True


@pytest.mark.parametrize("version", VERSIONS)
@given(request=PLAIN_REQUESTS, before=BYTES, after=BYTES)
@MANY_EXAMPLES
def test_a_heartbeat_that_names_nothing_but_the_member_is_plain(
    version: int, request: ConsumerGroupHeartbeatRequest, before: bytes, after: bytes
) -> None:
    assert read_equally(before + request.encode(version) + after, version, len(before))


@pytest.mark.parametrize("version", VERSIONS)
@given(request=REQUESTS)
@MANY_EXAMPLES
def test_any_other_heartbeat_is_not(version: int, request: ConsumerGroupHeartbeatRequest) -> None:
    names_more = (
        request.rack_id is not None
        or request.rebalance_timeout_ms != -1
        or request.subscribed_topic_names is not None
        or request.server_assignor is not None
        or request.topic_partitions is not None
    )
    is_plain = read_equally(request.encode(version), version)
    texts = request.group_id + request.member_id + (request.instance_id or "")
    assert is_plain == (not names_more and request.member_epoch > 0 and texts.isascii())


def test_a_heartbeat_with_a_regular_expression_is_not() -> None:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1, subscribed_topic_regex="t.*")
    assert not read_equally(request.encode(1), 1)


@pytest.mark.parametrize("version", VERSIONS)
@given(request=PLAIN_REQUESTS, where=st.integers(0, 500), byte=st.integers(0, 255), end=st.integers(0, 500))
@MANY_EXAMPLES
def test_damaged_bytes_are_left_to_the_codec_or_read_like_it(
    version: int, request: ConsumerGroupHeartbeatRequest, where: int, byte: int, end: int
) -> None:
    data = bytearray(request.encode(version))
    data[where % len(data)] = byte
    for damaged in (bytes(data), bytes(data[:end])):
        read_equally(damaged, version)


@pytest.mark.parametrize("size", [0x7FFF, 0x8000, 1 << 20])
def test_a_string_beyond_the_limit_is_left_to_the_codec(size: int) -> None:
    length = size + 1
    varint = bytes([length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14])
    data = varint + b"g" * size + ConsumerGroupHeartbeatRequest(group_id="", member_id="m", member_epoch=1).encode(1)[1:]
    assert read_equally(data, 1) == (size <= 0x7FFF)
    if size > 0x7FFF:
        with pytest.raises(ProtocolError):
            ConsumerGroupHeartbeatRequest.decode(data, 1)


@pytest.mark.parametrize("version", VERSIONS)
@given(st.integers(0, (1 << 31) - 1), INT32, st.integers(-1, 200), st.none() | st.text(max_size=300), INT32, INT32)
@MANY_EXAMPLES
def test_the_answer_has_the_bytes_of_the_codec(
    version: int, correlation_id: int, throttle_ms: int, code: int, member_id: str | None, epoch: int, interval_ms: int
) -> None:
    response = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=throttle_ms, error_code=code, member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=interval_ms
    )
    header = ResponseHeader(correlation_id=correlation_id).encode(api(ApiKey.CONSUMER_GROUP_HEARTBEAT).response_header_version(version))
    member = None if member_id is None else member_id.encode()
    assert plain_answer(correlation_id, throttle_ms, code, member, epoch, interval_ms) == header + response.encode(version)
