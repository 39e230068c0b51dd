"""What the load generator sends: whole frames with the right header, batches of the wanted size, the places of error codes."""

from typing import TypeVar

import pytest

from benchmarks.loads import frames
from benchmarks.loads.admin import Topic
from benchmarks.loads.batches import Codec, batch_of_size, batch_of_values, values_like_text
from benchmarks.loads.workloads import FETCH, PREFILL_BATCH_BYTES, PRODUCE, RECORDS_OF_16_KIB, prefill
from benchmarks.turns.sizes import Pace
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.header import RequestHeader, ResponseHeader
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from ottla.protocol.records.batch import crc_is_valid, parse_header
from ottla.protocol.schema.message import Message

NOW = 1_700_000_000_000
TOPIC = Topic("orders", bytes(range(16)), 4)
PACE = Pace(warm_up_limit_s=0, warm_up_s=0, duration_s=1, max_bytes=0, prefill_bytes=32 << 20)
Request = TypeVar("Request", bound=Message)


def request_in(frame: bytes, kind: type[Request]) -> Request:
    """The request of a frame that holds nothing else."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, at = RequestHeader.decode(frame, 2, 4)
    assert header.correlation_id == 0
    request, end = kind.decode(frame, header.request_api_version, at)
    assert end == len(frame)
    return request


def test_a_produce_frame_holds_one_batch_for_one_partition_with_acks_all() -> None:
    batch = batch_of_values(values_like_text(3, 10), NOW)

    request = request_in(frames.produce("orders", 2, batch), ProduceRequest)

    assert request.acks == -1
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index, bytes(partition.records or b"")) == ("orders", 2, batch)


def test_a_fetch_frame_asks_for_one_partition_outside_any_session() -> None:
    request = request_in(frames.fetch(TOPIC.topic_id, 1, 450, 65536), FetchRequest)

    assert (request.session_id, request.session_epoch, request.min_bytes, request.max_bytes) == (0, -1, 1, 65536)
    (topic,) = request.topics
    (partition,) = topic.partitions
    asked = (topic.topic_id, partition.partition, partition.fetch_offset, partition.partition_max_bytes)
    assert asked == (TOPIC.topic_id, 1, 450, 65536)


@pytest.mark.parametrize("name", ["o", "orders", "o" * 200])
def test_the_error_code_of_a_produce_answer_stands_where_the_generator_looks(name: str) -> None:
    partition = PartitionProduceResponse(index=3, error_code=29, base_offset=7)
    response = ProduceResponse(responses=[TopicProduceResponse(name=name, partition_responses=[partition])])

    answer = ResponseHeader(correlation_id=9).encode(1) + response.encode(11)

    assert [answer[at : at + 2] for at in frames.produce_error_offsets(name)] == [b"\0\x1d"]


def test_both_error_codes_of_a_fetch_answer_stand_where_the_generator_looks() -> None:
    partition = PartitionData(partition_index=1, error_code=1, high_watermark=5, records=None)
    response = FetchResponse(error_code=70, responses=[FetchableTopicResponse(topic_id=TOPIC.topic_id, partitions=[partition])])

    answer = ResponseHeader(correlation_id=9).encode(1) + response.encode(17)

    assert [answer[at : at + 2] for at in frames.fetch_error_offsets()] == [b"\0\x46", b"\0\x01"]


@pytest.mark.parametrize(("total", "records"), [(16384, 150), (1 << 20, 9600), (500, 1)])
def test_a_plain_batch_is_as_large_as_wanted_and_never_larger(total: int, records: int) -> None:
    batch = batch_of_size(total, records, NOW)

    header = parse_header(batch)
    assert crc_is_valid(batch)
    assert (header.record_count, header.last_offset_delta, header.max_timestamp) == (records, records - 1, NOW)
    assert total - 2 * records <= len(batch) <= total


def test_an_lz4_batch_is_smaller_and_valid() -> None:
    batch = batch_of_size(16384, 150, NOW, "lz4")

    assert crc_is_valid(batch)
    assert parse_header(batch).record_count == 150
    assert len(batch) < 16384 * 3 // 4


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batches_are_the_same_in_every_run(codec: Codec) -> None:
    assert batch_of_size(16384, 150, NOW, codec) == batch_of_size(16384, 150, NOW, codec)


@pytest.mark.slow
def test_every_produce_load_sends_to_every_partition_and_fits_the_default_message_limit() -> None:
    for produce in PRODUCE:
        load = produce.load(TOPIC, PACE)

        sent = [request_in(frame, ProduceRequest).topic_data[0].partition_data[0] for frame in load.frames]
        assert [data.index for data in sent] == [0, 1, 2, 3]
        assert all(len(data.records or b"") <= 1_048_588 for data in sent)


def test_every_fetch_can_be_answered_in_full_from_what_is_prefilled() -> None:
    batches_per_partition = PACE.prefill_bytes // TOPIC.partitions // PREFILL_BATCH_BYTES
    for fetch in FETCH:
        for frame in fetch.load(TOPIC, PACE).frames:
            partition = request_in(frame, FetchRequest).topics[0].partitions[0]

            last_batch = partition.fetch_offset // RECORDS_OF_16_KIB + fetch.max_bytes // PREFILL_BATCH_BYTES + 1
            assert last_batch < batches_per_partition


def test_the_prefills_of_all_partitions_together_write_what_is_asked_for() -> None:
    loads = [prefill(TOPIC, partition, PACE) for partition in range(TOPIC.partitions)]

    assert sum(load.total for load in loads) * PREFILL_BATCH_BYTES == PACE.prefill_bytes
    filled = [request_in(frame, ProduceRequest).topic_data[0].partition_data[0].index for load in loads for frame in load.frames]
    assert filled == [0, 1, 2, 3]
