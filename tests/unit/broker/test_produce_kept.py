"""What a Produce keeps while it waits: nothing of its frame, and copies of batches that count."""

from __future__ import annotations

import pytest

from ottla.broker.handlers.data.produce import AT_ONCE
from ottla.broker.handlers.table import SERVED
from ottla.broker.network.buffer_supplier import LARGEST_KEPT
from ottla.broker.request.listed_apis import ListedApis
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.storage.validation.records import MOST_RECORD_ERRORS
from tests.support.batches import a_batch
from tests.support.controlled_cluster import until
from tests.support.golden_replay import request_frame
from tests.support.handler_bench import Asking, HandlerBench, on_a_loop
from tests.support.pauses import every_pause_waits
from tests.support.replicas import TOPIC, TOPIC_ID, state
from tests.unit.broker.test_produce_handler import alone, followed
from tests.unit.broker.test_produce_together import Wire, a_produce

LARGE = a_batch(400, value_bytes=200)


def ask(bench: HandlerBench, buffer: bytearray, version: int) -> Asking:
    """The frame is in a buffer of the test."""
    return Asking(bench.dispatcher.handle(memoryview(buffer), bench.connection), ApiKey.PRODUCE, version)  # type: ignore[arg-type]  # all it needs of one


def a_frame(*batches: bytes | bytearray, version: int = 9, topic_id: bytes | None = None) -> bytearray:
    data = [PartitionProduceData(index=index, records=bytes(batch)) for index, batch in enumerate(batches)]
    topic = (
        TopicProduceData(name=TOPIC, partition_data=data) if topic_id is None else TopicProduceData(topic_id=topic_id, partition_data=data)
    )
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    return bytearray(request_frame(request, ApiKey.PRODUCE, version)[4:])


@on_a_loop
async def test_a_request_that_waits_for_replicas_keeps_nothing_of_its_frame() -> None:
    bench = followed()
    buffer = a_frame(a_batch(2))
    asked = ask(bench, buffer, 9)
    assert asked.waits
    buffer.clear()  # a BufferError while anything refers to it
    for broker_id in (1, 2):
        bench.replicas.follow(broker_id, 2)
    assert asked.produced[0].error_code == ErrorCode.NONE


@on_a_loop
async def test_a_request_that_waits_for_a_worker_keeps_copies_of_its_batches_alone() -> None:
    bench = alone(compression_type="gzip")
    buffer = a_frame(LARGE, LARGE)
    asked = ask(bench, buffer, 9)
    assert asked.waits
    buffer.clear()
    await until(lambda: not asked.waits)
    assert [each.error_code for each in asked.produced] == [ErrorCode.NONE, ErrorCode.NONE]


@on_a_loop
async def test_copies_of_batches_count_among_the_requests_that_wait_until_they_are_answered() -> None:
    wire = Wire(alone(compression_type="gzip"))
    channel = wire.bench.channel
    assert wire.send(a_produce(1, LARGE)) == []
    assert channel.queued_bytes == channel.frame_memory.kept == len(LARGE)
    await until(lambda: bool(wire.send()))
    assert channel.queued_bytes == channel.frame_memory.kept == 0


@on_a_loop
async def test_copies_of_batches_that_wait_for_replicas_count_no_more() -> None:
    wire = Wire(followed(compression_type="gzip"))
    assert wire.send(a_produce(1, LARGE)) == []
    assert wire.bench.channel.queued_bytes == len(LARGE)
    await until(lambda: wire.handlers.replicas.partition.log.log_end_offset == 400)
    await until(lambda: wire.bench.channel.queued_bytes == 0)
    assert wire.send() == []


