"""A leader removes from the remote store what retention, DeleteRecords, elections and crashes leave there, and nothing else."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from ottla.replication.remote import expiry
from ottla.replication.remote.copies import GRACE_SECONDS
from ottla.replication.remote.counters import RemotePartitionState
from ottla.replication.remote.leadership import Deposed
from ottla.replication.remote.positions import CopiesOf, find_log_start
from ottla.replication.remote.removals import CHECK_MS, MOST_APART_MS
from ottla.storage.log.retention import delete_old_segments
from ottla.storage.remote import choice
from ottla.storage.remote.choice import FOREIGN_COPY_LIMIT_MS
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, SegmentUpdate
from ottla.storage.remote.metadata import segment_cache
from ottla.storage.remote.ports import MetadataWriteFailed, RemoteStoreError, StoreClockApart
from tests.support.batches import a_batch
from tests.support.remote_fakes import Record
from tests.support.tiered_replicas import TIERED, TieredReplica

STARTED, FINISHED, DELETING, DELETED = SegmentState
SIZE = len(a_batch())
HOUR_MS = 3_600_000


def run(scenario: Coroutine[object, object, None]) -> None:
    asyncio.run(scenario)


async def copied(**config: str | int) -> TieredReplica:
    """Four segments of a record each in the store, an hour apart, and a fifth that is active."""
    replica = TieredReplica(**config)
    replica.lead()
    for _ in range(5):
        replica.produce(1)
        replica.clock.move(HOUR_MS)
    await replica.copy_all()
    return replica


def states_of(replica: TieredReplica, offset: int) -> list[SegmentState]:
    """The states of the segment from that offset that were published, in order."""
    (uuid,) = {each.id.uuid for each in replica.metadata.records if isinstance(each, SegmentEntry) and each.start_offset == offset}
    return [each.state for each in replica.metadata.records if each.id.uuid == uuid]


@pytest.mark.parametrize(
    ("config", "left", "log_start"),
    [
        ({}, [0, 1, 2, 3], 0),
        ({"retention_ms": 4 * HOUR_MS}, [2, 3], 2),
        ({"retention_bytes": 4 * SIZE}, [1, 2, 3], 1),
        ({"retention_bytes": 2 * SIZE}, [3], 3),
    ],
)
def test_retention_removes_the_oldest_segments_and_moves_the_log_start(config: dict[str, int], left: list[int], log_start: int) -> None:
    async def scenario() -> None:
        replica = await copied(**config)
        await replica.expiry.run()
        assert [start for start, _ in replica.ranges()] == left
        assert len(replica.store.parts) == len(left)
        assert replica.log.log_start_offset == log_start
        for offset in range(log_start):
            assert states_of(replica, offset) == [STARTED, FINISHED, DELETING, DELETED]

    run(scenario())


def test_a_leader_that_lost_the_epochs_of_its_remote_records_removes_nothing() -> None:
    async def scenario() -> None:
        replica = await copied(local_retention_ms=1)
        replica.log.truncations.truncate_fully_and_start_at(4, 0)
        replica.lead(1)
        replica.produce(1)
        assert replica.log.leader_epochs.entries == [(1, 4)]
        find_log_start(replica.log, CopiesOf(replica.metadata, TIERED))
        await replica.expiry.run()
        assert replica.log.log_start_offset == 0
        assert [start for start, _ in replica.ranges()] == [0, 1, 2, 3]

    run(scenario())


@pytest.mark.parametrize("removed", [[], [0], [0, 1]])
def test_a_log_without_the_start_that_it_had_begins_with_the_first_epoch_that_it_knows(removed: list[int]) -> None:
    """Its epochs went with the records before offset 2. If there still are copies of these, the epochs alone may have been lost."""

    async def scenario() -> None:
        replica = await copied(local_retention_ms=1)
        delete_old_segments(replica.log, replica.clock.now_ms())
        replica.log.increment_log_start_offset(2, "records were deleted by a client")
        for entry in replica.entries():
            if entry.start_offset in removed:
                await replica.metadata.update(SegmentUpdate(entry.id, 1, 0, DELETING))
        replica.log.close()
        replica.log = replica.partition.log = replica.open(log_start_offset=0)
        replica.log.update_high_watermark(replica.log.log_end_offset)
        assert (replica.log.log_start_offset, replica.log.leader_epochs.entries) == (0, [(0, 2)])
        replica.lead(1)
        assert find_log_start(replica.log, CopiesOf(replica.metadata, TIERED))
        assert replica.log.log_start_offset == (2 if removed == [0, 1] else 0)

    run(scenario())


def test_a_new_leader_does_not_look_at_all_finished_copies_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        replica = await copied(local_retention_ms=1)
        delete_old_segments(replica.log, replica.clock.now_ms())
        unpack = segment_cache.unpack
        unpacked: list[tuple[Any, ...]] = []

        def noted(*packed: Any) -> SegmentEntry:
            unpacked.append(packed)
            return unpack(*packed)

        monkeypatch.setattr(segment_cache, "unpack", noted)
        assert find_log_start(replica.log, CopiesOf(replica.metadata, TIERED))
        assert len(unpacked) == 1

    run(scenario())


@pytest.mark.parametrize("knows_the_watermark", [True, False])
def test_a_removal_that_a_former_leader_began_goes_on_behind_the_log_start(knows_the_watermark: bool) -> None:
    async def scenario() -> None:
        replica = await copied(local_retention_ms=1)
        delete_old_segments(replica.log, replica.clock.now_ms())
        replica.lead(1)
        await replica.expiry.run()
        first = next(entry for entry in replica.entries() if entry.start_offset == 0)
        await replica.metadata.update(SegmentUpdate(first.id, 2, 0, DELETING))  # arrives when this broker leads already
        starts: list[int] = []

        async def note(call: str, entry: SegmentEntry) -> None:
            starts.append(replica.log.log_start_offset)

        replica.store.before = note
        if not knows_the_watermark:
            replica.log.high_watermark = 0
        await replica.expiry.run()
        assert replica.log.log_start_offset == (1 if knows_the_watermark else 0)
        assert set(starts) == ({1} if knows_the_watermark else set()), "no object goes that readers ask for"
        replica.log.high_watermark = replica.log.log_end_offset
        await replica.expiry.run()
        assert [start for start, _ in replica.ranges()] == [1, 2, 3]
        assert not replica.ranges(DELETING)

    run(scenario())


@pytest.mark.parametrize("apart_ms", [-6 * 60_000, 6 * 60_000])
def test_nothing_is_removed_while_the_clocks_of_store_and_broker_are_apart(apart_ms: int) -> None:
    async def scenario() -> None:
        replica = await copied(retention_ms=4 * HOUR_MS)
        replica.store.clock_ms = replica.clock.now_ms() + apart_ms
        for _ in range(2):
            with pytest.raises(StoreClockApart, match="differ by 360 s"):
                await replica.expiry.run()
        assert [start for start, _ in replica.ranges()] == [0, 1, 2, 3]
        assert replica.log.log_start_offset == 0, "a log that begins later would have its copies removed by the right clock"
        replica.clock.move(CHECK_MS + 1)
        replica.store.clock_ms = replica.clock.now_ms() - MOST_APART_MS
        await replica.expiry.run()
        assert [start for start, _ in replica.ranges()] == [2, 3]

    run(scenario())


def test_nothing_is_removed_by_a_clock_that_was_set_since_the_last_comparison() -> None:
    async def scenario() -> None:
        replica = await copied(retention_ms=5 * HOUR_MS)
        replica.store.clock_ms = replica.clock.now_ms()
        await replica.expiry.run()
        assert [start for start, _ in replica.ranges()] == [1, 2, 3]
        replica.clock.set_back(-2 * HOUR_MS)
        with pytest.raises(StoreClockApart, match="differ by 7200 s"):
            await replica.expiry.run()
        assert [start for start, _ in replica.ranges()] == [1, 2, 3]
        assert replica.log.log_start_offset == 1

    run(scenario())


def test_deleted_records_are_removed_from_the_store() -> None:
    async def scenario() -> None:
        replica = await copied()
        replica.log.increment_log_start_offset(3, "records were deleted by a client")
        await replica.expiry.run()
        assert replica.ranges() == [(3, 3)]
        assert replica.log.log_start_offset == 3

    run(scenario())


@pytest.mark.parametrize("step", ["delete", "answer to the deletion"])
def test_an_interrupted_removal_is_done_again_by_the_next_leader(step: str) -> None:
    async def scenario() -> None:
        replica = await copied(retention_ms=5 * HOUR_MS)

        async def fail(call: str, entry: SegmentEntry) -> None:
            if call == step:
                raise RemoteStoreError("the store is down")

        replica.store.before = fail
        with pytest.raises(RemoteStoreError):
            await replica.expiry.run()
        assert replica.ranges(DELETING) == [(0, 0)]
        assert replica.log.log_start_offset == 1
        replica.store.before = TieredReplica().store.before
        replica.topic_config["retention.ms"] = "-1"  # what retention says now does not matter
        replica.log.update_config(replica.open().config)
        replica.lead(1)
        await replica.expiry.run()
        assert [start for start, _ in replica.ranges()] == [1, 2, 3]
        assert len(replica.store.parts) == 3
        assert not replica.ranges(DELETING)

    run(scenario())


def test_no_object_is_deleted_before_the_deletion_is_applied() -> None:
    async def scenario() -> None:
        replica = await copied(retention_ms=5 * HOUR_MS)

        async def fail(record: Record) -> None:
            if record.state == DELETING:
                raise MetadataWriteFailed("no answer")

        replica.metadata.before = fail
        with pytest.raises(MetadataWriteFailed):
            await replica.expiry.run()
        assert len(replica.store.parts) == 4
        assert ("delete", 0) not in replica.store.calls

    run(scenario())


@pytest.mark.parametrize("step", ["delete", "answer to the deletion"])
def test_a_deposed_leader_ends_at_the_next_step(step: str) -> None:
    async def scenario() -> None:
        replica = await copied(retention_ms=0)

        async def depose(call: str, entry: SegmentEntry) -> None:
            if call == step:
                replica.partition.leader_epoch += 1

        replica.store.before = depose
        with pytest.raises(Deposed):
            await replica.expiry.run()
        assert states_of(replica, 0) == [STARTED, FINISHED, DELETING]
        assert states_of(replica, 1) == [STARTED, FINISHED]

    run(scenario())


async def without_all_its_replicas(**config: str | int) -> TieredReplica:
    """A leader of a new log, whose former one is in the store."""
    replica = await copied(**config)
    replica.log.leader_epochs.clear()
    replica.log.latest_epoch = None
    replica.lead(7)
    replica.produce(2)
    return replica


def test_a_leader_of_a_new_log_keeps_the_segments_of_the_lost_one_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        replica = await without_all_its_replicas()
        before = replica.ranges()
        state = replica.counters.partitions[replica.log.topic_partition] = RemotePartitionState()
        for _ in range(2):
            await replica.expiry.run()
        assert replica.ranges() == before == [(0, 0), (1, 1), (2, 2), (3, 3)]
        assert len(replica.store.parts) == 4
        assert (state.lost_log_segments, state.lost_log_bytes) == (4, 4 * SIZE)

    run(scenario())
    (line,) = [each.message for each in caplog.records if "was lost" in each.message]
    assert "4 segments, with offsets up to 3" in line


def test_segments_of_a_lost_log_go_by_their_age() -> None:
    async def scenario() -> None:
        replica = await without_all_its_replicas(retention_ms=4 * HOUR_MS)
        await replica.expiry.run()
        assert replica.ranges() == [(2, 2), (3, 3)], "the others are older"
        replica.clock.move(2 * HOUR_MS)
        await replica.expiry.run()
        assert not replica.ranges()
        assert not replica.store.parts

    run(scenario())


def test_segments_of_a_lost_log_go_when_the_log_begins_behind_them() -> None:
    async def scenario() -> None:
        replica = await without_all_its_replicas()
        replica.log.increment_log_start_offset(2, "a test")
        await replica.expiry.run()
        assert replica.ranges() == [(2, 2), (3, 3)]
        assert replica.log.log_start_offset == 2

    run(scenario())


async def expire_while_a_copy_ends(
    monkeypatch: pytest.MonkeyPatch, replica: TieredReplica, looking: ModuleType, is_held: Callable[[str, SegmentEntry], bool]
) -> None:
    """Runs the expiry while a call to the store is held. The copy ends when the module `looking` pauses."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def wait(call: str, entry: SegmentEntry) -> None:
        if is_held(call, entry):
            begun.set()
            await may_end.wait()

    replica.store.before = wait
    copying = asyncio.create_task(replica.copy_all())
    await begun.wait()

    async def pause() -> None:
        may_end.set()
        await copying

    monkeypatch.setattr(looking, "pause", pause)
    await replica.expiry.run()


