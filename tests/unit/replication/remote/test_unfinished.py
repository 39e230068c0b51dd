"""A copy stays, and is finished again, if the metadata lost that it was finished and its records are nowhere else."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace

import pytest

from ottla.replication.remote.counters import RemotePartitionState
from ottla.replication.remote.leadership import Deposed
from ottla.replication.remote.positions import CopiesOf, refresh
from ottla.replication.remote.unfinished import RETRY_MS
from ottla.storage.log.retention import delete_old_segments
from ottla.storage.remote.choice import FOREIGN_COPY_LIMIT_MS
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState
from ottla.storage.remote.ports import IndexKind, RemoteStoreError
from ottla.storage.remote.record_walk import WALK_BYTES
from tests.support.remote_fakes import MemoryStore
from tests.support.tiered_replicas import TIERED, TieredReplica, follows
from tests.unit.replication.remote.test_copy_again import leader_and_follower

STARTED, *_ = SegmentState
ALL = [(at, at) for at in range(5)]
"""The copies of all closed segments."""


def run(scenario: Coroutine[object, object, None]) -> None:
    asyncio.run(scenario)


async def only_in_the_store() -> TieredReplica:
    """A leader that has its last segment only, and copies of the five before."""
    replica = TieredReplica(local_retention_bytes=1)
    replica.lead()
    replica.produce(6)
    await replica.copy_all()
    delete_old_segments(replica.log, replica.clock.now_ms())
    assert replica.log.local_log_start_offset == 5
    return replica


async def lose_ends(replica: TieredReplica, *starts: int, broker_id: int = 1) -> None:
    """The metadata lose the records that the copies from these offsets are finished. The broker made them."""
    metadata = replica.metadata
    records = list(metadata.records)
    lost = {each.id for each in records if isinstance(each, SegmentEntry) and each.start_offset in starts}
    metadata.caches.clear()
    for record in records:
        if isinstance(record, SegmentEntry):
            is_lost = record.id in lost
            await metadata.add(replace(record, broker_id=broker_id if is_lost else record.broker_id))
        elif record.id not in lost:
            await metadata.update(record)


def calls_to(store: MemoryStore) -> list[str]:
    """The calls to the store from now on."""
    calls: list[str] = []

    async def note(call: str, entry: SegmentEntry) -> None:
        calls.append(call)

    store.before = note
    return calls


@pytest.mark.parametrize("broker_id", [1, 2])
@pytest.mark.parametrize("starts", [(0,), (2,), (0, 1, 2, 3, 4)])
def test_a_copy_that_is_all_that_is_left_of_its_records_is_finished(
    caplog: pytest.LogCaptureFixture, starts: tuple[int, ...], broker_id: int
) -> None:
    async def scenario() -> None:
        replica = await only_in_the_store()
        checksums = [each.custom for each in replica.entries()]
        await lose_ends(replica, *starts, broker_id=broker_id)
        state = replica.counters.partitions[replica.log.topic_partition] = RemotePartitionState()
        for _ in range(3):
            await replica.expiry.run()
        assert replica.ranges() == ALL
        assert len(replica.store.parts) == 5
        assert [each.custom for each in replica.entries()] == checksums
        budget = replica.services.budget
        assert (budget.used, budget.most_used > WALK_BYTES) == (0, True), "a proof takes memory for what it reads"
        assert (replica.log.log_start_offset, state.missing_offsets) == (0, 0)

    run(scenario())
    assert caplog.text.count("consumers read it again") == len(starts)


@pytest.mark.parametrize("starts", [(0,), (0, 1, 2, 3, 4)])
def test_a_new_leader_does_not_begin_its_log_behind_such_copies(starts: tuple[int, ...]) -> None:
    async def scenario() -> None:
        replica = await only_in_the_store()
        await lose_ends(replica, *starts)
        replica.lead(1)
        await replica.copy_all()
        await replica.expiry.run()
        assert replica.log.log_start_offset == 0
        assert replica.ranges() == ALL

    run(scenario())


def test_a_copy_that_is_not_proved_stays_and_the_operator_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        replica = await only_in_the_store()
        await lose_ends(replica, 2)
        entry = replica.entries()[2]
        parts = replica.store.parts[entry.id.uuid]
        right = parts.log
        assert right is not None
        parts.log = right[:-1] + bytes([right[-1] ^ 1])
        state = replica.counters.partitions[replica.log.topic_partition] = RemotePartitionState()
        await replica.expiry.run()
        calls = calls_to(replica.store)
        await replica.expiry.run()
        assert state.missing_offsets == 1
        assert not calls, "a proof reads all of the copy"
        assert replica.ranges(STARTED) == [(2, 2)]
        replica.clock.move(RETRY_MS + 1)
        await replica.expiry.run()
        assert "fetch" in calls
        assert "delete" not in calls
        parts.log = right
        replica.clock.move(RETRY_MS + 1)
        await replica.expiry.run()
        assert replica.ranges() == ALL

    run(scenario())
    (line,) = [each.message for each in caplog.records if "is not proved to be whole" in each.message]
    assert "offsets 2 to 2" in line
    assert "checksum" in line
    assert "`ottla remote restore`" in line


def test_a_copy_without_some_index_stays() -> None:
    async def scenario() -> None:
        replica = await only_in_the_store()
        await lose_ends(replica, 2)
        replica.store.parts[replica.entries()[2].id.uuid].indexes.pop(IndexKind.LEADER_EPOCH)
        await replica.expiry.run()
        assert replica.ranges(STARTED) == [(2, 2)]
        assert len(replica.store.parts) == 5

    run(scenario())


def test_a_copy_stays_while_the_store_does_not_answer() -> None:
    async def scenario() -> None:
        replica = await only_in_the_store()
        await lose_ends(replica, 0, 2)

        async def fail(call: str, entry: SegmentEntry) -> None:
            raise RemoteStoreError("the store is down")

        replica.store.before = fail
        await replica.expiry.run()
        assert replica.ranges(STARTED) == [(0, 0), (2, 2)]
        calls_to(replica.store)
        replica.lead(1)
        await replica.expiry.run()
        assert replica.ranges() == ALL

    run(scenario())


@pytest.mark.parametrize("broker_id", [1, 2])
def test_a_copy_that_the_store_does_not_have_is_given_up_as_before(broker_id: int) -> None:
    async def scenario() -> None:
        replica = await only_in_the_store()
        await lose_ends(replica, 0, broker_id=broker_id)
        entry = replica.entries()[0]
        replica.store.parts[entry.id.uuid].log = None
        await replica.expiry.run()
        if broker_id == 2:
            assert replica.ranges(STARTED) == [(0, 0)], "its writer may still be busy with it"
            replica.clock.move(max(FOREIGN_COPY_LIMIT_MS, RETRY_MS) + 1)
            await replica.expiry.run()
        assert replica.ranges(STARTED) == []
        assert len(replica.store.parts) == 4
        await replica.expiry.run()
        assert replica.log.log_start_offset == 1

    run(scenario())


def test_of_two_such_copies_one_is_finished_and_the_other_goes() -> None:
    async def scenario() -> None:
        replica = await only_in_the_store()
        await lose_ends(replica, 2)
        entry = replica.entries()[2]
        other = replace(entry, id=SegmentId(TIERED, b"\xf1" * 16))
        await replica.metadata.add(other)
        replica.store.parts[other.id.uuid] = replica.store.parts[entry.id.uuid]
        await replica.expiry.run()
        assert replica.ranges() == ALL
        await replica.expiry.run()
        assert replica.ranges(STARTED) == []
        assert len(replica.store.parts) == 5

    run(scenario())


@pytest.mark.parametrize("is_elected", [True, False])
def test_a_leader_with_the_segment_keeps_the_copy_until_another_one_is_finished(is_elected: bool) -> None:
    async def scenario() -> None:
        first, second = leader_and_follower()
        await first.copy_all()
        refresh(second.log, CopiesOf(second.metadata, TIERED))
        delete_old_segments(second.log, second.clock.now_ms())
        await lose_ends(first, 0)
        await first.expiry.run()
        assert first.ranges(STARTED) == [(0, 0)], "a leader without the segment would begin its log behind it"
        if is_elected:
            follows(first.partition, 2, 1)
            second.lead(1)
        leader = second if is_elected else first
        await leader.copy_all()
        await leader.expiry.run()
        assert leader.ranges() == ALL
        assert leader.ranges(STARTED) == []
        assert (len(leader.store.parts), leader.log.log_start_offset) == (5, 0)

    run(scenario())


def test_a_deposed_leader_finishes_nothing() -> None:
    async def scenario() -> None:
        replica = await only_in_the_store()
        await lose_ends(replica, 2)

        async def depose(call: str, entry: SegmentEntry) -> None:
            if call == "fetch":
                replica.partition.leader_epoch = 1

        replica.store.before = depose
        with pytest.raises(Deposed):
            await replica.expiry.run()
        assert replica.ranges(STARTED) == [(2, 2)]

    run(scenario())


def test_a_log_without_its_epochs_neither_finishes_nor_removes_such_copies() -> None:
    async def scenario() -> None:
        replica = await only_in_the_store()
        await lose_ends(replica, 2)
        replica.log.leader_epochs.clear()
        replica.lead(1)
        replica.produce(1)
        calls = calls_to(replica.store)
        await replica.expiry.run()
        assert replica.ranges(STARTED) == [(2, 2)]
        assert not calls

    run(scenario())
