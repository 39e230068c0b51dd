"""Removes segments of a partition from the remote store while this broker leads it: by retention, and because they are no longer read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import pairwise

from ottla.config.topic import RETENTION_BYTES, RETENTION_MS
from ottla.pauses import pause
from ottla.replication.remote.copies import CopyServices, described
from ottla.replication.remote.counters import RemotePartitionState
from ottla.replication.remote.leadership import Leadership
from ottla.replication.remote.other_log import is_of_other_log
from ottla.replication.remote.positions import (
    CopiesOf,
    bounds_of,
    has_log_start,
    is_only_copy,
    lacks_epochs,
    pass_removed,
    refresh,
    waits_for_copy,
)
from ottla.replication.remote.removals import Removals
from ottla.replication.remote.unfinished import UnfinishedCopies
from ottla.storage.disk.clock import elapsed_ms
from ottla.storage.errors import CorruptRecord
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.remote.choice import Retention, choose_expired, is_abandoned, is_of_lost_log, is_unreferenced, survey
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, TopicIdPartition
from ottla.storage.remote.lineage import some_ranges
from ottla.storage.remote.ports import RemoteStoreError

logger = logging.getLogger(__name__)


class Expiry:
    """The removals of one partition in one leader epoch."""

    __slots__ = ("_gaps", "_has_reported", "_leadership", "_partition", "_removals", "_reported_gaps", "_services", "_unfinished")

    def __init__(self, services: CopyServices, removals: Removals, leadership: Leadership, partition: TopicIdPartition) -> None:
        self._services = services
        self._removals = removals
        self._leadership = leadership
        self._partition = partition
        self._has_reported = False
        self._gaps: set[tuple[int, int]] = set()
        """The gaps of the run before. A new leader may not know yet where its log starts, and a copy may end during a run."""
        self._reported_gaps: set[tuple[int, int]] = set()
        self._unfinished = UnfinishedCopies(services, leadership, partition)

    async def run(self) -> None:
        """Removes what is due now; nothing while the topic has lost its remote storage.

        Raises Deposed, RemoteStoreError, MetadataNotReady, MetadataWriteFailed, StorageError.
        """
        services = self._services
        log = self._leadership.check()
        if not log.is_copied:
            return
        is_lost = await is_of_other_log(services, self._leadership, self._partition)
        log = self._leadership.check()
        if is_lost:
            state = services.counters.partitions.get(log.topic_partition) or RemotePartitionState()
            lost = [entry for entry in services.metadata.all_entries(self._partition) if entry.state == SegmentState.COPY_SEGMENT_FINISHED]
            state.lost_log_segments, state.lost_log_bytes = len(lost), sum(entry.size for entry in lost)
            return
        copies = CopiesOf(services.metadata, self._partition)
        refresh(log, copies)  # otherwise segments that are here and in the store would count twice
        if not has_log_start(self._leadership, copies):
            return
        bounds = bounds_of(log)
        if not bounds.epochs:
            return
        began = elapsed_ms(services.clock)
        found = await survey(bounds, log.local_log_start_offset, copies.entries)
        log = self._leadership.check()
        bounds = bounds._replace(only_local_bytes=log.only_local_bytes)  # a copy that was finished in a pause does not count twice
        retention = Retention(log.config[RETENTION_MS], log.config[RETENTION_BYTES], services.clock.now_ms())
        expired = await choose_expired(bounds, retention, found.bytes, copies.entries, services.being_copied, self._has_newer)
        log = self._leadership.check()
        state = services.counters.partitions.get(log.topic_partition) or RemotePartitionState()
        state.log_size_bytes = found.bytes
        state.log_size_computation_ms = elapsed_ms(services.clock) - began
        self._report_gaps(log, found.gaps, state)
        if expired.log_start_offset is not None:
            # By a wrong clock, the log would begin behind copies that are not due, and they would go once the clock is right.
            await self._removals.compare_clocks(retention.now_ms)
            log = self._leadership.check()
            # In memory, before the first deletion: for a reader below, the offset is out of range, and no segment is missing.
            log.increment_log_start_offset(min(expired.log_start_offset, log.high_watermark), "remote segments expire")
        await self._remove(expired.segments, state)
        self._leadership.check()
        useless, unfinished = await self._useless(retention, state)
        await self._remove(useless, state)
        await self._finish(unfinished, retention.now_ms, state)

    async def _has_newer(self, first: int, last: int, oldest_ms: int) -> bool:
        """Tells if this broker may have records from `first` to `last` that are newer, or that it cannot read.

        Raises Deposed, LogDirFailure, OSError.
        """
        log = self._leadership.check()
        if last >= log.segments.active.base_offset:
            return True
        for base_offset, end_offset in pairwise(log.segments.bases):
            if base_offset <= last and end_offset > first:
                try:
                    segment = await described(self._services, self._leadership, log, base_offset, end_offset)
                except CorruptRecord:  # the task of the copies reports it, since this one has none
                    return True
                if segment is not None and segment.max_timestamp_ms > oldest_ms:
                    return True
        return self._leadership.check() is not log

    async def _finish(self, unfinished: Sequence[SegmentEntry], now_ms: int, state: RemotePartitionState) -> None:
        """Finishes copies that are all that is left of their records. Removes those that are given up, and that the store does not have."""
        missing = await self._unfinished.finish(unfinished)
        broker_id = self._services.settings.broker_id
        abandoned = [entry for entry in missing if is_abandoned(entry, broker_id, now_ms)]
        if abandoned:
            await self._remove(abandoned, state)
            self._leadership.has_log_start = False  # it may have been held by their entries

    async def _useless(self, retention: Retention, state: RemotePartitionState) -> tuple[list[SegmentEntry], list[SegmentEntry]]:
        """The segments that an unclean election or the end of a broker has left behind, but those of a lost log.

        Also those that were to be copied again, once others have their records. The second list has copies that seem to be given up, and
        are all that is left of their records.
        """
        services = self._services
        log = self._leadership.check()
        epochs, log_start_offset = log.leader_epochs.entries, log.log_start_offset
        is_whole = bool(epochs) and not lacks_epochs(log)
        copies = CopiesOf(services.metadata, self._partition)
        entries = services.metadata.all_entries(self._partition)
        state.metadata_count = len(entries)
        chosen: dict[SegmentId, SegmentEntry] = {}
        kept: list[SegmentEntry] = []
        unfinished: list[SegmentEntry] = []
        for entry in entries:
            await pause()
            if entry.id in services.being_copied:
                continue
            unread = is_whole and is_unreferenced(entry, epochs[0][0])
            if unread and is_of_lost_log(entry, log_start_offset, retention):
                kept.append(entry)
            elif not unread and is_only_copy(self._leadership.check(), copies, entry):
                unfinished.append(entry)
            elif unread or (
                is_abandoned(entry, services.settings.broker_id, retention.now_ms)
                and not waits_for_copy(self._leadership.check(), copies, entry)
            ):
                chosen[entry.id] = entry
        self._report_lost_log(self._leadership.check(), kept, state)
        return list(chosen.values()), unfinished

    def _report_lost_log(self, log: PartitionLog, kept: Sequence[SegmentEntry], state: RemotePartitionState) -> None:
        """Counts the segments of a log that is lost, and tells the operator of them once in each leader epoch."""
        state.lost_log_segments = len(kept)
        state.lost_log_bytes = sum(entry.size for entry in kept)
        if kept and not self._has_reported:
            self._has_reported = True
            logger.error(
                "%s: the remote store has %d segments, with offsets up to %d, of a log that was lost with all its replicas. They are kept "
                "until retention.ms, or the deletion of the topic. `ottla remote restore` writes their records to a topic.",
                log.topic_partition,
                len(kept),
                max(entry.end_offset for entry in kept),
            )

    def _report_gaps(self, log: PartitionLog, gaps: Sequence[tuple[int, int]], state: RemotePartitionState) -> None:
        """Counts the offsets that are neither here nor in the store, and tells the operator of each gap once in each leader epoch."""
        lasting = [] if lacks_epochs(log) else [gap for gap in gaps if gap in self._gaps and gap[0] >= log.log_start_offset]
        self._gaps = set(gaps)
        state.missing_offsets = sum(last - first + 1 for first, last in lasting)
        news = [gap for gap in lasting if gap not in self._reported_gaps]
        self._reported_gaps.update(news)
        if news:
            logger.error(
                "%s: neither this broker nor the remote store has the offsets %s. Consumers stop there; see docs/operations.md: "
                "When the remote store fails.",
                log.topic_partition,
                some_ranges(news),
            )

    async def _remove(self, entries: Iterable[SegmentEntry], state: RemotePartitionState) -> None:
        left = list(entries)
        stats = self._services.counters.of(self._partition.topic)
        state.delete_lag_segments = len(left)
        state.delete_lag_bytes = sum(entry.size for entry in left)
        copies = CopiesOf(self._services.metadata, self._partition)
        for entry in left:
            if not pass_removed(self._leadership.check(), copies):
                return
            stats.delete_requests += 1
            try:
                await self._removals.remove(entry, self._leadership.check)
            except RemoteStoreError:
                stats.delete_errors += 1
                raise
            self._leadership.check()
            state.delete_lag_segments -= 1
            state.delete_lag_bytes -= entry.size
