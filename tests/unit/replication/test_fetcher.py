"""A fetcher and a leader that answers as a script says: what becomes of every answer."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.peer import PeerUnavailable
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.pending_topic_id import make_durable
from tests.support.batches import with_bytes
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.followers import (
    BROKER_EPOCH,
    Asked,
    Follower,
    ScriptedPeer,
    answer,
    asked_at,
    batch,
    data,
    failed,
    until,
)
from tests.support.logs import read_all
from tests.support.replicas import TOPIC
from tests.support.transactions import a_marker_batch
from tests.support.virtual_time import in_virtual_time

T0 = TopicPartition(TOPIC, 0)


async def times_of_fetches(peer: ScriptedPeer, count: int) -> list[float]:
    """When the next requests came, in milliseconds from now."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    times = []
    seen = len(peer.asked)
    while len(times) < count:
        await asyncio.sleep(0.001)
        times += [(loop.time() - began) * 1000] * (len(peer.asked) - seen)
        seen = len(peer.asked)
    return times


@in_virtual_time
async def test_the_first_request_says_who_asks_and_for_what() -> None:
    peer = ScriptedPeer()
    follower = Follower(peer)
    follower.follow()
    await until(lambda: bool(peer.asked))

    first: Asked = peer.asked[0]
    request = first.request
    assert first.version == 17
    assert peer.client_id == "broker-1-fetcher-0"
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, BROKER_EPOCH)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10 << 20)
    asked = asked_at(request)
    assert (asked.fetch_offset, asked.current_leader_epoch, asked.last_fetched_epoch) == (0, 1, -1)
    assert (asked.log_start_offset, asked.partition_max_bytes) == (0, 1 << 20)
    await follower.pool.close()


@in_virtual_time
async def test_what_comes_is_appended_and_the_next_request_asks_for_what_follows() -> None:
    sent = batch(0, 3) + batch(3, 2, epoch=1)
    peer = ScriptedPeer(answer(data(found=bytes(sent), high_watermark=2)))
    follower = Follower(peer)
    follower.follow()
    await until(lambda: len(peer.asked) == 2)

    log = follower.log()
    assert (log.log_end_offset, log.high_watermark) == (5, 2)
    assert read_all(log) == sent
    assert log.leader_epochs.entries == [(1, 0)]
    request = peer.fetches[1]
    asked = asked_at(request)
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (5, 1)
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert follower.partition().stats.replication_bytes_in == len(sent)
    assert follower.pool.fetchers[0, 0].bytes_in == len(sent)
    await follower.pool.close()


@in_virtual_time
async def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    whole = batch(0, 3)
    peer = ScriptedPeer(answer(data(found=bytes(whole + batch(3)[:40]), high_watermark=0)))
    follower = Follower(peer)
    follower.follow()
    await until(lambda: len(peer.asked) == 2)

    assert read_all(follower.log()) == whole
    assert asked_at(peer.fetches[1]).fetch_offset == 3
    await follower.pool.close()


@in_virtual_time
async def test_very_many_small_batches_are_taken_in_parts() -> None:
    markers = [with_bytes(a_marker_batch(5), 0, offset.to_bytes(8, "big")) for offset in range(1000)]
    sent = b"".join(markers)

    def rest(_: ApiKey, version: int, request: Any) -> FetchResponse:
        at = asked_at(request).fetch_offset
        return answer(data(found=b"".join(markers[at:]), high_watermark=1000))

    peer = ScriptedPeer(answer(data(found=sent, high_watermark=1000)), rest)
    follower = Follower(peer)
    follower.follow()
    await until(lambda: len(peer.asked) == 3)

    assert 900 < asked_at(peer.fetches[1]).fetch_offset < 1000
    assert asked_at(peer.fetches[2]).fetch_offset == 1000
    assert read_all(follower.log()) == sent
    assert follower.pool.fetchers[0, 0].bytes_in == len(sent)
    await follower.pool.close()


@in_virtual_time
async def test_the_high_watermark_is_the_leaders_or_the_end_of_what_is_here() -> None:
    peer = ScriptedPeer(answer(data(found=bytes(batch(0, 3)), high_watermark=9)), answer(data(high_watermark=9)))
    follower = Follower(peer)
    follower.follow()
    await until(lambda: len(peer.asked) == 3)

    assert follower.log().high_watermark == 3
    assert follower.followed().lag == 6
    assert follower.pool.max_lag == 6
    await follower.pool.close()


