"""Readers of a log get copies of its own history, also where copies of a lost one begin closer to the offset."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from ottla.broker.remote.remote_storage import copy_of
from ottla.replication.reading.remote_read import RemoteReads
from ottla.replication.remote.positions import CopiesOf, refresh
from ottla.storage.remote.entries import SegmentState, SegmentUpdate
from ottla.storage.remote.ports import MetadataNotReady
from tests.support.remote_segments import an_entry
from tests.support.tiered_replicas import TIERED, TieredReplica

STARTED, FINISHED, DELETING, DELETED = SegmentState
UUID = 1000


async def copied(replica: TieredReplica, start: int, end: int, epochs: Mapping[int, int]) -> None:
    """Some leader has copied the offsets."""
    entry = an_entry(start, end, epochs, partition=TIERED, state=STARTED, uuid=UUID + start)
    await replica.metadata.add(entry)
    await replica.metadata.update(SegmentUpdate(entry.id, 2, 0, FINISHED))


def starts(replica: TieredReplica) -> list[int | None]:
    """Where the copy of each offset below the local log start offset begins."""
    found = [copy_of(replica.log, offset) for offset in range(replica.log.local_log_start_offset)]
    return [None if entry is None else entry.start_offset for entry in found]


def test_a_copy_with_records_that_the_log_does_not_have_is_not_read_and_hides_no_other() -> None:
    replica = TieredReplica()
    log = replica.log
    for epoch in (0, 1):
        replica.lead(epoch)
        replica.produce(4)
    assert log.leader_epochs.entries == [(0, 0), (1, 4)]
    log.delete_old_segments(lambda segment, _: segment.base_offset < 6, "test", keeps_log_start=True)

    async def scenario() -> None:
        assert log.tier is not None
        await copied(replica, 0, 1, {0: 0})
        await copied(replica, 2, 6, {0: 2})  # by a leader of epoch 0, of which the leader of epoch 1 had less
        refresh(log, CopiesOf(replica.metadata, TIERED))
        assert starts(replica) == [0, 0, None, None, None, None]
        assert not log.tier.has_all(0, 3, log.log_end_offset, log.leader_epochs.entries)
        await copied(replica, 1, 5, {0: 1, 1: 4})
        refresh(log, CopiesOf(replica.metadata, TIERED))
        assert starts(replica) == [0, 1, 1, 1, 1, 1]
        assert log.tier.has_all(0, 5, log.log_end_offset, log.leader_epochs.entries)
        own = next(entry for entry in replica.entries() if entry.start_offset == 1)
        for state in (DELETING, DELETED):
            await replica.metadata.update(SegmentUpdate(own.id, 2, 0, state))
        assert starts(replica) == [0, 0, None, None, None, None]

    asyncio.run(scenario())


def test_a_log_whose_metadata_are_not_read_yet_has_not_no_copies() -> None:
    """Or else a search by time would begin with the first local record, and pass over all others."""
    replica = TieredReplica()
    log = replica.log
    replica.lead()
    replica.produce(4)
    log.delete_old_segments(lambda segment, _: segment.base_offset < 2, "test", keeps_log_start=True)
    reads = RemoteReads(cast("Any", None), copy_of, lambda: 500)
    for find in (copy_of, reads.entry, reads.entry_from):
        with pytest.raises(MetadataNotReady):
            find(log, 1)
    assert reads.entry_from(log, 2) is None
