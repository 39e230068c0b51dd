"""A fetcher whose log is not its leader's: what it asks, and where it cuts."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import EpochEndOffset, FetchResponse
from ottla.protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.follower import truncation
from ottla.replication.ports.peer import PeerUnavailable
from ottla.storage.log import truncation as log_truncation
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.producer_replay import rebuild_producer_state
from tests.support.followers import CHECKPOINT_SECONDS, Follower, ScriptedPeer, answer, asked_at, batch, data, failed, until
from tests.support.logs import append
from tests.support.pauses import every_pause_waits
from tests.support.replicas import TOPIC
from tests.support.virtual_time import in_virtual_time

T0 = TopicPartition(TOPIC, 0)


def listed(offset: int, error_code: int = 0) -> ListOffsetsResponse:
    found = ListOffsetsPartitionResponse(partition_index=0, offset=offset, error_code=error_code)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[found])])


@in_virtual_time
async def test_a_diverging_epoch_cuts_the_log_and_asks_again_with_the_epoch_before() -> None:
    diverging = data(diverging_epoch=EpochEndOffset(epoch=1, end_offset=2))
    peer = ScriptedPeer(answer(diverging), answer(data(found=bytes(batch(2, 1, epoch=3)), high_watermark=3)))
    follower = Follower(peer)
    follower.lead(epoch=1)
    append(follower.log(), epoch=1)
    append(follower.log(), epoch=1)
    append(follower.log(), epoch=1)
    follower.lead(epoch=2)
    append(follower.log(), epoch=2)
    follower.follow(epoch=3)
    await until(lambda: len(peer.asked) == 3)

    first, second, third = (asked_at(each) for each in peer.fetches[:3])
    assert (first.fetch_offset, first.last_fetched_epoch) == (4, 2)
    assert (second.fetch_offset, second.last_fetched_epoch) == (2, 1)
    assert (third.fetch_offset, third.last_fetched_epoch) == (3, 3)
    assert follower.log().leader_epochs.entries == [(1, 0), (3, 2)]
    await follower.pool.close()


@in_virtual_time
async def test_logs_that_diverge_are_cut_together() -> None:
    """Each cut waits for the checkpoints, which are written once for all of them."""
    count = 10
    peer = ScriptedPeer(answer(*(data(index, diverging_epoch=EpochEndOffset(epoch=1, end_offset=2)) for index in range(count))))
    follower = Follower(peer)
    for index in range(count):
        follower.lead(index, epoch=1)
        for _ in range(3):
            append(follower.log(index), epoch=1)
    follower.follow(*range(count), epoch=2)
    logs = [follower.log(index) for index in range(count)]
    time = asyncio.get_running_loop().time
    await until(lambda: any(log.truncations.current is not None for log in logs))
    began = time()
    await until(lambda: all((log.log_end_offset, log.truncations.current) == (2, None) for log in logs))
    assert time() - began < 2 * CHECKPOINT_SECONDS
    await follower.pool.close()


@in_virtual_time
async def test_many_logs_without_epochs_are_cut_in_several_turns() -> None:
    turns = 0
    seen: list[int] = []
    cut = truncation.truncate

    def next_turn() -> None:
        nonlocal turns
        turns += 1
        if len(seen) < 6:
            asyncio.get_running_loop().call_soon(next_turn)

    async def noting(log: PartitionLog, offset: int, is_current: Callable[[], bool]) -> bool:
        seen.append(turns)
        return await cut(log, offset, is_current)

    with pytest.MonkeyPatch.context() as patch:
        every_pause_waits()
        patch.setattr(truncation, "truncate", noting)
        next_turn()
        follower = Follower(ScriptedPeer())
        follower.follow(*range(6))
        await until(lambda: len(seen) == 6)
    assert max(Counter(seen).values()) <= 2
    await follower.pool.close()


@in_virtual_time
async def test_a_log_that_could_not_be_cut_is_fetched_when_that_has_succeeded() -> None:
    failures = 2

    def rebuild(*arguments: Any, **named: Any) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise MemoryError
        rebuild_producer_state(*arguments, **named)

    def next_batch(_: ApiKey, __: int, request: Any) -> FetchResponse:
        offset = asked_at(request).fetch_offset
        return answer(data(found=bytes(batch(offset, 1, epoch=2)), high_watermark=offset + 1))

    diverging = data(diverging_epoch=EpochEndOffset(epoch=1, end_offset=2))
    peer = ScriptedPeer(answer(diverging), *[next_batch] * 9)
    follower = Follower(peer)
    loop = asyncio.get_running_loop()
    follower.logs.context.schedule = lambda name, delay_ms, period_ms, callback: loop.call_later(delay_ms / 1000, callback)
    follower.lead(epoch=1)
    for _ in range(3):
        append(follower.log(), epoch=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_truncation, "rebuild_producer_state", rebuild)
        follower.follow(epoch=2)
        await until(lambda: follower.log().log_end_offset >= 3 and follower.log().latest_epoch == 2)
    assert failures < 0
    assert follower.pool.failed == set()
    await follower.pool.close()


@in_virtual_time
async def test_beyond_the_leaders_end_the_log_goes_back_to_it() -> None:
    peer = ScriptedPeer(answer(failed(ErrorCode.OFFSET_OUT_OF_RANGE)), listed(1))
    follower = Follower(peer)
    follower.lead(epoch=1)
    for _ in range(3):
        append(follower.log(), epoch=1)
    follower.follow(epoch=2)
    await until(lambda: len(peer.asked) == 3)

    asked = peer.asked[1]
    assert asked.version == 9
    assert (asked.request.replica_id, asked.request.topics[0].partitions[0].timestamp) == (1, -1)
    assert asked.request.topics[0].partitions[0].current_leader_epoch == 2
    assert follower.log().log_end_offset == 1
    assert asked_at(peer.fetches[1]).fetch_offset == 1
    await follower.pool.close()


@in_virtual_time
async def test_before_the_leaders_start_everything_goes_and_the_log_begins_there() -> None:
    peer = ScriptedPeer(answer(failed(ErrorCode.OFFSET_OUT_OF_RANGE)), listed(50), listed(40))
    follower = Follower(peer)
    follower.lead(epoch=1)
    append(follower.log(), epoch=1)
    follower.follow(epoch=2)
    await until(lambda: len(peer.asked) == 4)

    log = follower.log()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (40, 40, 40)
    asked = asked_at(peer.fetches[1])
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.log_start_offset) == (40, -1, 40)
    assert follower.followed().lag == 10
    await follower.pool.close()


@in_virtual_time
async def test_out_of_range_for_a_moment_leaves_the_log_as_it_is() -> None:
    peer = ScriptedPeer(answer(failed(ErrorCode.OFFSET_OUT_OF_RANGE)), listed(5), listed(0))
    follower = Follower(peer)
    follower.lead(epoch=1)
    append(follower.log(), epoch=1)
    follower.follow(epoch=2)
    await until(lambda: len(peer.asked) == 4)

    assert follower.log().log_end_offset == 1
    await follower.pool.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("offered", "gives_up"),
    [
        (listed(-1, ErrorCode.FENCED_LEADER_EPOCH), True),
        (listed(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), False),
        (ListOffsetsResponse(), False),
        (PeerUnavailable("gone"), False),
    ],
)
def test_a_leader_that_does_not_say_where_its_log_ends(offered: Any, gives_up: bool) -> None:
    @in_virtual_time
    async def scenario() -> None:
        peer = ScriptedPeer(answer(failed(ErrorCode.OFFSET_OUT_OF_RANGE)), offered, answer(session_id=0))
        follower = Follower(peer)
        follower.follow()
        if gives_up:
            await until(lambda: follower.pool.failed == {T0})
        else:
            await until(lambda: len(peer.fetches) == 3)
            soon = offered == listed(-1, ErrorCode.UNKNOWN_LEADER_EPOCH)
            assert asyncio.get_running_loop().time() > (1000.01 if soon else 1000.9)
        assert follower.log().log_end_offset == 0
        await follower.pool.close()

    scenario()
