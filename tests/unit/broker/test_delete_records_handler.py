"""DeleteRecords of many partitions: some per turn of the event loop."""

import pytest

from ottla.broker.handlers.data.delete_records import ShorterPartition
from ottla.broker.security.principals import Principal
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.support.connections import ClientConnection
from tests.support.grants import Grants
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.pauses import a_turn, every_pause_waits
from tests.support.replicas import TOPIC, state

COUNT = 31


def deleting(count: int) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=2) for index in range(count)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=partitions)], timeout_ms=1000)


def a_bench(*, in_turns: bool = False) -> HandlerBench:
    """COUNT partitions that are led here, with three records each. `in_turns`: every turn of the loop has time for one."""
    bench = HandlerBench()
    if in_turns:
        every_pause_waits()
    for index in range(COUNT):
        bench.replicas.say(state(isr=[0], replicas=[0], index=index))
        bench.replicas.append(3, index=index)
    bench.replicas.disks.settle()
    return bench


@on_a_loop
async def test_partitions_lose_their_records_some_per_turn() -> None:
    bench = a_bench(in_turns=True)
    asked = bench.ask(deleting(COUNT), ApiKey.DELETE_RECORDS, 2)
    done = []
    while asked.waits:
        done.append(sum(partition.log.log_start_offset == 2 for partition in bench.replicas.manager))
        await a_turn()
    assert sorted(set(done)) == list(range(COUNT + 1))
    (topic,) = asked.response.topics
    assert [(each.partition_index, each.low_watermark, each.error_code) for each in topic.partitions] == [
        (index, 2, ErrorCode.NONE) for index in range(COUNT)
    ]


@on_a_loop
async def test_a_partition_that_goes_away_meanwhile_is_answered_so() -> None:
    bench = a_bench(in_turns=True)
    asked = bench.ask(deleting(COUNT), ApiKey.DELETE_RECORDS, 2)
    bench.replicas.stop(0, delete=True, index=COUNT - 1)
    while asked.waits:
        await a_turn()
    (topic,) = asked.response.topics
    assert [each.error_code for each in topic.partitions[:-1]] == [ErrorCode.NONE] * (COUNT - 1)
    assert topic.partitions[-1].error_code != ErrorCode.NONE


class Refusing(Grants):
    """Refuses everything, and keeps the names that it was asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def is_authorized(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self.asked.append(name)
        return False


@on_a_loop
async def test_the_right_to_a_topic_is_asked_once_for_all_its_partitions() -> None:
    bench = a_bench()
    authorizer = Refusing()
    bench.connection = ClientConnection(authorizer)
    (topic,) = bench.ask(deleting(COUNT), ApiKey.DELETE_RECORDS, 2).response.topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * COUNT
    assert authorizer.asked == [TOPIC]


@on_a_loop
async def test_few_partitions_are_answered_at_once() -> None:
    asked = a_bench().ask(deleting(2), ApiKey.DELETE_RECORDS, 2)
    assert not asked.waits


def a_followed_bench(*, in_turns: bool = False) -> HandlerBench:
    """The same with a follower, which has all records."""
    bench = HandlerBench()
    if in_turns:
        every_pause_waits()
    for index in range(COUNT):
        bench.replicas.say(state(isr=[0, 1], replicas=[0, 1], index=index))
        bench.replicas.append(3, index=index)
    bench.replicas.disks.settle()
    follow(bench, 0, *range(COUNT))
    return bench


def follow(bench: HandlerBench, start: int, *indexes: int) -> None:
    """The follower has everything from `start` on."""
    for index in indexes:
        bench.replicas.manager.partitions[TOPIC][index].on_follower_fetch(1, 3, start, 0)


@on_a_loop
async def test_each_follower_that_deletes_has_one_partition_looked_at() -> None:
    bench = a_followed_bench()
    asked = bench.ask(deleting(COUNT), ApiKey.DELETE_RECORDS, 2)
    looks = 0
    look = ShorterPartition.try_complete

    def counted(entry: ShorterPartition) -> bool:
        nonlocal looks
        looks += 1
        return look(entry)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShorterPartition, "try_complete", counted)
        for index in range(COUNT):
            assert asked.waits
            follow(bench, 2, index)
    assert looks == COUNT
    (topic,) = asked.response.topics
    assert {(each.low_watermark, each.error_code) for each in topic.partitions} == {(2, ErrorCode.NONE)}
    assert not bench.services.data.delete_records_purgatory.delayed


@on_a_loop
async def test_partitions_begin_to_wait_and_are_answered_some_per_turn() -> None:
    bench = a_followed_bench(in_turns=True)
    asked = bench.ask(deleting(COUNT), ApiKey.DELETE_RECORDS, 2)
    asked.pending.connection = bench.connection
    waiting = set()
    partitions = bench.replicas.manager.partitions[TOPIC]
    while max(waiting, default=0) < COUNT:
        await a_turn()
        waiting.add(sum(bool(partition.waiters.waiting) for partition in partitions.values()))
    assert waiting == set(range(COUNT + 1))
    follow(bench, 2, *range(COUNT))
    turns = 0
    while asked.waits:
        await a_turn()
        turns += 1
    assert turns
    assert len(asked.response.topics[0].partitions) == COUNT


@on_a_loop
async def test_followers_that_delete_while_others_begin_to_wait_count() -> None:
    bench = a_followed_bench(in_turns=True)
    asked = bench.ask(deleting(COUNT), ApiKey.DELETE_RECORDS, 2)
    asked.pending.connection = bench.connection
    while not bench.replicas.manager.partitions[TOPIC][0].waiters.waiting:
        await a_turn()
    follow(bench, 2, *range(COUNT))
    while asked.waits:
        await a_turn()
    assert {each.error_code for each in asked.response.topics[0].partitions} == {ErrorCode.NONE}


@on_a_loop
async def test_partitions_whose_followers_are_too_slow_time_out() -> None:
    bench = a_followed_bench()
    asked = bench.ask(deleting(COUNT), ApiKey.DELETE_RECORDS, 2)
    follow(bench, 2, 0)
    bench.time.advance(1100)
    (topic,) = asked.response.topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.NONE] + [ErrorCode.REQUEST_TIMED_OUT] * (COUNT - 1)
    bench.services.data.delete_records_purgatory.purge()
    assert not any(partition.waiters.waiting for partition in bench.replicas.manager.partitions[TOPIC].values())
