"""Finishes copies whose COPY_SEGMENT_FINISHED is lost, after it has proved that the store has all of them.

A record of `__remote_log_metadata` may get lost alone, for example by an unclean election. A copy then seems to be one that was given up,
and may be all that is left of its records: see `positions.is_only_copy`. Such a copy is finished, or stays until its records expire.
Only one that the store does not have whole may go.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from ottla.replication.remote.copies import CopyServices
from ottla.replication.remote.leadership import Leadership
from ottla.replication.remote.positions import CopiesOf, is_only_copy, lacks_epochs, refresh
from ottla.storage.disk.clock import elapsed_ms
from ottla.storage.remote.copy_proof import CopyProof
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, SegmentUpdate, TopicIdPartition
from ottla.storage.remote.index_checks import checksums_of, with_checksums
from ottla.storage.remote.memory_budget import READ_COPIES
from ottla.storage.remote.ports import IndexKind, RemoteObjectMissing, RemoteStoreError
from ottla.storage.remote.record_walk import WALK_BYTES, read_batches

logger = logging.getLogger(__name__)

RETRY_MS: Final = 3_600_000
"""Time after which a copy is read again that could not be proved. A proof reads all of its bytes."""


class UnfinishedCopies:
    """The copies of one partition in one leader epoch that were begun, and are all that is left of their records."""

    __slots__ = ("_leadership", "_partition", "_reported", "_services", "_tried_at")

    def __init__(self, services: CopyServices, leadership: Leadership, partition: TopicIdPartition) -> None:
        self._services = services
        self._leadership = leadership
        self._partition = partition
        self._tried_at: dict[SegmentId, int] = {}
        self._reported: set[SegmentId] = set()

    async def finish(self, entries: Sequence[SegmentEntry]) -> list[SegmentEntry]:
        """Finishes those that the store has whole, one after the other. Returns those that the store says it does not have.

        A broker reads one copy at a time. Nothing is read while the log does not know which copies are its own.
        Raises Deposed, MetadataNotReady, MetadataWriteFailed.
        """
        services = self._services
        known = {entry.id for entry in entries}
        self._tried_at = {segment: at for segment, at in self._tried_at.items() if segment in known}
        self._reported &= known
        missing: list[SegmentEntry] = []
        if not entries or services.proving.locked() or lacks_epochs(self._leadership.check()):
            return missing
        async with services.proving:
            for entry in sorted(entries, key=lambda each: each.start_offset):
                if self._is_due(entry):
                    self._tried_at[entry.id] = elapsed_ms(services.clock)
                    if not await self._finish(entry):
                        missing.append(entry)
        return missing

    def _is_due(self, entry: SegmentEntry) -> bool:
        """Whether the copy was not read for a while, and no copy that was finished since has its records."""
        tried_at = self._tried_at.get(entry.id)
        if tried_at is not None and elapsed_ms(self._services.clock) - tried_at < RETRY_MS:
            return False
        return self._is_needed(entry)

    def _is_needed(self, entry: SegmentEntry) -> bool:
        copies = CopiesOf(self._services.metadata, self._partition)
        known = self._services.metadata.get(self._partition, entry.id.uuid)
        return known is not None and is_only_copy(self._leadership.check(), copies, known)

    async def _finish(self, entry: SegmentEntry) -> bool:
        """Finishes a copy if it is proved to be whole. Returns False if the store does not have all of its records."""
        services = self._services
        try:
            if await self._lacks_records(entry):
                return False
            faults, checksums = await self._prove(entry)
        except RemoteStoreError as error:
            faults, checksums = [str(error)], b""
        self._leadership.check()
        if faults:
            self._report(entry, faults[0])
            return True
        if not self._is_needed(entry):
            return True
        settings = services.settings
        custom = with_checksums(None, checksums, settings.custom_max_bytes)
        state = SegmentState.COPY_SEGMENT_FINISHED
        await services.metadata.update(SegmentUpdate(entry.id, settings.broker_id, services.clock.now_ms(), state, custom))
        log = self._leadership.check()
        refresh(log, CopiesOf(services.metadata, self._partition))
        logger.warning(
            "%s: the metadata did not say any more that the copy of offsets %d to %d is finished. The remote store has all of it: "
            "consumers read it again",
            log.topic_partition,
            entry.start_offset,
            entry.end_offset,
        )
        return True

    async def _lacks_records(self, entry: SegmentEntry) -> bool:
        """Whether the store says that it does not have the records to their end, or no manifest of them. Raises RemoteStoreError."""
        store = self._services.store
        try:
            if entry.size:
                await store.fetch(entry, entry.size - 1, entry.size)
            else:
                await store.index(entry, IndexKind.LEADER_EPOCH)
        except RemoteObjectMissing:
            return True
        return False

    async def _prove(self, entry: SegmentEntry) -> tuple[list[str], bytes]:
        """Reads all of a copy. Returns its faults, and the checksums of its indexes. Raises Deposed and RemoteStoreError."""
        store = self._services.store
        sizes = {kind: await store.index_size(entry, kind) for kind in IndexKind}
        async with self._services.budget.reserved(WALK_BYTES + READ_COPIES * sum(sizes.values())):
            return await self._proof(entry, sizes)

    async def _proof(self, entry: SegmentEntry, sizes: Mapping[IndexKind, int]) -> tuple[list[str], bytes]:
        """Does what `_prove` does. The caller has the memory for it."""
        store, in_thread = self._services.store, self._services.in_thread
        indexes = {kind: await store.index(entry, kind, size) for kind, size in sizes.items()}
        proof = await in_thread(partial(CopyProof, entry, indexes))
        async for batches in read_batches(entry, store, in_thread):
            self._leadership.check()
            await in_thread(partial(proof.add, batches))
        return await in_thread(proof.faults), await in_thread(partial(checksums_of, indexes))

    def _report(self, entry: SegmentEntry, fault: str) -> None:
        """Tells the operator of a copy that stays, once in each leader epoch."""
        if entry.id in self._reported:
            return
        self._reported.add(entry.id)
        logger.error(
            "%s: the only copy of offsets %d to %d is not finished in the metadata, and is not proved to be whole: %s. It stays, and is "
            "read again in an hour. `ottla remote restore` writes what can be read of it to a topic.",
            self._leadership.partition.topic_partition,
            entry.start_offset,
            entry.end_offset,
            fault,
        )
