"""The hand-made reader and writer of Produce say what the generated ones say, on every recorded frame and every shape."""

import pytest

from protocol.api_keys import ApiKey
from protocol.messages.header import ResponseHeader
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.produce_fast_path import FIRST_VERSION, LAST_VERSION, encode_produce_response, read_produce
from protocol.registry import api
from tests.support.golden_frames import all_golden_frames

VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)


def shape_of(request: ProduceRequest) -> object:
    topics = [(topic.name, [(partition.index, partition.records) for partition in topic.partition_data]) for topic in request.topic_data]
    return request.transactional_id, request.acks, request.timeout_ms, topics


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
            assert read_produce(memoryview(frame.data), offset, frame.version) == shape_of(request), frame.where
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
        a_request(records=16_383),
        a_request(records=3_000_000),
        a_request(topics=3, partitions=4),
        a_request(topics=0),
        a_request(partitions=0),
        a_request(transactional_id="tx"),
        a_request(transactional_id=""),
        a_request(name="n" * 100),
        a_request(name="grün"),
    ],
    ids=lambda request: f"{len(request.topic_data)} topics",
)
def test_every_common_shape_is_read_the_same(version: int, request_: ProduceRequest) -> None:
    data = b"head" + request_.encode(version)
    general, _ = ProduceRequest.decode(data, version, 4)
    assert read_produce(memoryview(bytearray(data)), 4, version) == shape_of(general)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_uncommon_or_damaged_is_left_to_the_general_reader(version: int) -> None:
    null_records = a_request()
    null_records.topic_data[0].partition_data[0].records = None
    assert read_produce(memoryview(null_records.encode(version)), 0, version) is None
    good = a_request(topics=2, partitions=2).encode(version)
    for cut in range(len(good)):
        assert read_produce(memoryview(good[:cut]), 0, version) is None
    if version >= 9:
        tagged = a_request()
        tagged.topic_data[0].partition_data[0].unknown_tagged_fields = {7: b"x"}
        assert read_produce(memoryview(tagged.encode(version)), 0, version) is None
        assert read_produce(memoryview(a_request(topics=130).encode(version)), 0, version) is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topic", ["t", "orders", "n" * 126, "n" * 127, "n" * 249])
def test_the_answer_of_one_partition_is_what_the_general_encoder_writes(version: int, topic: str) -> None:
    for _ in range(2):  # the second time from the kept template
        partition = PartitionProduceResponse(index=3, error_code=6, base_offset=2**40, log_append_time_ms=-1, log_start_offset=17)
        response = ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[partition])], throttle_time_ms=9)
        header = ResponseHeader(correlation_id=5).encode(api(ApiKey.PRODUCE).response_header_version(version))
        fast = encode_produce_response(version, 5, topic, 3, 6, 2**40, -1, 17, 9)
        assert fast == header + response.encode(version)
