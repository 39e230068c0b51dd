"""DeleteRecords of many partitions: some per turn of the event loop."""

from broker.request.turns import Turns
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.network import Turns as Loop
from tests.support.replicas import TOPIC, state

COUNT = 31


def deleting(count: int) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=2) for index in range(count)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=partitions)], timeout_ms=1000)


def a_bench(loop: Loop | None = None) -> HandlerBench:
    """COUNT partitions that are led here, with three records each. With a loop, every turn of it has time for one step."""
    bench = HandlerBench()
    if loop is not None:
        bench.dispatcher.messages.turns = bench.services.turns = Turns(loop.call_soon, slice_ns=0)
    for index in range(COUNT):
        bench.replicas.say(state(isr=[0], replicas=[0], index=index))
        bench.replicas.append(3, index=index)
    bench.replicas.disks.settle()
    return bench


@on_a_loop
async def test_partitions_lose_their_records_some_per_turn() -> None:
    loop = Loop()
    bench = a_bench(loop)
    asked = bench.ask(deleting(COUNT), ApiKey.DELETE_RECORDS, 2)
    done = []
    while asked.waits:
        done.append(sum(partition.log.log_start_offset == 2 for partition in bench.replicas.manager))
        assert loop.turn()
    assert sorted(set(done)) == list(range(COUNT + 1))
    (topic,) = asked.response.topics
    assert [(each.partition_index, each.low_watermark, each.error_code) for each in topic.partitions] == [
        (index, 2, ErrorCode.NONE) for index in range(COUNT)
    ]


@on_a_loop
async def test_a_partition_that_goes_away_meanwhile_is_answered_so() -> None:
    loop = Loop()
    bench = a_bench(loop)
    asked = bench.ask(deleting(COUNT), ApiKey.DELETE_RECORDS, 2)
    bench.replicas.stop(0, delete=True, index=COUNT - 1)
    while asked.waits:
        assert loop.turn()
    (topic,) = asked.response.topics
    assert [each.error_code for each in topic.partitions[:-1]] == [ErrorCode.NONE] * (COUNT - 1)
    assert topic.partitions[-1].error_code != ErrorCode.NONE


@on_a_loop
async def test_few_partitions_are_answered_at_once() -> None:
    asked = a_bench().ask(deleting(2), ApiKey.DELETE_RECORDS, 2)
    assert not asked.waits