def test_a_copy_that_is_finished_while_bytes_are_counted_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = TieredReplica(retention_bytes=5 * SIZE)
    replica.lead(0)
    replica.produce(2)
    replica.lead(1)
    replica.produce(3)
    run(expire_while_a_copy_ends(monkeypatch, replica, choice, lambda _, entry: entry.start_offset == 3))
    assert [start for start, _ in replica.ranges()] == [0, 1, 2, 3]


def test_a_copy_that_is_finished_while_abandoned_ones_are_looked_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = TieredReplica()
    replica.lead()
    replica.produce(3)

    def is_held(call: str, entry: SegmentEntry) -> bool:
        return call == "answer to the copy" and entry.start_offset == 1

    run(expire_while_a_copy_ends(monkeypatch, replica, expiry, is_held))
    assert replica.ranges() == [(0, 0), (1, 1)]
    assert len(replica.store.parts) == 2


def test_a_copy_that_a_crash_interrupted_is_removed() -> None:
    async def scenario() -> None:
        replica = await copied()
        first = replica.entries()[0]
        mine = replace(first, id=SegmentId(TIERED, b"\xf1" * 16), state=STARTED)
        other = replace(mine, id=SegmentId(TIERED, b"\xf2" * 16), broker_id=2, event_timestamp_ms=replica.clock.now_ms())
        for entry in (mine, other):
            await replica.metadata.add(entry)
            replica.store.parts[entry.id.uuid] = replica.store.parts[first.id.uuid]
        await replica.expiry.run()
        assert replica.ranges(STARTED) == [(0, 0)]
        assert other.id.uuid in replica.store.parts
        replica.clock.move(FOREIGN_COPY_LIMIT_MS + 1)
        await replica.expiry.run()
        assert not replica.ranges(STARTED)
        assert len(replica.store.parts) == 4

    run(scenario())


