"""Copies the closed segments of a partition to the remote store, one after the other, while this broker leads the partition.

A copy is an entry in the metadata, the objects in the store, and the entry's next state. Until the state is COPY_SEGMENT_FINISHED no reader
knows the objects. A failed attempt is repeated under the same uuid, so that it leaves neither an entry nor an object behind. `expiry`
removes the rest that a former leader or a crash left behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ottla.pauses import pause
from ottla.replication.ports.thread_work import done
from ottla.replication.remote.byte_quota import ByteQuota
from ottla.replication.remote.counters import RemoteCounters, RemoteTopicStats
from ottla.replication.remote.leadership import Leadership
from ottla.replication.remote.positions import CopiesOf, bounds_of, refresh
from ottla.replication.remote.settings import RemoteSettings
from ottla.storage.disk.background import Background
from ottla.storage.disk.clock import Clock
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.segment_copies import CopyPreparation, SegmentToCopy, describe_segment
from ottla.storage.remote.choice import segments_to_copy
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, SegmentUpdate, TopicIdPartition
from ottla.storage.remote.index_checks import index_checksums, with_checksums
from ottla.storage.remote.lineage import first_missing
from ottla.storage.remote.memory_budget import MemoryBudget
from ottla.storage.remote.ports import MetadataWriteFailed, RemoteLogMetadata, RemoteStore, RemoteStoreError
from ottla.storage.segment.cold_lookups import ColdRead

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_WORK = "remote-copy"
GRACE_SECONDS = 60.0
"""Time for which the parts of a cancelled copy may still be written. Its objects are not deleted before, lest some appear again."""


class CustomMetadataTooLarge(Exception):
    """The store answered more than `remote.log.metadata.custom.metadata.max.bytes`: the partition is copied no more in this epoch."""


class CopyServices:
    """The parts that the tasks of all partitions share. `being_copied` has the segments whose copies are in progress.

    `budget` has the memory of all transfers. `forget` removes what this broker keeps of a copy. `proving` is held while a copy is read to
    prove that it is whole.
    """

    __slots__ = (
        "background",
        "being_copied",
        "budget",
        "clock",
        "counters",
        "forget",
        "metadata",
        "proving",
        "quota",
        "random_bytes",
        "settings",
        "store",
    )

    def __init__(
        self,
        store: RemoteStore,
        metadata: RemoteLogMetadata,
        settings: RemoteSettings,
        background: Background,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        quota: ByteQuota,
        counters: RemoteCounters,
        forget: Callable[[SegmentEntry], None],
        budget: MemoryBudget,
    ) -> None:
        self.store = store
        self.budget = budget
        self.metadata = metadata
        self.settings = settings
        self.background = background
        self.clock = clock
        self.random_bytes = random_bytes
        self.quota = quota
        self.counters = counters
        self.forget = forget
        self.being_copied: set[SegmentId] = set()
        self.proving = asyncio.Lock()

    async def in_thread(self, work: Callable[[], _T]) -> _T:
        """Does blocking work in a thread, and returns its result."""
        result: list[_T] = []
        await done(partial(self.background.submit, _WORK, lambda: result.append(work())))
        return result[0]


async def described(
    services: CopyServices, leadership: Leadership, log: PartitionLog, base_offset: int, end_offset: int
) -> SegmentToCopy | None:
    """Describes a closed segment as `describe_segment` does, without a wait of the event loop for the disk. Raises also Deposed.

    None, too, if the partition has got another log meanwhile.
    """
    try:
        return describe_segment(log, base_offset, end_offset)
    except ColdRead as cold:
        await services.in_thread(cold.warm)
    if leadership.check() is not log:
        return None
    return describe_segment(log, base_offset, end_offset, may_wait=True)


class Copier:
    """The copies of one partition in one leader epoch."""

    __slots__ = ("_due", "_leadership", "_log", "_partition", "_pending", "_seen_to", "_services", "_vain")

    def __init__(self, services: CopyServices, leadership: Leadership, partition: TopicIdPartition) -> None:
        self._services = services
        self._log: PartitionLog | None = None
        self._due: deque[tuple[int, int]] = deque()
        """The segments of `_log` below `_seen_to` that the store lacks, as (base offset, end offset), oldest first."""
        self._seen_to = 0
        self._vain: set[int] = set()
        """Base offsets of the segments whose copies are finished, and are not read all the same."""
        self._leadership = leadership
        self._partition = partition
        self._pending: tuple[SegmentEntry, bytes] | None = None
        """The copy that was begun, and is to be repeated after a failure, with the checksums of its parts but the records."""

    def stop(self) -> None:
        """Ends the copies. A copy that was begun is abandoned a moment later, because a thread may still write a part of it."""
        if self._pending is not None:
            asyncio.get_running_loop().call_later(GRACE_SECONDS, self._services.being_copied.discard, self._pending[0].id)
            self._pending = None

    async def copy_next(self) -> bool:
        """Copies the oldest segment that is to be copied. Returns whether there was one.

        Raises Deposed, CustomMetadataTooLarge, RemoteStoreError, MetadataNotReady, MetadataWriteFailed, StorageError, OSError.
        """
        log = self._leadership.check()
        tier = log.tier
        if tier is None or not log.is_copied:
            return False
        if not self._due or self._log is not log:
            await self._look(log)
        self._count_lag(log)
        while self._due:
            segment = await self._describe(log, *self._due[0])
            if segment is not None:
                await self._copy(log, segment)
            self._due.popleft()
            self._count_lag(log)
            if segment is not None:
                return True
        self.stop()  # the segment of a failed attempt was copied by another broker, or is gone
        return False

    async def _look(self, log: PartitionLog) -> None:
        """Finds the segments to copy: also those before copies that are finished, since entries may be lost, and copies be removed."""
        self._log = log
        self._due.clear()
        for base_offset, end_offset in segments_to_copy(log.segments.bases, log.log_start_offset, log.last_stable_offset):
            await pause()
            self._leadership.check()
            if base_offset not in self._vain and not self._is_covered(log, base_offset, end_offset):
                self._due.append((base_offset, end_offset))
            self._seen_to = end_offset

    async def _describe(self, log: PartitionLog, base_offset: int, end_offset: int) -> SegmentToCopy | None:
        """The segment, if it still has to be copied, and its leader epochs are known. Also one without records: no copy has its offsets."""
        if self._is_covered(log, base_offset, end_offset):
            return None
        segment = await described(self._services, self._leadership, log, base_offset, end_offset)
        return segment if segment is not None and segment.leader_epochs else None

    def _is_covered(self, log: PartitionLog, base_offset: int, end_offset: int) -> bool:
        """Whether readers find all offsets of the segment in the store, but those below the log start. Raises MetadataNotReady."""
        bounds = bounds_of(log)
        find = partial(self._services.metadata.find, self._partition)
        first = max(base_offset, bounds.log_start_offset)
        return first_missing(first, end_offset - 1, bounds.log_end_offset, bounds.epochs, find) is None

    async def _copy(self, log: PartitionLog, segment: SegmentToCopy) -> None:
        services, check = self._services, self._leadership.check
        stats = services.counters.of(self._partition.topic)
        preparation = CopyPreparation(log, segment)  # of the same moment as the description
        await services.quota.wait(segment.size)
        is_copied = False
        try:
            check()
            size = services.store.copy_bytes + await services.in_thread(preparation.memory_bytes)
            async with services.budget.reserved(size):
                check()
                entry, checksums, custom = await self._upload(log, segment, preparation, stats)
            is_copied = True
        finally:
            if not is_copied:
                services.quota.give_back(segment.size)
        check()
        if custom is not None and len(custom) > services.settings.custom_max_bytes:
            stats.copy_errors += 1
            await services.store.delete(entry)
            raise CustomMetadataTooLarge(
                f"{log.topic_partition}: the store answered {len(custom)} bytes of metadata to a copy, more than "
                f"remote.log.metadata.custom.metadata.max.bytes={services.settings.custom_max_bytes}; nothing more is copied in this epoch"
            )
        await self._finish(entry, with_checksums(custom, checksums, services.settings.custom_max_bytes))
        stats.copy_bytes += entry.size

    async def _upload(
        self, log: PartitionLog, segment: SegmentToCopy, preparation: CopyPreparation, stats: RemoteTopicStats
    ) -> tuple[SegmentEntry, bytes, bytes | None]:
        """Returns the entry of the copy, the checksums of its parts, and what the store answered."""
        services, check = self._services, self._leadership.check
        files = await services.in_thread(preparation.run)
        check()
        checksums = await services.in_thread(partial(index_checksums, log.context.filesystem, files))
        check()
        entry = self._entry(segment, checksums)
        stats.copy_requests += 1
        try:
            if services.metadata.get(self._partition, entry.id.uuid) is None:
                await services.metadata.add(entry)
                check()
            return entry, checksums, await services.store.copy(entry, files)
        except BaseException as error:
            stats.copy_errors += isinstance(error, RemoteStoreError | MetadataWriteFailed)
            raise

    async def _finish(self, entry: SegmentEntry, custom: bytes | None) -> None:
        """Publishes that the copy is complete. Only its applied state counts, because the answer of a write may be lost."""
        services = self._services
        now_ms = services.clock.now_ms()
        try:
            await services.metadata.update(
                SegmentUpdate(entry.id, services.settings.broker_id, now_ms, SegmentState.COPY_SEGMENT_FINISHED, custom)
            )
        except MetadataWriteFailed:
            if not self._is_finished(entry):
                raise
        log = self._leadership.check()
        if not self._is_finished(entry):
            self.stop()
            logger.warning("%s: another broker removed the copy of the segment at offset %d", log.topic_partition, entry.start_offset)
            return
        services.being_copied.discard(entry.id)
        self._pending = None
        refresh(log, CopiesOf(services.metadata, self._partition))
        if log.tier is not None:
            log.tier.known_end = max(log.tier.known_end, entry.end_offset + 1)
        if not self._is_covered(log, entry.start_offset, entry.end_offset + 1):
            self._vain.add(entry.start_offset)
            logger.error("%s: the copy of the segment at offset %d is not read; the segment stays", log.topic_partition, entry.start_offset)
        logger.info(
            "%s: offsets %d to %d are in the remote store, %d bytes", log.topic_partition, entry.start_offset, entry.end_offset, entry.size
        )

    def _is_finished(self, entry: SegmentEntry) -> bool:
        known = self._services.metadata.get(self._partition, entry.id.uuid)
        return known is not None and known.state == SegmentState.COPY_SEGMENT_FINISHED

    def _entry(self, segment: SegmentToCopy, checksums: bytes) -> SegmentEntry:
        """The entry of the copy: that of the failed attempt if there was one with the same content.

        Epochs and producers that are copied with the records change when the log start moves. An object is never written with another
        content, because a part of the failed attempt may stay, which would not fit the rest.
        """
        now_ms = self._services.clock.now_ms()
        entry = SegmentEntry(
            SegmentId(self._partition, self._services.random_bytes(16)),
            segment.base_offset,
            segment.end_offset - 1,
            self._services.settings.broker_id,
            segment.max_timestamp_ms,
            now_ms,
            dict(segment.leader_epochs),
            segment.size,
            SegmentState.COPY_SEGMENT_STARTED,
        )
        if self._pending is not None:
            pending, parts = self._pending
            is_same = parts == checksums and replace(pending, id=entry.id, event_timestamp_ms=now_ms) == entry
            if is_same and not self._is_lost(pending):
                return pending
        self.stop()
        self._pending = entry, checksums
        self._services.being_copied.add(entry.id)
        return entry

    def _is_lost(self, pending: SegmentEntry) -> bool:
        """Whether another broker has begun to remove the copy."""
        known = self._services.metadata.get(self._partition, pending.id.uuid)
        return known is not None and known.state != SegmentState.COPY_SEGMENT_STARTED

    def _count_lag(self, log: PartitionLog) -> None:
        state = self._services.counters.partitions.get(log.topic_partition)
        if state is not None and log.tier is not None:
            due = [found for base_offset, _ in self._due if (found := log.segments.floor(base_offset)) is not None]
            waiting = due + log.segments.between(self._seen_to, log.log_end_offset + 1)[:-1]
            state.copy_lag_segments = len(waiting)
            state.copy_lag_bytes = sum(segment.size for segment in waiting)
