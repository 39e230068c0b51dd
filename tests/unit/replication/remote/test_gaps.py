"""A gap among the copies of a log is filled while its segments are on the leader, and told to the operator when they are not."""

import asyncio
from collections.abc import Coroutine, Mapping

import pytest

from ottla.replication.remote.counters import RemotePartitionState
from ottla.storage.log.retention import delete_old_segments
from ottla.storage.remote.entries import SegmentEntry, SegmentState, SegmentUpdate
from tests.support.remote_segments import an_entry
from tests.support.tiered_replicas import TIERED, TieredReplica

STARTED, FINISHED, DELETING, DELETED = SegmentState
HOUR_MS = 3_600_000


def run(scenario: Coroutine[object, object, None]) -> None:
    asyncio.run(scenario)


def a_leader(records: int, *, segment_batches: int = 1, **config: str | int) -> TieredReplica:
    replica = TieredReplica(segment_batches=segment_batches, **config)
    replica.lead()
    replica.produce(records)
    return replica


def begun(start: int, end: int, epochs: Mapping[int, int] | None = None) -> SegmentEntry:
    return an_entry(start, end, epochs, partition=TIERED, state=STARTED, uuid=1000 + start)


async def lose(replica: TieredReplica, *starts: int) -> None:
    """Removes finished copies, as another program does."""
    for entry in replica.entries():
        if entry.start_offset in starts:
            for state in (DELETING, DELETED):
                await replica.metadata.update(SegmentUpdate(entry.id, 9, 0, state))


def test_a_gap_among_the_copies_is_filled_while_the_segments_are_here() -> None:
    replica = a_leader(6)
    lag = replica.counters.partitions[replica.log.topic_partition] = RemotePartitionState()

    async def scenario() -> None:
        await replica.copy_all()
        await lose(replica, 1, 2)
        assert replica.copier is not None
        assert await replica.copier.copy_next()
        assert replica.ranges() == [(0, 0), (1, 1), (3, 3), (4, 4)]
        assert lag.copy_lag_segments == 1
        await replica.copy_all()
        assert replica.ranges() == [(at, at) for at in range(5)]
        assert replica.store.calls[5:] == [("copy", 1), ("copy", 2)]
        assert lag.copy_lag_segments == 0

    run(scenario())


def test_a_copy_that_another_program_began_to_remove_is_made_again_and_goes() -> None:
    replica = a_leader(6, local_retention_bytes=1)

    async def scenario() -> None:
        await replica.copy_all()
        given_up = replica.entries()[1]
        await replica.metadata.update(SegmentUpdate(given_up.id, 9, 0, DELETING))
        replica.store.parts.pop(given_up.id.uuid)
        delete_old_segments(replica.log, replica.clock.now_ms())
        assert replica.log.local_log_start_offset == 1
        await replica.expiry.run()
        await replica.copy_all()
        assert replica.ranges() == [(at, at) for at in range(5)]
        assert given_up.id not in [each.id for each in replica.entries()]
        assert (replica.log.log_start_offset, replica.store.calls[-1]) == (0, ("copy", 1))

    run(scenario())


def test_segments_of_a_gap_are_not_removed_before_it_is_filled() -> None:
    replica = a_leader(6, local_retention_bytes=1)

    async def scenario() -> None:
        await replica.copy_all()
        await lose(replica, 1)
        delete_old_segments(replica.log, replica.clock.now_ms())
        assert replica.log.local_log_start_offset == 1
        await replica.copy_all()
        delete_old_segments(replica.log, replica.clock.now_ms())
        assert replica.log.local_log_start_offset == 5

    run(scenario())


@pytest.mark.parametrize("age_ms", [0, 2 * HOUR_MS])
def test_retention_passes_a_gap_only_if_the_records_on_the_broker_are_as_old(age_ms: int) -> None:
    replica = TieredReplica(retention_ms=HOUR_MS)
    replica.lead()
    now_ms = replica.clock.now_ms()
    for offset in range(7):
        replica.produce(1, timestamp=now_ms - (age_ms if offset in (1, 2) else 2 * HOUR_MS))

    async def scenario() -> None:
        await replica.copy_all()
        await lose(replica, 1, 2)
        await replica.expiry.run()
        assert replica.log.log_start_offset == (6 if age_ms else 1)
        await replica.copy_all()
        await replica.expiry.run()
        assert replica.log.log_start_offset == (6 if age_ms else 1)
        assert replica.ranges() == ([] if age_ms else [(at, at) for at in range(1, 6)])

    run(scenario())