class Watcher:
    """A consumer that waits here."""

    def __init__(self) -> None:
        self.completed = False
        self.told = 0

    def try_complete(self) -> bool:
        self.told += 1
        return False


@in_virtual_time
async def test_consumers_that_wait_here_hear_of_a_new_high_watermark_and_of_nothing_else() -> None:
    peer = ScriptedPeer()
    follower = Follower(peer)
    follower.follow()
    watcher = Watcher()
    follower.partition().waiters.add(watcher)
    peer.script += [
        answer(data(found=bytes(batch(0, 3)), high_watermark=0)),
        answer(data(high_watermark=2)),
        answer(data(high_watermark=2)),
    ]
    await until(lambda: len(peer.asked) == 4)

    assert watcher.told == 1
    await follower.pool.close()


@in_virtual_time
async def test_the_log_start_offset_follows_the_leaders_and_is_told_in_the_next_request() -> None:
    peer = ScriptedPeer(
        answer(data(found=bytes(batch(0, 3) + batch(3, 3)), high_watermark=6)),
        answer(data(high_watermark=6, log_start_offset=4)),
    )
    follower = Follower(peer)
    follower.follow()
    await until(lambda: len(peer.asked) == 3)

    assert follower.log().log_start_offset == 4
    assert asked_at(peer.fetches[2]).log_start_offset == 4
    await follower.pool.close()


@in_virtual_time
async def test_records_are_asked_for_again_soon_until_the_topic_id_of_the_log_is_durable() -> None:
    peer = ScriptedPeer(*[answer(data(found=bytes(batch(0, 3)), high_watermark=0))] * 9)
    follower = Follower(peer)
    due: list[PartitionLog] = []
    follower.logs.context.on_topic_id_due = due.append
    follower.follow()
    await until(lambda: due.count(follower.log()) == 3)  # one when the log got the id
    assert follower.log().log_end_offset == 0

    make_durable(follower.log())
    await until(lambda: follower.log().log_end_offset == 3)
    assert read_all(follower.log()) == batch(0, 3)
    await follower.pool.close()


@in_virtual_time
async def test_an_empty_log_may_begin_in_the_middle_of_the_first_batch() -> None:
    peer = ScriptedPeer(answer(data(found=bytes(batch(3, 5)), high_watermark=8, log_start_offset=5)))
    follower = Follower(peer)
    follower.lead()
    follower.log().truncations.truncate_fully_and_start_at(5)
    follower.follow()
    await until(lambda: len(peer.asked) == 2)

    log = follower.log()
    assert (log.log_start_offset, log.log_end_offset) == (5, 8)
    assert read_all(log) == batch(3, 5)
    await follower.pool.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    ],
)
def test_after_an_error_the_partition_leaves_the_session_and_comes_back_after_the_backoff(code: ErrorCode) -> None:
    @in_virtual_time
    async def scenario() -> None:
        peer = ScriptedPeer(
            answer(failed(code, 0), data(1)),
            answer(),  # forgets the first, goes on with the second
        )
        follower = Follower(peer, replica_fetch_backoff_ms=700)
        loop = asyncio.get_running_loop()
        began = loop.time()
        follower.follow(0, 1)
        await until(lambda: len(peer.asked) == 3)
        loop.call_later(0.6, peer.script.append, answer())
        await until(lambda: len(peer.asked) == 4)
        loop.call_later(0.2, peer.script.append, answer())
        await until(lambda: len(peer.asked) == 5)

        assert asked_at(peer.fetches[3]) is None
        assert loop.time() > began + 0.7
        assert asked_at(peer.fetches[4]) is not None
        assert [topic.partitions for topic in peer.fetches[1].forgotten_topics_data] == [[0]]
        assert follower.pool.failed == set()
        await follower.pool.close()

    scenario()


@in_virtual_time
async def test_a_partition_that_failed_alone_is_asked_for_again_after_the_backoff_and_not_before() -> None:
    peer = ScriptedPeer(*([answer(failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)), answer(session_id=0)] * 5))
    follower = Follower(peer)
    follower.follow()

    times = await times_of_fetches(peer, 6)

    assert [round(each, -2) for each in times] == [0, 0, 1000, 1000, 2000, 2000]
    assert asked_at(peer.fetches[2]) is not None
    assert peer.fetches[2].session_epoch == 0
    await follower.pool.close()