def test_a_copy_in_progress_is_left_alone_and_so_is_one_that_has_just_ended() -> None:
    async def scenario() -> None:
        replica = await copied()
        busy = asyncio.Event()

        async def wait(call: str, entry: SegmentEntry) -> None:
            busy.set()
            await asyncio.Event().wait()

        replica.store.before = wait
        replica.produce(1)
        task = asyncio.create_task(replica.copy_all())
        await busy.wait()
        await replica.expiry.run()
        assert replica.ranges(STARTED) == [(4, 4)]
        task.cancel()
        assert replica.copier is not None
        replica.copier.stop()
        await replica.expiry.run()  # a thread may still write an object
        assert replica.ranges(STARTED) == [(4, 4)]
        assert GRACE_SECONDS > 0
        replica.services.being_copied.clear()
        replica.store.before = TieredReplica().store.before
        await replica.expiry.run()
        assert replica.ranges(STARTED) == [(4, 4)], "no other copy has its records yet"
        await replica.copy_all()
        await replica.expiry.run()
        assert not replica.ranges(STARTED)
        assert len(replica.store.parts) == 5

    run(scenario())


def test_a_removal_of_what_another_broker_removed_is_done() -> None:
    async def scenario() -> None:
        replica = await copied(retention_ms=5 * HOUR_MS)
        entry = replica.entries()[0]

        async def overtake(record: Record) -> None:
            replica.metadata.before = TieredReplica().metadata.before
            await replica.metadata.update(SegmentUpdate(entry.id, 2, 0, DELETING))
            await replica.metadata.update(SegmentUpdate(entry.id, 2, 0, DELETED))

        replica.metadata.before = overtake
        with pytest.raises(MetadataWriteFailed):  # the record that came too late was refused
            await replica.expiry.run()
        await replica.expiry.run()
        assert [start for start, _ in replica.ranges()] == [1, 2, 3]

    run(scenario())


def test_what_is_in_the_store_is_counted() -> None:
    async def scenario() -> None:
        replica = await copied(retention_bytes=3 * SIZE)
        state = replica.counters.partitions[replica.log.topic_partition] = RemotePartitionState()
        await replica.expiry.run()
        assert (state.log_size_bytes, state.metadata_count, state.delete_lag_segments) == (4 * SIZE, 2, 0)
        assert replica.counters.of("topic").delete_requests == 2

    run(scenario())
