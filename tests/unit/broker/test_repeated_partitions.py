"""A request that names a partition again and again, and others that do not exist, costs what its length allows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

from ottla.broker.network.request_channel import Answer
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema.message import Message
from tests.support.batches import a_batch
from tests.support.golden_replay import request_frame
from tests.support.handler_bench import Asking, HandlerBench, on_a_loop
from tests.support.replicas import TOPIC, TOPIC_ID, state

PARTITIONS = 200
MOST_FACTOR = 2.5
"""The cost of twice as many partitions; the square would be four times as much."""

Codes = list[tuple[int, int]]
"""(partition, error code) in the order of the answer."""


def produce(indexes: Sequence[int]) -> Message:
    batch = bytes(a_batch())
    data = [PartitionProduceData(index=index, records=batch) for index in indexes]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])


def fetch(indexes: Sequence[int]) -> Message:
    partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in indexes]
    return FetchRequest(max_bytes=1, session_epoch=-1, topics=[FetchTopic(topic_id=TOPIC_ID, partitions=partitions)])


def list_offsets(indexes: Sequence[int]) -> Message:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in indexes]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)])


def delete_records(indexes: Sequence[int]) -> Message:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=0) for index in indexes]
    return DeleteRecordsRequest(timeout_ms=1000, topics=[DeleteRecordsTopic(name=TOPIC, partitions=partitions)])


def ask_for_epochs(indexes: Sequence[int]) -> Message:
    partitions = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in indexes]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=partitions)])


def codes_of(response: Any) -> Codes:
    topics = response.topics if hasattr(response, "topics") else response.responses
    found: Codes = []
    for topic in topics:
        for each in topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions:
            index = next(getattr(each, name) for name in ("partition_index", "partition", "index") if hasattr(each, name))
            found.append((index, each.error_code))
    return found


def calls_of(action: Callable[[], Answer]) -> tuple[Answer, int]:
    """The result, and the number of calls that it took."""
    calls = 0

    def on_event(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        answer = action()
    finally:
        sys.setprofile(None)
    return answer, calls


@pytest.mark.parametrize(
    ("key", "version", "ask", "times", "code"),
    [
        (ApiKey.PRODUCE, 11, produce, 1, ErrorCode.NONE),
        (ApiKey.FETCH, 17, fetch, 1, ErrorCode.NONE),
        (ApiKey.LIST_OFFSETS, 9, list_offsets, PARTITIONS, ErrorCode.INVALID_REQUEST),
        (ApiKey.DELETE_RECORDS, 2, delete_records, 1, ErrorCode.NONE),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, ask_for_epochs, PARTITIONS, ErrorCode.NONE),
    ],
    ids=["Produce", "Fetch", "ListOffsets", "DeleteRecords", "OffsetForLeaderEpoch"],
)
def test_the_cost_grows_with_the_length_alone(
    key: ApiKey, version: int, ask: Callable[[Sequence[int]], Message], times: int, code: ErrorCode
) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = HandlerBench()
        bench.replicas.say(state(isr=[0], replicas=[0]))
        bench.know(p0=0)

        def asked(count: int) -> tuple[Codes, int]:
            indexes = [0 if number % 2 else 1 + number for number in range(count)]
            frame = request_frame(ask(indexes), key, version)[4:]
            answer, calls = calls_of(lambda: bench.raw(frame))
            return codes_of(Asking(answer, key, version).response), calls

        asked(2)  # compiles and imports what it needs
        _, some = asked(PARTITIONS)
        codes, twice_as_many = asked(2 * PARTITIONS)
        assert twice_as_many < MOST_FACTOR * some
        assert [each for each in codes if each[0] == 0] == [(0, code)] * times
        assert {each[1] for each in codes if each[0]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert len(codes) == PARTITIONS + times

    scenario()