@pytest.mark.slow
@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_leader_that_has_not_heard_of_it_yet_is_asked_again_soon_and_less_and_less_often(code: ErrorCode) -> None:
    @in_virtual_time
    async def scenario() -> None:
        peer = ScriptedPeer(*[answer(failed(code)), answer(session_id=0)] * 9)
        follower = Follower(peer)
        follower.follow()

        times = (await times_of_fetches(peer, 18))[::2]

        pauses = [later - sooner for sooner, later in pairwise(times)]
        for pause, expected in zip(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000], strict=True):
            assert expected - 1 < pause < expected + 20
        await follower.pool.close()

    scenario()


@in_virtual_time
async def test_what_is_to_be_followed_does_not_wait_for_a_fetch_that_waits_at_the_leader() -> None:
    peer = ScriptedPeer(answer())
    follower = Follower(peer)
    follower.follow(0)
    await until(lambda: len(peer.asked) == 2)
    began = asyncio.get_running_loop().time()
    follower.follow(1)
    await until(lambda: len(peer.asked) == 3)

    assert asyncio.get_running_loop().time() - began < 0.1
    assert peer.fetches[2].session_epoch == 0
    assert sorted(partition.partition for topic in peer.fetches[2].topics for partition in topic.partitions) == [0, 1]
    await follower.pool.close()


@in_virtual_time
async def test_a_fenced_epoch_waits_for_the_controllers_next_word() -> None:
    peer = ScriptedPeer(answer(failed(ErrorCode.FENCED_LEADER_EPOCH)), PeerUnavailable("over"))
    other = ScriptedPeer()
    follower = Follower(peer, other)
    follower.follow()
    await until(lambda: bool(follower.pool.failed))

    assert follower.pool.failed == {T0}
    assert follower.pool.followed(T0) is None
    await until(lambda: not follower.pool.fetchers)
    follower.follow(epoch=2)
    await until(lambda: bool(other.asked))

    assert follower.pool.failed == set()
    assert asked_at(other.fetches[0]).current_leader_epoch == 2
    await follower.pool.close()


@in_virtual_time
async def test_a_damaged_batch_is_not_appended_and_asked_for_again() -> None:
    damaged = batch(0, 3)
    damaged[-1] ^= 1
    peer = ScriptedPeer(answer(data(found=bytes(damaged), high_watermark=3)), answer(session_id=0))
    follower = Follower(peer)
    follower.follow()
    await until(lambda: len(peer.asked) == 3)

    assert follower.log().log_end_offset == 0
    assert asked_at(peer.fetches[2]).fetch_offset == 0
    assert follower.pool.failed == set()
    await follower.pool.close()


@in_virtual_time
async def test_batches_of_a_later_leader_do_not_make_the_fetcher_spin() -> None:
    sent = answer(data(found=bytes(batch(0, 3, epoch=5)), high_watermark=3))
    peer = ScriptedPeer(*[sent, answer(session_id=0)] * 3)
    follower = Follower(peer)
    follower.follow()

    times = await times_of_fetches(peer, 5)

    assert times[4] > 1900
    assert follower.log().log_end_offset == 0
    await follower.pool.close()


@in_virtual_time
async def test_an_answer_to_an_older_epoch_falls_on_nobody() -> None:
    peer = ScriptedPeer()
    follower = Follower(peer)
    follower.follow()
    await until(lambda: bool(peer.asked))

    def meanwhile_another_epoch(*_: Any) -> FetchResponse:
        follower.follow(epoch=2)
        return answer(data(found=bytes(batch(0, 3)), high_watermark=3))

    peer.script.append(meanwhile_another_epoch)
    await follower.pool.close()
    peer = ScriptedPeer(meanwhile_another_epoch)
    follower = Follower(peer)
    follower.follow()
    await until(lambda: len(peer.asked) == 2)

    assert follower.log().log_end_offset == 0
    assert asked_at(peer.fetches[1]).current_leader_epoch == 2
    await follower.pool.close()


