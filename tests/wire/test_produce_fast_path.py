"""The hand-made reader and writer of Produce say what the generated ones say, on every recorded frame and every shape."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import produce_fast_path
from protocol.api_keys import ApiKey
from protocol.messages.header import RequestHeader, ResponseHeader
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.produce_fast_path import (
    FIRST_VERSION,
    LAST_VERSION,
    OneBatch,
    encode_produce_response,
    encode_produce_responses,
    read_one_batch,
    read_several,
)
from protocol.schema.registry import api
from tests.support.golden_frames import all_golden_frames

VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)


def one_batch_of(request: ProduceRequest) -> OneBatch | None:
    """What there is to read if it is one batch for one partition."""
    partitions = [(topic.name, data) for topic in request.topic_data for data in topic.partition_data]
    if request.transactional_id is not None or len(request.topic_data) != 1 or len(partitions) != 1:
        return None
    name, data = partitions[0]
    return (request.acks, request.timeout_ms, name, data.index), memoryview(data.records or b"")


def a_request(
    topics: int = 1, partitions: int = 1, records: int = 100, transactional_id: str | None = None, name: str = "orders"
) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=bytes([index]) * records) for index in range(partitions)]
    topic_data = [TopicProduceData(name=f"{name}-{number}", partition_data=data) for number in range(topics)]
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=topic_data)


def test_every_recorded_produce_is_read_the_same() -> None:
    checked = 0
    for frame in all_golden_frames():
        if frame.is_request and frame.api.key == ApiKey.PRODUCE and frame.version >= FIRST_VERSION:
            _, offset = frame.header_class.decode(frame.data, frame.header_version)
            request, _ = ProduceRequest.decode(frame.data, frame.version, offset)
            for _ in range(2):  # the second time from the cache
                assert read_one_batch(memoryview(frame.data), offset, frame.version) == one_batch_of(request), frame.where
            checked += 1
    assert checked > 20


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "request_",
    [
        a_request(),
        a_request(records=0),
        a_request(records=126),
        a_request(records=127),
        a_request(records=16_382),
        a_request(records=16_383),
        a_request(records=1_500_000),
        a_request(name="n" * 100),
        a_request(name="grün"),
        a_request(topics=3, partitions=4),
        a_request(topics=2),
        a_request(partitions=2),
        a_request(topics=0),
        a_request(partitions=0),
        a_request(transactional_id="tx"),
        a_request(transactional_id=""),
    ],
    ids=lambda request: f"{len(request.topic_data)} topics",
)
def test_one_batch_is_read_the_same_and_anything_else_left_to_the_general_reader(version: int, request_: ProduceRequest) -> None:
    data = b"head" + request_.encode(version)
    general, _ = ProduceRequest.decode(data, version, 4)
    for _ in range(2):
        assert read_one_batch(memoryview(bytearray(data)), 4, version) == one_batch_of(general)
        assert read_one_batch(memoryview(bytearray(data + b"behind it")), 4, version) == one_batch_of(general)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_uncommon_or_damaged_is_left_to_the_general_reader(version: int) -> None:
    good = a_request().encode(version)
    assert read_one_batch(memoryview(good), 0, version) is not None
    null_records = a_request()
    null_records.topic_data[0].partition_data[0].records = None
    assert read_one_batch(memoryview(null_records.encode(version)), 0, version) is None
    for cut in range(len(good)):
        assert read_one_batch(memoryview(good[:cut]), 0, version) is None
    if version >= 9:
        tagged = a_request()
        tagged.topic_data[0].partition_data[0].unknown_tagged_fields = {7: b"x"}
        assert read_one_batch(memoryview(tagged.encode(version)), 0, version) is None
        assert read_one_batch(memoryview(a_request(records=3_000_000).encode(version)), 0, version) is None
        assert read_one_batch(memoryview(a_request(name="n" * 126).encode(version)), 0, version) is None


def test_a_count_that_is_written_longer_than_it_need_be_is_not_remembered() -> None:
    body = a_request(name="t").encode(9)
    at = 7  # the number of topics, behind the null transactional id, acks and timeout
    longer = body[:at] + b"\x82\x00" + body[at + 1 :]
    assert ProduceRequest.decode(longer, 9)[0] == ProduceRequest.decode(body, 9)[0]
    for _ in range(2):
        assert read_one_batch(memoryview(longer), 0, 9) is None


def test_what_clients_invent_is_not_remembered_for_ever() -> None:
    for number in range(5000):
        assert read_one_batch(memoryview(a_request(name=f"invented-{number}").encode(11)), 0, 11) is not None
    assert len(produce_fast_path._flexible_heads) <= 4096


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topic", ["t", "orders", "n" * 126, "n" * 127, "n" * 249])
def test_the_answer_of_one_partition_is_what_the_general_encoder_writes(version: int, topic: str) -> None:
    for _ in range(2):  # the second time from the kept template
        partition = PartitionProduceResponse(index=3, error_code=6, base_offset=2**40, log_append_time_ms=-1, log_start_offset=17)
        response = ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[partition])], throttle_time_ms=9)
        header = ResponseHeader(correlation_id=5).encode(api(ApiKey.PRODUCE).response_header_version(version))
        fast = encode_produce_response(version, 5, topic, 3, 6, 2**40, -1, 17, 9)
        assert fast == header + response.encode(version)


@pytest.mark.parametrize("version", range(9, LAST_VERSION + 1))
def test_the_answers_of_several_are_those_of_each(version: int) -> None:
    for _ in range(2):
        together = encode_produce_responses(version, [5, 8], "orders", 3, [7, 2**40], 17)
        each = [encode_produce_response(version, number, "orders", 3, 0, at, -1, 17, 0) for number, at in ((5, 7), (8, 2**40))]
        assert together == b"".join(struct.pack(">i", len(answer)) + answer for answer in each)


# -- several that came together ----------------------------------------------------------------------------------------


def a_frame(correlation_id: int, version: int = 11, client_id: str | None = "client", **of_request: Any) -> bytes:
    """A request with its length."""
    header = RequestHeader(request_api_key=0, request_api_version=version, correlation_id=correlation_id, client_id=client_id)
    body = header.encode(2 if version >= 9 else 1) + a_request(**of_request).encode(version)
    return struct.pack(">i", len(body)) + body


def one_by_one(data: bytes) -> list[tuple[int, OneBatch]]:
    """(correlation id, what `read_one_batch` reads) of the frames up to the first that is none of ours or differs from the one before."""
    found: list[tuple[int, OneBatch]] = []
    position = 0
    first = b""
    while position + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, position)
        frame = data[position + 4 : position + 4 + size]
        if len(frame) < size or size < 11:
            break
        api_key, version, correlation_id, client_id_length = struct.unpack_from(">hhih", frame)
        offset = 10 + max(client_id_length, 0)
        if api_key or version < 9 or (found and frame[:4] + frame[8:offset] != first) or offset >= size or frame[offset]:
            break
        one = read_one_batch(memoryview(frame), offset + 1, version)
        if one is None or (found and one[0] is not found[0][1][0]):
            break
        first = frame[:4] + frame[8:offset]
        found.append((correlation_id, one))
        position += 4 + size
    return found


def read_together(data: bytes) -> list[tuple[int, OneBatch]]:
    """The same by `read_several`, which says where it stopped."""
    found = read_several(memoryview(bytearray(data) + b"\xee" * 100), 0, len(data))
    if found is None:
        return []
    head, batches, correlation_ids, following = found
    sizes = 0
    for _ in batches:
        sizes += 4 + struct.unpack_from(">i", data, sizes)[0]
    assert following == sizes
    return [(correlation_id, (head, batch)) for correlation_id, batch in zip(correlation_ids, batches, strict=True)]


@pytest.mark.parametrize("version", [9, 10, 11])
@pytest.mark.parametrize("client_id", ["client", "", None])
@pytest.mark.parametrize("records", [1, 126, 127, 16_382, 16_383, 70_000])
def test_frames_that_differ_in_records_only_are_read_together(version: int, client_id: str | None, records: int) -> None:
    data = b"".join(a_frame(number, version, client_id, records=records + number) for number in range(5))
    assert len(one_by_one(data)) == 5
    assert read_together(data) == one_by_one(data)
    assert read_together(data[:-1]) == one_by_one(data)[:-1]
    assert [correlation_id for correlation_id, _ in read_together(data * 7)] == [0, 1, 2, 3, 4] * 3 + [0]


@pytest.mark.parametrize(
    "other",
    [
        a_frame(1, 10),
        a_frame(1, 8),
        a_frame(1, client_id="another"),
        a_frame(1, client_id=None),
        a_frame(1, name="others"),
        a_frame(1, topics=2),
        a_frame(1, partitions=2),
        a_frame(1, transactional_id="tx"),
        (len(a_frame(1)) - 5).to_bytes(4, "big") + a_frame(1)[4:-1],
        b"\xff\xff\xff\xff" + a_frame(1)[4:],
        b"\0\0\0\0",
    ],
)
def test_what_differs_otherwise_ends_them(other: bytes) -> None:
    one = a_frame(0)
    one_by_one(one)
    assert read_together(one + other + one) == []
    assert read_together(other + one + one) == []
    assert len(read_together(one + one + other + one)) == 2


@settings(deadline=None, max_examples=400)
@given(st.lists(st.integers(1, 300), min_size=2, max_size=5), st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3))
def test_damaged_frames_are_read_as_they_are_one_by_one_or_not_at_all(sizes: list[int], damage: list[tuple[int, int]]) -> None:
    data = bytearray(b"".join(a_frame(number, records=size) for number, size in enumerate(sizes)))
    one_by_one(bytes(data))  # makes the head known
    for at, byte in damage:
        data[at % len(data)] = byte
    together = read_together(bytes(data))
    assert together == one_by_one(bytes(data))[: len(together)]
