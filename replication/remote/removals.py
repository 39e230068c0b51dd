"""Removes segments from the remote store: publishes that the deletion begins, deletes the objects, publishes the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.storage.disk.clock import Clock, elapsed_ms
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, SegmentUpdate
from ottla.storage.remote.ports import MetadataWriteFailed, RemoteLogMetadata, RemoteStore, StoreClockApart

MOST_APART_MS: Final = 5 * 60 * 1000
"""Difference between the clocks of the store and of this broker up to which copies are removed."""
CHECK_MS: Final = 60 * 1000
"""How long a comparison of the clocks is valid."""


class Removals:
    """Removes segments for the tasks of all partitions."""

    __slots__ = ("_apart_ms", "_broker_id", "_clock", "_compared_at", "_metadata", "_store")

    def __init__(self, store: RemoteStore, metadata: RemoteLogMetadata, broker_id: int, clock: Clock) -> None:
        self._store = store
        self._metadata = metadata
        self._broker_id = broker_id
        self._clock = clock
        self._apart_ms = 0
        self._compared_at: float | None = None

    async def remove(self, entry: SegmentEntry, check: Callable[[], object]) -> None:
        """Removes one segment. `check` is called after every wait, and ends the work by an exception.

        No object is deleted before the deletion's begin is applied, so no reader is sent to it any more. An interrupted removal is
        repeated from the beginning. Raises RemoteStoreError, MetadataWriteFailed, MetadataNotReady.
        """
        await self._compare_clocks()
        check()
        partition, uuid = entry.id
        known = self._metadata.get(partition, uuid)
        if known is None:
            return
        if known.state != SegmentState.DELETE_SEGMENT_STARTED:
            await self._publish(entry.id, SegmentState.DELETE_SEGMENT_STARTED)
            check()
            known = self._metadata.get(partition, uuid)
            if known is None:
                return
            if known.state != SegmentState.DELETE_SEGMENT_STARTED:
                raise MetadataWriteFailed(
                    f"the deletion of segment {uuid.hex()} of {partition.topic}-{partition.partition} was not applied"
                )
        await self._store.delete(known)
        check()
        await self._publish(entry.id, SegmentState.DELETE_SEGMENT_FINISHED)

    async def _compare_clocks(self) -> None:
        """Raises StoreClockApart if a clock is wrong, and RemoteStoreError: by a wrong one, copies seem older than they are."""
        now = elapsed_ms(self._clock)
        if self._compared_at is None or now - self._compared_at > CHECK_MS:
            before = self._clock.now_ms()
            of_store = await self._store.now_ms()
            apart = 0 if of_store is None else max(before - of_store, of_store - self._clock.now_ms(), 0)
            self._apart_ms, self._compared_at = apart, now
        if self._apart_ms > MOST_APART_MS:
            raise StoreClockApart(
                f"the clocks of this broker and of the remote store differ by {self._apart_ms // 1000} s, more than "
                f"{MOST_APART_MS // 1000} s: no copy is removed; correct the clock that is wrong"
            )

    async def _publish(self, segment: SegmentId, state: SegmentState) -> None:
        await self._metadata.update(SegmentUpdate(segment, self._broker_id, self._clock.now_ms(), state))
