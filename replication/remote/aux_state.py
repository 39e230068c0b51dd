"""Begins a follower's log behind the records that are in the remote store only, with the state that they have left (KIP-405).

Kafka's TierStateMachine. The state is the leader epochs and the producers at the end of a remote segment. Then the follower fetches from
its leader what comes behind that segment, and never copies what is in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

from ottla.replication.leader.partition import Partition
from ottla.replication.ports.thread_work import done
from ottla.replication.remote.counters import RemoteCounters
from ottla.replication.remote.positions import CopiesOf, refresh
from ottla.storage.disk.background import Background
from ottla.storage.disk.leader_epochs import decode_leader_epochs
from ottla.storage.errors import CorruptCheckpoint, CorruptIndex, CorruptSnapshot
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.truncations import RemoteRecords
from ottla.storage.producers.snapshot import check_snapshot
from ottla.storage.remote.entries import SegmentEntry, TopicIdPartition
from ottla.storage.remote.index_checks import check_index
from ottla.storage.remote.lineage import Epochs, epoch_of, epochs_between, is_in_lineage, with_records
from ottla.storage.remote.memory_budget import READ_COPIES, MemoryBudget
from ottla.storage.remote.ports import IndexKind, RemoteLogMetadata, RemoteStore, RemoteStoreError

MOST_AT_ONCE: Final = 8
"""Logs that begin behind remote records at the same time. Their indexes are in memory meanwhile, and a lost disk may have had thousands."""
_KINDS: Final = IndexKind.LEADER_EPOCH, IndexKind.PRODUCER_SNAPSHOT
"""Read at once."""
_CHECK_PRODUCERS = "remote-producers"


class AuxState(NamedTuple):
    """The state of a log at `offset`, behind a remote segment. `producers` is the content of the snapshot's file."""

    offset: int
    leader_epochs: list[tuple[int, int]]
    producers: bytes


class AuxStates:
    """Reads the state of remote segments and begins logs with it."""

    __slots__ = ("_background", "_budget", "_metadata", "_slots", "_store", "counters", "on_tier")

    def __init__(
        self,
        store: RemoteStore,
        metadata: RemoteLogMetadata,
        background: Background,
        counters: RemoteCounters,
        on_tier: Callable[[Partition], None],
        budget: MemoryBudget,
    ) -> None:
        self._budget = budget
        self._store = store
        self._metadata = metadata
        self._background = background
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)
        self.counters = counters
        self.on_tier = on_tier
        """Called when a follower learns that its log has a remote part, so that the metadata of it are read."""

    @asynccontextmanager
    async def state_at(self, log: PartitionLog, epochs: Epochs, offset: int, log_end_offset: int) -> AsyncIterator[AuxState]:
        """Reads the state, and holds a slot and the memory for it until the caller has begun the log. Raises as `_find` and `_read`.

        Waits for the metadata, which a new replica has only begun to follow; without a slot, since that may take long.
        """
        await self._metadata.when_ready(_of(log))
        async with self._slots:
            entry = self._find(log, epochs, offset, log_end_offset)
            sizes = await asyncio.gather(*(self._store.index_size(entry, kind) for kind in _KINDS))
            async with self._budget.reserved(READ_COPIES * sum(sizes), is_read=True):
                yield await self._read(log, entry, sizes)

    def _find(self, log: PartitionLog, epochs: Epochs, offset: int, log_end_offset: int) -> SegmentEntry:
        """Finds the segment whose state is that behind the remote segment of the leader's log that has the offset.

        `epochs` are those of the leader, from that of the offset on, and `log_end_offset` is its end. Raises RemoteStoreError if there is
        no such segment (yet), and MetadataNotReady.
        """
        partition = _of(log)
        lineage = with_records(epochs)
        epoch = epoch_of(lineage, offset)
        accepts = partial(is_in_lineage, log_end_offset=log_end_offset, epochs=lineage)
        entry = None if epoch is None else self._metadata.find(partition, epoch, offset, accepts)
        if entry is None:
            raise RemoteStoreError(f"{log.topic_partition}: no segment of the leader's log in the remote store has offset {offset}")
        return entry

    async def _read(self, log: PartitionLog, entry: SegmentEntry, sizes: list[int]) -> AuxState:
        """Reads the state behind a segment, whose parts have these sizes. Raises RemoteStoreError, also if it is damaged."""
        name = f"the segment at offset {entry.start_offset} of {log.topic_partition}"
        try:
            parts = (self._store.index(entry, kind, size) for kind, size in zip(_KINDS, sizes, strict=True))
            checkpoint, producers = await asyncio.gather(*parts)
            check_index(entry, IndexKind.LEADER_EPOCH, checkpoint)
            known = decode_leader_epochs(checkpoint, name)
            await done(partial(self._background.submit, _CHECK_PRODUCERS, partial(_check_producers, entry, producers, name)))
        except (CorruptCheckpoint, CorruptIndex, CorruptSnapshot) as error:
            raise RemoteStoreError(str(error)) from error
        return AuxState(entry.end_offset + 1, known, producers)

    async def begin(self, log: PartitionLog, state: AuxState, log_start_offset: int, is_current: Callable[[], bool]) -> None:
        """Empties the log, so that it begins behind the remote records, of which the first is at `log_start_offset`.

        It has their producers before it takes any record, also as a leader. Raises LogDirFailure; and MetadataNotReady unless this replica
        follows another leader by then, as `is_current` tells.
        """
        epochs = epochs_between(state.leader_epochs, log_start_offset, state.offset)
        await done(partial(_truncate, log, state, log_start_offset, epochs))
        if is_current():
            refresh(log, CopiesOf(self._metadata, _of(log)))


def _check_producers(entry: SegmentEntry, snapshot: bytes, name: str) -> None:
    """Blocks: a snapshot may have a hundred thousand producers. Raises CorruptIndex, CorruptSnapshot."""
    check_index(entry, IndexKind.PRODUCER_SNAPSHOT, snapshot)
    check_snapshot(snapshot, name)


def _of(log: PartitionLog) -> TopicIdPartition:
    return TopicIdPartition(log.topic_id, *log.topic_partition)


def _truncate(
    log: PartitionLog, state: AuxState, log_start_offset: int, epochs: Epochs, then: Callable[[BaseException | None], None]
) -> None:
    log.truncations.truncate_fully_in_thread(state.offset, then, RemoteRecords(log_start_offset, epochs, state.producers))
