"""A segment whose copy has vanished is copied again, and its records stay until then, whichever replica leads."""

import asyncio
from dataclasses import replace

from ottla.replication.remote.positions import CopiesOf, refresh
from ottla.storage.log.retention import delete_old_segments
from ottla.storage.remote.entries import TO_COPY_AGAIN, SegmentEntry, SegmentId, SegmentState, SegmentUpdate
from tests.support.logs import follow
from tests.support.remote_fakes import MemoryMetadata
from tests.support.tiered_replicas import TIERED, TieredReplica, follows

RECORDS = 6
ALL = [(at, at) for at in range(RECORDS - 1)]
"""The copies of all closed segments."""
STARTED, _, DELETING, _ = SegmentState


def leader_and_follower() -> tuple[TieredReplica, TieredReplica]:
    """Two replicas with equal logs. Local retention is due on the follower only."""
    leader = TieredReplica(broker_id=1)
    follower = TieredReplica(broker_id=2, metadata=MemoryMetadata(leader.metadata.caches), clock=leader.clock, local_retention_bytes=1)
    follower.store.parts = leader.store.parts
    leader.lead(0)
    leader.produce(RECORDS)
    for offset in range(RECORDS):
        region = leader.log.read(offset, 1, RECORDS, True).region
        assert region is not None
        follow(follower.log, region.read(), 0)
    follower.log.update_high_watermark(RECORDS)
    return leader, follower


async def lose_first_copy(leader: TieredReplica, follower: TieredReplica) -> SegmentEntry:
    """The follower has removed what is in the store. Then the first copy vanishes, and the command asks for another one."""
    await leader.copy_all()
    refresh(follower.log, CopiesOf(follower.metadata, TIERED))
    delete_old_segments(follower.log, follower.clock.now_ms())
    assert follower.log.local_log_start_offset == RECORDS - 1
    lost = leader.entries()[0]
    leader.store.parts.pop(lost.id.uuid)
    await leader.metadata.update(SegmentUpdate(lost.id, TO_COPY_AGAIN, leader.clock.now_ms(), DELETING))
    return lost


def is_known(replica: TieredReplica, entry: SegmentEntry) -> bool:
    return entry.id in [each.id for each in replica.entries()]


def test_a_new_leader_without_the_segment_does_not_begin_its_log_behind_it() -> None:
    async def scenario() -> None:
        first, second = leader_and_follower()
        lost = await lose_first_copy(first, second)
        follows(first.partition, 2, 1)
        second.lead(1)
        for _ in range(2):
            await second.copy_all()
            await second.expiry.run()
        assert second.log.log_start_offset == 0, "the first broker would delete the only copy"
        assert is_known(second, lost), "otherwise the next leader would begin its log behind it"
        assert second.ranges() == ALL[1:]

        follows(second.partition, 1, 2)
        first.lead(2)
        await first.copy_all()
        assert first.ranges() == ALL
        await first.expiry.run()
        assert not is_known(first, lost)
        assert (first.log.log_start_offset, second.log.log_start_offset) == (0, 0)

    asyncio.run(scenario())


def test_the_entry_stays_until_another_copy_has_all_records() -> None:
    async def scenario() -> None:
        leader, follower = leader_and_follower()
        lost = await lose_first_copy(leader, follower)
        await leader.expiry.run()
        assert is_known(leader, lost)
        await leader.copy_all()
        await leader.expiry.run()
        assert not is_known(leader, lost)
        assert (leader.ranges(), leader.ranges(DELETING)) == (ALL, [])

    asyncio.run(scenario())


def test_the_entry_goes_when_the_log_begins_behind_its_records() -> None:
    async def scenario() -> None:
        leader, follower = leader_and_follower()
        lost = await lose_first_copy(leader, follower)
        leader.log.increment_log_start_offset(1, "records are deleted")
        await leader.expiry.run()
        assert not is_known(leader, lost)
        assert leader.ranges() == ALL[1:]

    asyncio.run(scenario())


def test_the_removal_of_a_second_copy_of_the_same_records_moves_no_log_start() -> None:
    async def scenario() -> None:
        first, second = leader_and_follower()
        lost = await lose_first_copy(first, second)
        other = replace(lost, id=SegmentId(TIERED, b"\xf1" * 16), state=STARTED)
        await first.metadata.add(other)
        await first.metadata.update(SegmentUpdate(other.id, 9, first.clock.now_ms(), DELETING))
        second.lead(1)
        await second.expiry.run()
        assert second.log.log_start_offset == 0
        assert is_known(second, lost)
        assert not is_known(second, other)

    asyncio.run(scenario())
