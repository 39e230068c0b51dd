"""A follower whose next records are in the remote store only begins behind them, while its other partitions go on."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse
from ottla.protocol.messages.offset_for_leader_epoch import EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.follower import remote_start
from ottla.replication.leader.partition import Partition
from ottla.replication.remote.aux_state import MOST_AT_ONCE, AuxStates
from ottla.replication.remote.counters import RemoteCounters
from ottla.storage.producers.snapshot import encode_snapshot
from ottla.storage.producers.state import ProducerState
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, SegmentUpdate, TopicIdPartition
from ottla.storage.remote.memory_budget import MemoryBudget
from ottla.storage.remote.ports import IndexKind, RemoteStoreError
from tests.support.filesystems import MemoryFileSystem
from tests.support.followers import Follower, Script, ScriptedPeer, answer, asked_at, batch, data, failed, until
from tests.support.logs import T0
from tests.support.remote_fakes import MemoryMetadata, MemoryStore, Parts, SlowBackground
from tests.support.remote_segments import an_entry
from tests.support.replicas import TOPIC, TOPIC_ID
from tests.support.virtual_time import in_virtual_time

MOVED = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
ORDERS = TopicIdPartition(TOPIC_ID, TOPIC, 0)
STARTS = {-4: (10, 1), -2: (3, 0), -1: (12, 1)}
"""The leader's answers to ListOffsets: offset and leader epoch."""


def producers() -> bytes:
    """A snapshot with producer 7, whose last record was at offset 9."""
    state = ProducerState(T0)
    state.on_append(7, 0, 4, 9, 9, 1_700_000_000_000, False)
    return encode_snapshot(state.producers.values())


class Remote:
    """A store with a segment of the offsets 0 to 9, of which the first five are of epoch 0."""

    def __init__(self) -> None:
        self.store = MemoryStore(MemoryFileSystem())
        self.metadata = MemoryMetadata()
        self.counters = RemoteCounters()
        self.told: list[Partition] = []
        """Partitions of which a follower has learned that they have a remote part."""
        self.metadata.follow(ORDERS)

    async def fill(self) -> None:
        entry = an_entry(0, 9, {0: 0, 1: 5}, partition=ORDERS, state=SegmentState.COPY_SEGMENT_STARTED)
        await self.metadata.add(entry)
        await self.metadata.update(SegmentUpdate(SegmentId(ORDERS, entry.id.uuid), 1, 0, SegmentState.COPY_SEGMENT_FINISHED))
        parts = self.store.parts[entry.id.uuid] = Parts()
        parts.indexes = {IndexKind.LEADER_EPOCH: b"0\n2\n0 0\n1 5\n", IndexKind.PRODUCER_SNAPSHOT: producers()}

    def states(self) -> AuxStates:
        return AuxStates(self.store, self.metadata, SlowBackground(), self.counters, self.told.append, MemoryBudget(64 << 20))


def next_fetch(peer: ScriptedPeer, offset: int, index: int = 0) -> Callable[[], bool]:
    """Whether the last fetch asks for the partition from that offset on."""

    def is_sent() -> bool:
        asked = asked_at(peer.fetches[-1], index) if peer.fetches else None
        return len(peer.fetches) > 1 and asked is not None and asked.fetch_offset == offset

    return is_sent


def a_follower(peer: ScriptedPeer, remote: Remote, *, enable: str = "true") -> Follower:
    topic_config = {"remote.storage.enable": enable}
    return Follower(peer, topic_config=topic_config, aux_states=remote.states(), remote_log_storage_system_enable="true")


def offsets(api_key: ApiKey, version: int, request: Any) -> ListOffsetsResponse:
    """What the leader says about its offsets."""
    (topic,) = request.topics
    (partition,) = topic.partitions
    offset, epoch = STARTS[partition.timestamp]
    found = ListOffsetsPartitionResponse(partition_index=0, error_code=0, timestamp=-1, offset=offset, leader_epoch=epoch)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[found])])


