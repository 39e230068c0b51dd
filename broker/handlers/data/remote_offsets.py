"""Finds offsets by time where a part of the log is in the remote store only (KIP-405), for ListOffsets.

The largest timestamps of remote segments are known from their metadata. So most searches read no remote segment, or one. A segment without
records has the time of its file there, which counts for nothing. Searches run beside other requests, hold no handler slot, and end after 30
seconds. As in Apache Kafka they pass over gaps of the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ottla.broker.handlers.data.cold_reads import until_cached
from ottla.broker.request.services import Services
from ottla.pauses import pause
from ottla.replication.leader.partition import Partition
from ottla.replication.reading.remote_read import RemoteReads
from ottla.storage.log.lookups import offset_for_timestamp, offset_of_max_timestamp
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.reads import OffsetAndTimestamp
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.ports import RemoteStoreError
from ottla.storage.remote.segment_reader import NotHere
from ottla.storage.segment.cold_lookups import ColdRead, NotCached
from ottla.storage.segment.record_search import FoundRecords

MAX_SECONDS: Final = 30.0
"""Time after which a search is given up."""
MAX_ROUNDS: Final = 1000
"""Reads of one search in a segment; more are needed only if the caches are far too small."""


class RemoteLookUp(Exception):
    """The search by time has to look at remote segments of the partition. Not an error."""

    def __init__(self, partition: Partition) -> None:
        super().__init__()
        self.partition = partition


async def find_for_timestamp(
    broker: Services, reads: RemoteReads, log: PartitionLog, timestamp_ms: int, found: FoundRecords
) -> OffsetAndTimestamp | None:
    """Finds the first record with a timestamp of at least `timestamp_ms`: in segments that are in the store only, or else here.

    Raises TimeoutError, TooManyReads, MetadataNotReady, RemoteStoreError, StorageError.
    """
    async with asyncio.timeout(MAX_SECONDS):
        entry = reads.entry_from(log, log.log_start_offset)
        while entry is not None:
            if entry.size and entry.max_timestamp_ms >= timestamp_ms:
                record = await _find_in(broker, reads, log, entry, timestamp_ms, found)
                if record is not None:
                    return record
            await pause()
            entry = reads.entry_from(log, entry.end_offset + 1)
        return await _find_here(broker, lambda may_wait: offset_for_timestamp(log, timestamp_ms, may_wait, None if may_wait else found))


async def find_of_max_timestamp(broker: Services, reads: RemoteReads, log: PartitionLog, found: FoundRecords) -> OffsetAndTimestamp | None:
    """Finds the first record with the largest timestamp of the whole log. Raises as `find_for_timestamp`."""
    async with asyncio.timeout(MAX_SECONDS):
        latest: SegmentEntry | None = None
        entry = reads.entry_from(log, log.log_start_offset)
        while entry is not None:
            if entry.size and (latest is None or entry.max_timestamp_ms > latest.max_timestamp_ms):
                latest = entry
            await pause()
            entry = reads.entry_from(log, entry.end_offset + 1)
        here = await _find_here(broker, lambda may_wait: offset_of_max_timestamp(log, may_wait, None if may_wait else found))
        if latest is None or latest.max_timestamp_ms < 0 or (here is not None and here.timestamp > latest.max_timestamp_ms):
            return here
        return await _find_in(broker, reads, log, latest, latest.max_timestamp_ms, found) or here


async def _find_here(broker: Services, find: Callable[[bool], OffsetAndTimestamp | None]) -> OffsetAndTimestamp | None:
    async def search(may_wait: bool) -> OffsetAndTimestamp | None:
        await pause()
        return find(may_wait)

    try:
        return find(False)
    except ColdRead as cold:
        return await until_cached(broker, cold, search)


async def _find_in(
    broker: Services, reads: RemoteReads, log: PartitionLog, entry: SegmentEntry, timestamp_ms: int, found: FoundRecords
) -> OffsetAndTimestamp | None:
    """Finds the first such record of one remote segment."""

    async def search(may_wait: bool) -> OffsetAndTimestamp | None:
        for _ in range(MAX_ROUNDS):
            try:
                position = reads.segments.find_by_timestamp(
                    entry, timestamp_ms, log.log_start_offset, may_wait, None if may_wait else found
                )
                return None if position is None else OffsetAndTimestamp(position.offset, position.timestamp, position.leader_epoch)
            except NotHere as missing:
                await asyncio.shield(missing.load(log))
            except NotCached as cold:
                raise ColdRead(log.topic_partition, cold) from None
        raise RemoteStoreError(f"what was read of {log.topic_partition} at offset {entry.start_offset} does not stay in the cache")

    try:
        return await search(False)
    except ColdRead as cold:
        return await until_cached(broker, cold, search)