@in_virtual_time
async def test_nothing_is_appended_after_unfollow_returned_nor_to_a_leader() -> None:
    def meanwhile_a_leader(*_: Any) -> FetchResponse:
        follower.lead(epoch=2)
        return answer(data(found=bytes(batch(0, 3)), high_watermark=3))

    peer = ScriptedPeer(meanwhile_a_leader)
    follower = Follower(peer)
    follower.follow()
    await until(lambda: not follower.pool.fetchers)

    assert follower.log().log_end_offset == 0
    assert follower.partition().is_leader
    await until(lambda: peer.closed)


@in_virtual_time
async def test_a_leader_that_nobody_unfollowed_is_not_appended_to_either() -> None:
    def meanwhile_a_leader(*_: Any) -> FetchResponse:
        follower.partition().is_leader = True
        return answer(data(found=bytes(batch(0, 3)), high_watermark=3))

    peer = ScriptedPeer(meanwhile_a_leader)
    follower = Follower(peer)
    follower.follow()
    await until(lambda: not follower.pool.fetchers)

    assert follower.log().log_end_offset == 0


@in_virtual_time
async def test_a_lost_connection_is_tried_again_soon_then_less_often_down_to_the_backoff_and_begins_a_new_session() -> None:
    peer = ScriptedPeer(answer(data()), *[PeerUnavailable("refused") for _ in range(8)], answer(data()), PeerUnavailable("reset"))
    follower = Follower(peer)
    follower.follow()

    times = await times_of_fetches(peer, 12)

    gaps = [round(after - before, -1) for before, after in pairwise(times)]
    assert gaps == [0, 20, 40, 80, 160, 320, 640, 1000, 1000, 0, 20]
    assert (peer.fetches[3].session_id, peer.fetches[3].session_epoch) == (7, 0)
    await follower.pool.close()


@in_virtual_time
async def test_what_is_followed_anew_does_not_wait_for_the_backoff_of_others() -> None:
    peer = ScriptedPeer(*[PeerUnavailable("refused") for _ in range(6)], answer(data(1)))
    follower = Follower(peer)
    follower.follow(0)
    await until(lambda: len(peer.asked) == 6)
    await asyncio.sleep(0.1)
    follower.follow(1)

    times = await times_of_fetches(peer, 1)

    assert times[0] < 50
    assert asked_at(peer.fetches[6], 1) is not None
    assert asked_at(peer.fetches[6], 0) is None
    await follower.pool.close()


@in_virtual_time
async def test_a_leader_that_refuses_every_session_is_asked_once_per_backoff() -> None:
    peer = ScriptedPeer(*[FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH) for _ in range(9)])
    follower = Follower(peer)
    follower.follow()

    times = await times_of_fetches(peer, 4)

    assert times[1] < 100
    assert times[2] > 900
    assert times[3] > 1900
    await follower.pool.close()


@in_virtual_time
async def test_a_full_disk_fails_the_partition_and_takes_the_directory_offline() -> None:
    disk = FaultyFileSystem(MemoryFileSystem())
    peer = ScriptedPeer(answer(data(found=bytes(batch(0, 3)), high_watermark=3)))
    follower = Follower(peer, filesystem=disk)
    follower.follow()
    disk.fails_if = lambda name, path: name in ("write", "pwrite") and path.endswith(".log")
    await until(lambda: bool(follower.failed_dirs))

    assert follower.failed_dirs == ["/data"]
    assert T0 in follower.manager.offline
    assert follower.pool.followed(T0) is None
    await until(lambda: not follower.pool.fetchers)


@in_virtual_time
async def test_a_large_answer_lets_others_run_between_partitions() -> None:
    big = bytes(batch(0, 1, value_bytes=1 << 20))
    peer = ScriptedPeer(answer(*(data(index, found=big, high_watermark=0) for index in range(4))))
    follower = Follower(peer)
    follower.follow(0, 1, 2, 3)
    ends: set[tuple[int, ...]] = set()
    while len(peer.asked) < 2:
        ends.add(tuple(follower.log(index).log_end_offset for index in range(4)))
        await asyncio.sleep(0)

    assert len(ends) >= 4
    await follower.pool.close()


@in_virtual_time
async def test_what_nobody_foresaw_is_said_and_fetching_goes_on() -> None:
    peer = ScriptedPeer(ValueError("a fault"), answer(data(found=bytes(batch(0, 1)), high_watermark=0)))
    follower = Follower(peer)
    follower.follow()
    await until(lambda: follower.log().log_end_offset == 1)

    assert follower.pool.dead_fetchers == 0
    await follower.pool.close()