def end_of_epoch(epoch: int, end_offset: int, *, asked: int = 0) -> Script:
    """What the leader says about the end of the epoch before, or of another one that is asked for."""

    def answered(api_key: ApiKey, version: int, request: Any) -> OffsetForLeaderEpochResponse:
        assert request.topics[0].partitions[0].leader_epoch == asked
        found = EpochEndOffset(error_code=0, partition=0, leader_epoch=epoch, end_offset=end_offset)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=TOPIC, partitions=[found])])

    return answered


async def tried_again(follower: Follower, peer: ScriptedPeer) -> None:
    """Waits until the partition failed, and is fetched again; meanwhile the leader answers a fetch of nothing."""
    (fetcher,) = follower.pool.fetchers.values()
    await until(lambda: bool(fetcher.delayed))
    peer.script.append(answer())
    await until(next_fetch(peer, 0))


LATEST_EPOCH = end_of_epoch(1, 12, asked=1)
QUESTIONS = [offsets, end_of_epoch(0, 5), LATEST_EPOCH, offsets, offsets]


@in_virtual_time
async def test_the_log_begins_behind_the_remote_records_with_what_they_have_left() -> None:
    remote = Remote()
    await remote.fill()
    peer = ScriptedPeer(answer(failed(MOVED)), *QUESTIONS)
    follower = a_follower(peer, remote)
    follower.follow()
    await until(next_fetch(peer, 10))

    log = follower.log()
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (3, 10, 10)
    assert log.leader_epochs.entries == [(0, 3), (1, 5)]
    assert [each.producer_id for each in log.active_producers()] == [7]
    assert log.context.filesystem.read_file(log.producer_state.snapshot_path(10)) == producers()
    asked = asked_at(peer.fetches[-1])
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.log_start_offset) == (10, 1, 3)
    assert follower.followed().lag == 2
    peer.script.append(answer(data(found=batch(10, 2), high_watermark=12, log_start_offset=3)))
    await until(lambda: log.log_end_offset == 12)
    assert remote.counters.of(TOPIC).build_aux_state_requests == 1
    assert remote.counters.of(TOPIC).build_aux_state_errors == 0
    await follower.pool.close()


@in_virtual_time
async def test_a_new_replica_waits_for_the_metadata_and_does_not_begin_again() -> None:
    remote = Remote()
    await remote.fill()
    remote.metadata.ready = False
    peer = ScriptedPeer(answer(failed(MOVED)), *QUESTIONS)
    follower = a_follower(peer, remote)
    follower.follow()
    stats = remote.counters.of(TOPIC)
    await until(lambda: stats.build_aux_state_requests == 1)
    await asyncio.sleep(10)  # longer than any backoff
    (fetcher,) = follower.pool.fetchers.values()
    assert not fetcher.delayed
    remote.metadata.ready = True
    await until(next_fetch(peer, 10))
    assert stats.build_aux_state_requests == 1
    assert remote.metadata.refused == 0
    await follower.pool.close()


@in_virtual_time
async def test_logs_that_wait_for_their_metadata_keep_none_of_the_others_waiting() -> None:
    remote = Remote()
    await remote.fill()
    remote.metadata.ready = False
    states = remote.states()
    log = SimpleNamespace(topic_id=TOPIC_ID, topic_partition=TopicPartition(TOPIC, 0))
    followed: Any = SimpleNamespace(topic_partition=log.topic_partition, partition=SimpleNamespace(log=log))
    fetcher: Any = SimpleNamespace(is_current=lambda _: False)
    waiting = [asyncio.ensure_future(remote_start._begin(fetcher, followed, states, [(0, 0), (1, 5)], 9, 3, 12)) for _ in range(100)]
    await until(lambda: remote.counters.of(TOPIC).build_aux_state_requests == 100)
    assert not states._slots.locked()
    remote.metadata.ready = True
    await asyncio.gather(*waiting)


@in_virtual_time
async def test_a_topic_that_has_lost_its_remote_storage_is_followed_as_before() -> None:
    remote = Remote()
    await remote.fill()
    peer = ScriptedPeer(answer(failed(MOVED)), *QUESTIONS)
    follower = a_follower(peer, remote, enable="false")
    follower.follow()
    await until(next_fetch(peer, 10))
    log = follower.log()
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (3, 10, 10)
    assert log.tier is not None
    assert [partition.log for partition in remote.told] == [log]
    await follower.pool.close()


