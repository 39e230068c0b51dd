"""A leader copies its closed segments, each once, under one uuid, whatever fails."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace

import pytest

from ottla.replication.remote import copies
from ottla.replication.remote.copies import CustomMetadataTooLarge
from ottla.replication.remote.counters import RemotePartitionState
from ottla.replication.remote.leadership import Deposed
from ottla.replication.remote.positions import CopiesOf, refresh
from ottla.storage.log.segment_copies import describe_segment
from ottla.storage.producers.snapshot import decode_snapshot
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, SegmentUpdate
from ottla.storage.remote.ports import IndexKind, MetadataWriteFailed, RemoteStoreError
from ottla.storage.segment.cold_lookups import ColdRead
from tests.support.batches import a_batch
from tests.support.cold_files import ColdFileSystem
from tests.support.logs import append
from tests.support.remote_fakes import MemoryStore, Record
from tests.support.tiered_replicas import TIERED, TieredReplica

STARTED, FINISHED, DELETING, _ = SegmentState


def run(scenario: Coroutine[object, object, None]) -> None:
    asyncio.run(scenario)


def a_leader(records: int = 4, **config: str | int) -> TieredReplica:
    replica = TieredReplica(**config)
    replica.lead()
    replica.produce(records)
    return replica


def test_closed_segments_are_copied_oldest_first() -> None:
    replica = a_leader()

    async def scenario() -> None:
        await replica.copy_all()
        assert replica.ranges() == [(0, 0), (1, 1), (2, 2)]
        assert replica.store.calls == [("copy", 0), ("copy", 1), ("copy", 2)]
        assert replica.log.tier is not None
        assert replica.log.tier.copied == (2, 0)
        for entry, segment in zip(replica.entries(), replica.log.segments, strict=False):
            assert replica.store.parts[entry.id.uuid].log == replica.filesystem.read_file(segment.path)
            assert (entry.size, entry.max_timestamp_ms) == (segment.size, segment.largest_timestamp)
            assert dict(entry.leader_epochs) == {0: segment.base_offset}
        await replica.copy_all()
        assert len(replica.store.calls) == 3

    run(scenario())


def test_nothing_beyond_the_last_stable_offset_is_copied() -> None:
    replica = a_leader(2)
    append(replica.log, a_batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    replica.produce(3)

    async def scenario() -> None:
        await replica.copy_all()
        assert replica.ranges() == [(0, 0), (1, 1)]

    run(scenario())


def test_a_copy_has_the_leader_epochs_of_the_log_up_to_its_end() -> None:
    replica = TieredReplica(segment_batches=2)
    replica.lead(0)
    replica.produce(3)
    replica.lead(4)
    replica.produce(3)

    async def scenario() -> None:
        await replica.copy_all()
        first, second = replica.entries()
        assert dict(second.leader_epochs) == {0: 2, 4: 3}
        assert replica.store.parts[first.id.uuid].indexes[IndexKind.LEADER_EPOCH] == b"0\n1\n0 0\n"
        assert replica.store.parts[second.id.uuid].indexes[IndexKind.LEADER_EPOCH] == b"0\n2\n0 0\n4 3\n"

    run(scenario())


@pytest.mark.parametrize("has_snapshots", [True, False])
def test_a_copy_has_the_producers_at_its_end_even_if_their_snapshot_is_missing(has_snapshots: bool) -> None:
    replica = TieredReplica(segment_batches=2)
    replica.lead()
    for sequence in range(5):
        append(replica.log, a_batch(producer_id=7, producer_epoch=1, base_sequence=sequence))
    replica.log.update_high_watermark(replica.log.log_end_offset)
    if not has_snapshots:
        for offset in replica.log.producer_state.snapshot_offsets:
            replica.log.producer_state.delete_snapshot(offset)

    async def scenario() -> None:
        await replica.copy_all()
        last = []
        for entry in replica.entries():
            snapshot = replica.store.parts[entry.id.uuid].indexes[IndexKind.PRODUCER_SNAPSHOT]
            last += [(each.producer_id, each.batches[-1][0], each.batches[-1][1]) for each in decode_snapshot(snapshot, "")]
        assert last == [(7, 1, 1), (7, 3, 3)]

    run(scenario())


def test_a_segment_that_is_not_in_the_page_cache_is_read_by_a_thread() -> None:
    filesystem = ColdFileSystem()
    TieredReplica(filesystem).produce(3)
    replica = TieredReplica(filesystem)
    filesystem.cached = {}
    replica.log = replica.partition.log = replica.open()
    for segment in replica.log.segments:
        segment.release()
    replica.lead()
    replica.log.update_high_watermark(3)

    async def scenario() -> None:
        assert replica.copier is not None
        refresh(replica.log, CopiesOf(replica.metadata, TIERED))
        with pytest.raises(ColdRead):
            describe_segment(replica.log, 0, 1)
        assert await replica.copier.copy_next()
        assert replica.ranges() == [(0, 0)]

    run(scenario())


@pytest.mark.parametrize("step", ["copy", "copy of the records", "answer to the copy"])
def test_a_failed_copy_is_repeated_under_the_same_uuid(step: str) -> None:
    replica = a_leader(2)
    failures = 3

    async def fail(call: str, entry: SegmentEntry) -> None:
        nonlocal failures
        if call == step and failures:
            failures -= 1
            raise RemoteStoreError("the store is down")

    replica.store.before = fail

    async def scenario() -> None:
        for _ in range(3):
            with pytest.raises(RemoteStoreError):
                await replica.copy_all()
            assert replica.log.tier is not None
            assert replica.log.tier.copied.offset == -1
        await replica.copy_all()
        assert replica.ranges() == [(0, 0)]
        assert len(replica.metadata.records) == 2  # it began once, and ended
        assert len(replica.store.parts) == 1
        stats = replica.counters.of("topic")
        assert (stats.copy_requests, stats.copy_errors, stats.copy_bytes) == (4, 3, replica.log.segments.first.size)

    run(scenario())


def test_a_copy_whose_leader_epochs_have_changed_since_it_failed_is_made_anew() -> None:
    replica = a_leader(1)
    replica.lead(1)
    replica.produce(2)

    async def fail(call: str, entry: SegmentEntry) -> None:
        if call == "answer to the copy" and entry.start_offset == 1:
            raise RemoteStoreError("the answer is lost")

    async def scenario() -> None:
        replica.store.before = fail
        with pytest.raises(RemoteStoreError):
            await replica.copy_all()
        (begun,) = (entry.id.uuid for entry in replica.entries() if entry.state is STARTED)
        before = replica.store.parts[begun].indexes[IndexKind.LEADER_EPOCH]
        replica.log.increment_log_start_offset(1, "records are deleted")
        replica.store.before = MemoryStore(replica.filesystem).before
        await replica.copy_all()

        finished = next(entry for entry in replica.entries() if entry.state is FINISHED and entry.start_offset == 1)
        assert finished.id.uuid != begun
        assert replica.store.parts[begun].indexes[IndexKind.LEADER_EPOCH] == before  # never written with another content
        assert replica.store.parts[finished.id.uuid].indexes[IndexKind.LEADER_EPOCH] != before

    run(scenario())


def test_a_failed_copy_of_a_segment_that_is_copied_otherwise_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "GRACE_SECONDS", 0.0)
    replica = a_leader(2)

    async def fail(call: str, entry: SegmentEntry) -> None:
        raise RemoteStoreError("the store is down")

    async def scenario() -> None:
        replica.store.before = fail
        with pytest.raises(RemoteStoreError):
            await replica.copy_all()
        (begun,) = replica.entries()
        other = replace(begun, id=SegmentId(TIERED, b"another copy 123"), broker_id=2)
        await replica.metadata.add(other)
        await replica.metadata.update(SegmentUpdate(other.id, 2, 0, FINISHED, None))
        await replica.copy_all()
        for _ in range(3):
            await asyncio.sleep(0)  # for the timer
        assert not replica.services.being_copied  # so that its entry and its objects are removed

    run(scenario())


@pytest.mark.parametrize("is_applied", [True, False])
@pytest.mark.parametrize("state", [STARTED, FINISHED])
def test_a_write_without_an_answer_counts_if_it_was_applied(state: SegmentState, is_applied: bool) -> None:
    replica = a_leader(2)
    failures = 1

    async def fail(record: Record) -> None:
        nonlocal failures
        if record.state == state and failures:
            failures -= 1
            raise MetadataWriteFailed("no answer")

    if is_applied:
        replica.metadata.after = fail
    else:
        replica.metadata.before = fail

    async def scenario() -> None:
        try:
            await replica.copy_all()
        except MetadataWriteFailed:
            await replica.copy_all()
        assert replica.ranges() == [(0, 0)]
        assert len(replica.entries()) == len(replica.store.parts) == 1
        assert replica.log.tier is not None
        assert replica.log.tier.copied == (0, 0)

    run(scenario())


def test_a_copy_that_another_broker_began_to_remove_is_made_anew() -> None:
    replica = a_leader(2)

    async def remove(call: str, entry: SegmentEntry) -> None:
        if call == "answer to the copy" and len(replica.metadata.records) == 1:
            await replica.metadata.update(SegmentUpdate(entry.id, 2, 0, DELETING))

    replica.store.before = remove

    async def scenario() -> None:
        with pytest.raises(MetadataWriteFailed):
            await replica.copy_all()
        assert replica.log.tier is not None
        assert replica.log.tier.copied.offset == -1
        await replica.copy_all()
        assert replica.ranges() == [(0, 0)]
        assert replica.ranges(DELETING) == [(0, 0)]

    run(scenario())


@pytest.mark.parametrize("step", ["copy", "copy of the records", "answer to the copy"])
def test_a_deposed_leader_publishes_nothing_more(step: str) -> None:
    replica = a_leader(2)

    async def depose(call: str, entry: SegmentEntry) -> None:
        if call == step:
            replica.partition.leader_epoch += 1

    replica.store.before = depose

    async def scenario() -> None:
        with pytest.raises(Deposed):
            await replica.copy_all()
        assert replica.ranges(STARTED) == [(0, 0)]
        assert len(replica.metadata.records) == 1

    run(scenario())


def test_too_much_custom_metadata_ends_the_copies_of_this_epoch() -> None:
    replica = a_leader(2)
    replica.store.custom = bytes(129)

    async def scenario() -> None:
        with pytest.raises(CustomMetadataTooLarge):
            await replica.copy_all()
        assert not replica.store.parts
        assert not replica.ranges()
        replica.store.custom = bytes(128)
        await replica.copy_all()
        (entry,) = replica.entries()
        assert entry.custom == bytes(128)

    run(scenario())


def test_a_topic_that_lost_its_remote_storage_is_copied_no_more() -> None:
    replica = a_leader(2)

    async def scenario() -> None:
        await replica.copy_all()
        replica.topic_config["remote.storage.enable"] = "false"
        replica.log.update_config(replica.open().config)
        replica.produce(3)
        await replica.copy_all()
        assert replica.ranges() == [(0, 0)]
        assert replica.metadata.find(TIERED, 0, 0) is not None

    run(scenario())


def test_the_rest_to_copy_is_counted() -> None:
    replica = a_leader(4)

    async def scenario() -> None:
        lag = replica.counters.partitions[replica.log.topic_partition] = RemotePartitionState()
        assert replica.copier is not None
        await replica.copier.copy_next()
        assert (lag.copy_lag_segments, lag.copy_lag_bytes) == (2, 2 * replica.log.segments.first.size)
        await replica.copy_all()
        assert (lag.copy_lag_segments, lag.copy_lag_bytes) == (0, 0)

    run(scenario())


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_copy_takes_memory_for_all_its_parts(is_broken: bool) -> None:
    replica = a_leader(3)
    budget, store = replica.services.budget, replica.store
    used: list[int] = []

    async def look(call: str, entry: SegmentEntry) -> None:
        used.append(budget.used)
        if is_broken:
            raise RemoteStoreError("broken")

    async def scenario() -> None:
        store.before = look
        if is_broken:
            with pytest.raises(RemoteStoreError, match="broken"):
                await replica.copy_all()
        else:
            await replica.copy_all()
        assert used
        assert all(each > store.copy_bytes for each in used), "the producer snapshot is in memory, too"
        assert budget.used == 0

    run(scenario())


def test_a_copy_that_waits_for_memory_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = a_leader(3)
    budget = replica.services.budget
    reads: list[str] = []
    read_file = replica.filesystem.read_file
    monkeypatch.setattr(replica.filesystem, "read_file", lambda path: reads.append(path) or read_file(path))

    async def scenario() -> None:
        await budget.take(budget.limit)
        copying = asyncio.ensure_future(replica.copy_all())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not reads
        assert not copying.done()
        budget.give_back(budget.limit)
        await copying
        assert replica.ranges() == [(0, 0), (1, 1)]
        assert budget.used == 0

    run(scenario())
