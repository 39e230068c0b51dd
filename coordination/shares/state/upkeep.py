"""Deletes the records of `__share_group_state` that are no longer needed, by moving the log start: up to the oldest last snapshot that all
in-sync replicas have. A later one is lost with this broker.

A share partition that is not written for a long time would keep all later records of the others. So it gets a new snapshot from time to
time, as long as others of the same log are written. The states of deleted topics get tombstones: when the topics are deleted, and later
those that were with another coordinator then.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable

from ottla.coordination.partitions.owned import OwnedPartition, OwnedStates
from ottla.coordination.partitions.periodic import PeriodicChecks
from ottla.coordination.partitions.topic_log import TopicLog
from ottla.coordination.shares.state.stored_state import SharePartitionKey, StoredState
from ottla.pauses import pause
from ottla.replication.errors import ReplicationError
from ottla.replication.waiting.timing_wheel import TimingWheel
from ottla.storage.disk.clock import Clock
from ottla.storage.errors import StorageError

logger = logging.getLogger(__name__)


class ShareStateUpkeep:
    """See the module. Owned by the coordinator."""

    def __init__(
        self,
        owned: OwnedStates[StoredState],
        log: TopicLog,
        timing_wheel: TimingWheel,
        clock: Clock,
        write_snapshot: Callable[[StoredState], None],
        write_tombstone: Callable[[StoredState], None],
        is_gone: Callable[[OwnedPartition, SharePartitionKey], bool],
        *,
        prune_interval_ms: int,
        cold_interval_ms: int,
    ) -> None:
        self._owned = owned
        self._log = log
        self._clock = clock
        self._write_snapshot = write_snapshot
        self._write_tombstone = write_tombstone
        self._is_gone = is_gone
        self._cold_interval_ms = cold_interval_ms
        self.checks = PeriodicChecks(
            "share-state-upkeep",
            timing_wheel,
            (self.forget_deleted, prune_interval_ms),
            (self.prune, prune_interval_ms),
            (self.snapshot_cold, cold_interval_ms),
        )

    async def prune(self) -> None:
        """Delete what is older than all last snapshots of a partition."""
        for owned in list(self._owned.partitions.values()):
            if owned.is_loading:
                continue
            try:
                oldest = self._log.end_offset(owned.index)  # no snapshot is older than the round, if none is left
                async for state in self._states_of(owned):
                    oldest = min(oldest, state.kept_from)
                if self._owned.partitions.get(owned.index) is owned:
                    self._log.delete_below(owned.index, oldest)
            except (StorageError, ReplicationError) as error:
                logger.warning("%s-%d: old records stay: %s", self._owned.topic, owned.index, error)

    async def snapshot_cold(self) -> None:
        """Write snapshots of the states that were not written in the last interval, where others were."""
        last_ms = self._clock.now_ms() - self._cold_interval_ms
        for owned in list(self._owned.partitions.values()):
            if owned.is_loading:
                continue
            cold: list[StoredState] = []
            total = 0
            async for state in self._states_of(owned):
                total += 1
                if state.written_ms <= last_ms:
                    cold.append(state)
            if len(cold) == total:
                continue
            for state in cold:
                await pause()
                if self._owned.partitions.get(owned.index) is owned and owned.states.get(str(state.key)) is state:
                    self._write_snapshot(state)

    async def forget_deleted(self) -> None:
        """Delete the states of partitions that do not exist."""
        for owned in list(self._owned.partitions.values()):
            gone = [state async for state in self._states_of(owned) if self._is_gone(owned, state.key)]
            for state in gone:
                await pause()
                if owned.states.get(str(state.key)) is state and self._is_gone(owned, state.key):
                    self._write_tombstone(state)

    async def _states_of(self, owned: OwnedPartition) -> AsyncIterator[StoredState]:
        """The states of a partition, some in each turn of the event loop."""
        for state in owned.states.each():
            yield state
            await pause()