@in_virtual_time
async def test_other_partitions_go_on_while_the_store_is_slow() -> None:
    remote = Remote()
    await remote.fill()
    asked, released = asyncio.Event(), asyncio.Event()

    async def wait(call: str, entry: SegmentEntry) -> None:
        asked.set()
        await released.wait()

    remote.store.before = wait
    peer = ScriptedPeer(answer(failed(MOVED), data(1)), *QUESTIONS)
    follower = a_follower(peer, remote)
    follower.follow(0, 1)
    await asked.wait()
    peer.script.append(answer(data(1, batch(0, 3), high_watermark=3)))
    await until(lambda: follower.log(1).log_end_offset == 3)
    assert follower.log().log_end_offset == 0
    assert asked_at(peer.fetches[-1], 0) is None
    released.set()
    await until(lambda: follower.log().log_end_offset == 10)
    await until(next_fetch(peer, 10))
    await follower.pool.close()


@pytest.mark.parametrize("case", ["no segment yet", "metadata not followed", "store down", "damaged epochs", "damaged producers"])
def test_what_is_not_there_is_tried_again(case: str) -> None:
    @in_virtual_time
    async def scenario() -> None:
        remote = Remote()
        if case != "no segment yet":
            await remote.fill()
        failures = 1

        async def fail(call: str, entry: SegmentEntry) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise RemoteStoreError("the store is down")

        if case == "metadata not followed":
            remote.metadata.unfollow(ORDERS)
        if case == "store down":
            remote.store.before = fail
        if case.startswith("damaged"):
            (parts,) = remote.store.parts.values()
            whole = dict(parts.indexes)
            parts.indexes[IndexKind.LEADER_EPOCH if case == "damaged epochs" else IndexKind.PRODUCER_SNAPSHOT] = b"0\n3\n0 0\n"
        peer = ScriptedPeer(answer(failed(MOVED)), *QUESTIONS)
        follower = a_follower(peer, remote)
        follower.follow()
        await tried_again(follower, peer)
        assert follower.log().log_end_offset == 0
        if case == "no segment yet":
            await remote.fill()
        remote.metadata.follow(ORDERS)
        if case.startswith("damaged"):
            parts.indexes = whole
        peer.script.extend([answer(failed(MOVED)), *QUESTIONS])
        await until(next_fetch(peer, 10))
        assert follower.log().log_end_offset == 10
        await follower.pool.close()

    scenario()


@in_virtual_time
async def test_a_partition_that_is_no_longer_followed_stays_as_it_is() -> None:
    remote = Remote()
    await remote.fill()
    asked = asyncio.Event()

    async def wait(call: str, entry: SegmentEntry) -> None:
        asked.set()
        await asyncio.Event().wait()

    remote.store.before = wait
    peer = ScriptedPeer(answer(failed(MOVED)), *QUESTIONS)
    follower = a_follower(peer, remote)
    follower.follow()
    await asked.wait()
    follower.lead(epoch=2)
    await asyncio.sleep(1)
    assert follower.log().log_end_offset == 0
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("remote start")]
    await follower.pool.close()


@in_virtual_time
async def test_a_leader_that_changes_while_the_log_begins_does_not_cost_its_producers() -> None:
    remote = Remote()
    await remote.fill()
    peer = ScriptedPeer(answer(failed(MOVED)), *QUESTIONS)
    follower = a_follower(peer, remote)
    follower.follow()
    log = follower.log()
    await until(lambda: log.truncations.current is not None)
    follower.follow(epoch=2)
    await until(lambda: log.truncations.current is None)
    assert (log.log_start_offset, log.log_end_offset) == (3, 10)
    assert [each.producer_id for each in log.active_producers()] == [7]
    assert log.producer_state.snapshot_offsets == [10]
    assert log.context.filesystem.read_file(log.producer_state.snapshot_path(10)) == producers()
    await follower.pool.close()


@in_virtual_time
async def test_a_broker_without_a_remote_store_waits() -> None:
    peer = ScriptedPeer(answer(failed(MOVED)))
    follower = Follower(peer)
    follower.follow()
    await tried_again(follower, peer)
    await follower.pool.close()