@on_a_loop
async def test_a_frame_with_a_buffer_of_its_own_goes_on_in_turns_without_a_copy() -> None:
    bench = HandlerBench()
    count = 3 * AT_ONCE
    bench.replicas.say(*(state(isr=[0], replicas=[0], index=index) for index in range(count)))
    bench.know(**{f"p{index}": 0 for index in range(count)})
    every_pause_waits()
    buffer = a_frame(*[a_batch(1, value_bytes=LARGEST_KEPT // count)] * count)
    asked = ask(bench, buffer, 9)
    assert asked.waits
    with pytest.raises(BufferError):
        buffer.clear()
    await until(lambda: not asked.waits)
    assert {each.error_code for each in asked.produced} == {ErrorCode.NONE}
    buffer.clear()


@on_a_loop
async def test_a_turn_has_fewer_batches_if_they_expand_to_much() -> None:
    """Each has 100 bytes, and takes as long as hundreds of others."""
    bench = HandlerBench()
    count = AT_ONCE // 4
    bench.replicas.say(*(state(isr=[0], replicas=[0], index=index) for index in range(count)))
    bench.know(**{f"p{index}": 0 for index in range(count)})
    every_pause_waits()
    asked = bench.produce(*[a_batch(1, "zstd", value_bytes=100_000)] * count)
    assert asked.waits
    assert sum(partition.log.log_end_offset for partition in bench.replicas.manager) == 2, "one at first, and one when it goes on"
    await until(lambda: not asked.waits)
    assert [each.error_code for each in asked.produced] == [ErrorCode.NONE] * count


@on_a_loop
async def test_a_turn_has_fewer_batches_if_their_records_are_examined_one_by_one() -> None:
    """Their answers name each record."""
    bench = HandlerBench(cleanup_policy="compact")
    count = AT_ONCE // 4
    bench.replicas.say(*(state(isr=[0], replicas=[0], index=index) for index in range(count)))
    bench.know(**{f"p{index}": 0 for index in range(count)})
    every_pause_waits()
    asked = bench.produce(*[a_batch(100, key=None)] * count)
    assert asked.waits
    await until(lambda: not asked.waits)
    assert [(each.error_code, len(each.record_errors)) for each in asked.produced] == [(ErrorCode.INVALID_RECORD, 100)] * count


@on_a_loop
async def test_an_answer_names_few_of_very_many_refused_records() -> None:
    """A request of some KB may name one partition thousands of times, each with a batch of 10,000 such records."""
    bench = HandlerBench(cleanup_policy="compact")
    count = MOST_RECORD_ERRORS // 1000 + 2
    bench.replicas.say(*(state(isr=[0], replicas=[0], index=index) for index in range(count)))
    bench.know(**{f"p{index}": 0 for index in range(count)})
    asked = bench.produce(*[a_batch(1000, "zstd", key=None)] * count)
    await until(lambda: not asked.waits)
    assert {each.error_code for each in asked.produced} == {ErrorCode.INVALID_RECORD}
    assert [len(each.record_errors) for each in asked.produced] == [1000] * (count - 2) + [0, 0]
    assert [each.error_message is None for each in asked.produced] == [False] * (count - 2) + [True, True]


@on_a_loop
async def test_records_for_the_id_of_a_former_topic_are_not_appended_to_the_one_of_that_name() -> None:
    bench = alone()
    bench.services.listed = ListedApis(SERVED, bench.features.level, is_own_cluster=True)
    bench.replicas.cluster.names_by_id[b"a former topic's"] = TOPIC
    assert ask(bench, a_frame(a_batch(), version=13, topic_id=TOPIC_ID), 13).produced[0].error_code == ErrorCode.NONE
    refused = ask(bench, a_frame(a_batch(), version=13, topic_id=b"a former topic's"), 13).produced[0]
    assert refused.error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert bench.replicas.partition.log.log_end_offset == 1


@on_a_loop
async def test_the_times_of_a_log_do_not_run_backwards_because_a_worker_had_a_batch() -> None:
    bench = alone(compression_type="gzip", message_timestamp_type="LogAppendTime")
    asked = bench.produce(LARGE)
    assert asked.waits
    bench.replicas.clock.move(1000)
    await until(lambda: not asked.waits)
    assert asked.produced[0].log_append_time_ms == bench.replicas.clock.now_ms()
