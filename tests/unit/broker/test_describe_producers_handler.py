"""DescribeProducers: the producers of a replica, with the start of an open transaction and the epoch of the last coordinator."""

from __future__ import annotations

from typing import Any

from ottla.broker.handlers.transactions.describe_producers import handle_describe_producers
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.request.context import RequestContext
from ottla.broker.request.repeats import MAX_REPEATS
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.storage.log.origins import COORDINATOR
from tests.support.batches import FIRST_TIMESTAMP, a_run
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.pauses import steps_of
from tests.support.replicas import TOPIC, state
from tests.support.transactions import a_marker_batch, write_in_transaction

PRODUCER_ID = 7


def described(bench: HandlerBench, index: int = 0, topic: str = TOPIC) -> Any:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
    return bench.ask(request, ApiKey.DESCRIBE_PRODUCERS, 0).response.topics[0].partitions[0]


def a_bench() -> HandlerBench:
    bench = HandlerBench()
    bench.replicas.say(state(isr=[0], replicas=[0]))
    bench.know(p0=0, p1=1)
    return bench


@on_a_loop
async def test_a_producer_is_described_before_during_and_after_its_transaction() -> None:
    bench = a_bench()
    assert described(bench).active_producers == []
    bench.replicas.append()
    write_in_transaction(bench.replicas, PRODUCER_ID, epoch=2, records=3)
    (producer,) = described(bench).active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (PRODUCER_ID, 2, 2)
    assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (1, -1)
    assert producer.last_timestamp == FIRST_TIMESTAMP + 2
    marker = a_run(a_marker_batch(PRODUCER_ID, epoch=2, coordinator_epoch=5))
    bench.replicas.partition.append(marker, -1, bench.replicas.clock.now_ms(), COORDINATOR)
    (producer,) = described(bench).active_producers
    assert (producer.current_txn_start_offset, producer.coordinator_epoch, producer.producer_epoch) == (-1, 5, 2)


@on_a_loop
async def test_a_marker_without_a_transaction_is_the_first_that_is_known_of_a_producer() -> None:
    bench = a_bench()
    marker = a_run(a_marker_batch(PRODUCER_ID, epoch=1, coordinator_epoch=4))
    bench.replicas.partition.append(marker, -1, bench.replicas.clock.now_ms(), COORDINATOR)
    (producer,) = described(bench).active_producers
    assert (producer.producer_epoch, producer.last_sequence, producer.coordinator_epoch) == (1, -1, 4)


@on_a_loop
async def test_the_text_about_a_long_name_is_not_repeated_for_every_partition() -> None:
    bench = a_bench()
    name = "x" * 5_000
    request = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=list(range(100)))])
    partitions = bench.ask(request, ApiKey.DESCRIBE_PRODUCERS, 0).response.topics[0].partitions
    assert {each.error_code for each in partitions} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert [bool(each.error_message) for each in partitions] == [True] * (1 + MAX_REPEATS) + [False] * (99 - MAX_REPEATS)


@on_a_loop
async def test_a_follower_describes_its_own_producers() -> None:
    bench = a_bench()
    write_in_transaction(bench.replicas, PRODUCER_ID)
    bench.replicas.say(state(leader=1, epoch=1, isr=[0, 1], replicas=[0, 1], partition_epoch=1))
    assert [each.current_txn_start_offset for each in described(bench).active_producers] == [0]


@on_a_loop
async def test_many_producers_of_a_partition_are_described_in_steps() -> None:
    bench = a_bench()
    for producer_id in range(50):
        write_in_transaction(bench.replicas, producer_id)
    request = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0])])
    context = RequestContext(ApiKey.DESCRIBE_PRODUCERS, 0, 0, None, bench.connection, bench.services, lambda _, __: CLOSE)
    assert steps_of(handle_describe_producers(request, context))[0] >= 50


@on_a_loop
async def test_a_partition_that_is_not_here_and_one_that_is_nowhere_have_different_errors() -> None:
    bench = a_bench()
    assert described(bench, index=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert described(bench, index=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described(bench, topic="no_such_topic").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described(bench, topic="no such topic").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