@in_virtual_time
async def test_the_epoch_before_the_local_log_is_that_which_the_leader_reports() -> None:
    remote = Remote()
    await remote.fill()
    peer = ScriptedPeer(answer(failed(MOVED)), offsets, end_of_epoch(0, 10), LATEST_EPOCH, end_of_epoch(0, 10), offsets, offsets)
    follower = a_follower(peer, remote)
    follower.follow()
    await tried_again(follower, peer)
    assert follower.log().log_end_offset == 0  # no segment has offset 9 in epoch 0
    assert remote.counters.of(TOPIC).build_aux_state_errors == 1
    await follower.pool.close()


# epochs of a copy that the unclean election has left, its last offset, and what the leader says about its epochs
LOST = [
    pytest.param({1: 5}, 11, [end_of_epoch(2, 30, asked=2), end_of_epoch(1, 11, asked=1)], id="longer than the epoch"),
    pytest.param({1: 5, 2: 10}, 11, [end_of_epoch(3, 30, asked=3), end_of_epoch(1, 10, asked=2)], id="goes on in an epoch that is lost"),
    pytest.param({1: 5}, 30, [end_of_epoch(1, 30, asked=1)], id="longer than the log"),
]


@pytest.mark.parametrize("has_other", [True, False])
@pytest.mark.parametrize(("epochs", "end", "answers"), LOST)
def test_a_copy_of_a_lost_history_is_none_of_the_leaders(epochs: dict[int, int], end: int, answers: list[Script], has_other: bool) -> None:
    @in_virtual_time
    async def scenario() -> None:
        remote = Remote()
        if has_other:
            await remote.fill()
        lost = an_entry(5, end, epochs, uuid=99, partition=ORDERS, state=SegmentState.COPY_SEGMENT_STARTED)
        await remote.metadata.add(lost)
        await remote.metadata.update(SegmentUpdate(SegmentId(ORDERS, lost.id.uuid), 1, 0, SegmentState.COPY_SEGMENT_FINISHED))
        parts = remote.store.parts[lost.id.uuid] = Parts()
        parts.indexes = {IndexKind.LEADER_EPOCH: b"0\n1\n1 5\n", IndexKind.PRODUCER_SNAPSHOT: producers()}
        peer = ScriptedPeer(answer(failed(MOVED)), offsets, end_of_epoch(0, 5), *answers, offsets, offsets)
        follower = a_follower(peer, remote)
        follower.follow(epoch=3 if len(epochs) > 1 else 2 if len(answers) > 1 else 1)
        if has_other:
            await until(next_fetch(peer, 10))
        else:
            await tried_again(follower, peer)
        assert follower.log().log_end_offset == (10 if has_other else 0)
        await follower.pool.close()

    scenario()


@in_virtual_time
async def test_few_logs_begin_at_once_although_a_lost_disk_had_thousands() -> None:
    """Their indexes are in memory meanwhile. Both of a log are read at once."""
    remote = Remote()
    await remote.fill()
    states = remote.states()
    gate, reading = asyncio.Event(), 0
    most: list[int] = []

    async def wait(call: str, entry: SegmentEntry) -> None:
        nonlocal reading
        reading += 1
        most.append(states._budget.used)
        await gate.wait()

    remote.store.before = wait
    log = SimpleNamespace(topic_id=TOPIC_ID, topic_partition=TopicPartition(TOPIC, 0))
    followed: Any = SimpleNamespace(topic_partition=log.topic_partition, partition=SimpleNamespace(log=log))
    fetcher: Any = SimpleNamespace(is_current=lambda _: False)
    epochs = [(0, 0), (1, 5)]
    beginning = [asyncio.ensure_future(remote_start._begin(fetcher, followed, states, epochs, 9, 3, 12)) for _ in range(100)]
    for _ in range(100):
        await asyncio.sleep(0)
    assert reading == 2 * MOST_AT_ONCE
    for each in beginning[:MOST_AT_ONCE]:
        each.cancel()  # their leader has changed
    await until(lambda: reading == 4 * MOST_AT_ONCE)
    gate.set()
    await asyncio.gather(*beginning, return_exceptions=True)
    assert reading == 2 * MOST_AT_ONCE + 4 * (100 - MOST_AT_ONCE)
    assert max(most) > 0
    assert states._budget.used == 0