def test_a_damaged_segment_in_a_gap_stays_and_does_not_end_the_other_removals() -> None:
    replica = TieredReplica(retention_ms=HOUR_MS)
    replica.lead()
    replica.produce(7, timestamp=replica.clock.now_ms() - 2 * HOUR_MS)

    async def scenario() -> None:
        await replica.copy_all()
        await lose(replica, 2)
        await replica.metadata.add(given_up := begun(4, 4))
        damaged = replica.log.segments.floor(2)
        assert damaged is not None
        replica.filesystem.open(damaged.path).pwrite(bytes(61), 0)
        damaged.time_index.reset()
        damaged.knows_max_timestamp = False
        await replica.expiry.run()
        assert replica.log.log_start_offset == 2
        assert replica.ranges() == [(3, 3), (4, 4), (5, 5)]
        assert given_up.id not in [each.id for each in replica.entries()]

    run(scenario())


def test_only_what_no_copy_covers_is_copied_by_a_leader_whose_segments_have_other_borders() -> None:
    replica = a_leader(7)

    async def scenario() -> None:
        await replica.metadata.add(entry := begun(0, 1))
        await replica.metadata.add(behind := begun(3, 4))
        for each in (entry, behind):
            await replica.metadata.update(SegmentUpdate(each.id, 2, 0, FINISHED))
        await replica.copy_all()
        assert replica.store.calls == [("copy", 2), ("copy", 5)]

    run(scenario())


def test_a_segment_that_copies_cover_only_in_part_is_copied_whole_and_once() -> None:
    replica = a_leader(7, segment_batches=3)

    async def scenario() -> None:
        for start, end in ((0, 3), (4, 4), (7, 8)):
            await replica.metadata.add(entry := begun(start, end))
            await replica.metadata.update(SegmentUpdate(entry.id, 2, 0, FINISHED))
        await replica.copy_all()
        await replica.copy_all()
        assert replica.store.calls == [("copy", 3)]  # offset 5 was in no copy
        assert [getattr(replica.metadata.find(TIERED, 0, at), "start_offset", None) for at in range(6)] == [0, 0, 0, 3, 4, 3]

    run(scenario())


def test_what_was_copied_in_an_epoch_that_is_not_of_the_log_is_copied_anew() -> None:
    replica = a_leader(3)

    async def scenario() -> None:
        await replica.metadata.add(foreign := begun(0, 1, {7: 0}))
        await replica.metadata.update(SegmentUpdate(foreign.id, 2, 0, FINISHED))
        await replica.copy_all()
        assert replica.store.calls == [("copy", 0), ("copy", 1)]

    run(scenario())


def test_a_copy_that_is_not_read_is_not_made_again(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = a_leader(2)
    monkeypatch.setattr(replica.metadata, "find", lambda *_: None)

    async def scenario() -> None:
        await replica.copy_all()
        await replica.copy_all()
        assert replica.store.calls == [("copy", 0)]
        assert "the copy of the segment at offset 0 is not read" in caplog.text

    run(scenario())


def test_a_gap_whose_segments_are_gone_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    replica = a_leader(7, local_retention_bytes=1)
    state = replica.counters.partitions[replica.log.topic_partition] = RemotePartitionState()

    async def scenario() -> None:
        await replica.copy_all()
        delete_old_segments(replica.log, replica.clock.now_ms())
        assert replica.log.local_log_start_offset == 6
        await lose(replica, 2, 3)
        await replica.expiry.run()
        assert state.missing_offsets == 0  # an election or a removal may be going on
        await replica.expiry.run()
        await replica.expiry.run()
        assert state.missing_offsets == 2
        assert caplog.text.count("has the offsets 2 to 3") == 1
        replica.log.increment_log_start_offset(4, "the records are given up")
        await replica.expiry.run()
        await replica.expiry.run()
        assert state.missing_offsets == 0

    run(scenario())


def test_what_is_still_on_the_broker_is_no_gap_of_the_log() -> None:
    replica = a_leader(5)
    state = replica.counters.partitions[replica.log.topic_partition] = RemotePartitionState()

    async def scenario() -> None:
        await replica.copy_all()
        await lose(replica, 1)
        await replica.expiry.run()
        await replica.expiry.run()
        assert state.missing_offsets == 0

    run(scenario())
