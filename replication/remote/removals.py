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
_FINISHED_SINCE: Final = (SegmentState.COPY_SEGMENT_FINISHED, SegmentState.COPY_SEGMENT_STARTED)


class Removals:
    """Removes segments for the tasks of all partitions."""

    __slots__ = ("_broker_id", "_clock", "_compared_at", "_forget", "_metadata", "_origin", "_store")

    def __init__(
        self, store: RemoteStore, metadata: RemoteLogMetadata, broker_id: int, clock: Clock, forget: Callable[[SegmentEntry], None]
    ) -> None:
        """`forget` removes what this broker keeps of a copy."""
        self._store = store
        self._metadata = metadata
        self._broker_id = broker_id
        self._clock = clock
        self._forget = forget
        self._compared_at: int | None = None
        self._origin: tuple[int, int] | None = None
        """The store's time when this broker's `elapsed_ms` was 0, milliseconds: between these two. None if the store has no clock."""

    async def remove(self, entry: SegmentEntry, check: Callable[[], object]) -> None:
        """Removes one segment. `check` is called after every wait, and ends the work by an exception.

        No object is deleted before the deletion's begin is applied, so no reader is sent to it any more. An interrupted removal is
        repeated from the beginning. A copy that was finished since the entry was read stays: it was chosen as one that was given up.
        Raises RemoteStoreError, MetadataWriteFailed, MetadataNotReady.
        """
        await self.compare_clocks(self._clock.now_ms())
        check()
        partition, uuid = entry.id
        known = self._metadata.get(partition, uuid)
        if known is None or (known.state, entry.state) == _FINISHED_SINCE:
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
        self._forget(known)
        await self._store.delete(known)
        check()
        await self._publish(entry.id, SegmentState.DELETE_SEGMENT_FINISHED)

    async def compare_clocks(self, now_ms: int) -> None:
        """Raises StoreClockApart if `now_ms`, by this broker's clock, is a wrong time: by that, copies seem older than they are.

        A clock that is set between two questions to the store is noticed, too. Raises RemoteStoreError if the store does not answer.
        """
        elapsed = elapsed_ms(self._clock)
        if self._compared_at is None or elapsed - self._compared_at > CHECK_MS:
            of_store = await self._store.now_ms()
            self._origin = None if of_store is None else (of_store - elapsed_ms(self._clock), of_store - elapsed)
            self._compared_at = elapsed
        if self._origin is None:
            return
        earliest, latest = self._origin
        apart_ms = max(earliest + elapsed - now_ms, now_ms - latest - elapsed)
        if apart_ms > MOST_APART_MS:
            raise StoreClockApart(
                f"the clocks of this broker and of the remote store differ by {apart_ms // 1000} s, more than "
                f"{MOST_APART_MS // 1000} s: no copy is removed; correct the clock that is wrong"
            )

    async def _publish(self, segment: SegmentId, state: SegmentState) -> None:
        await self._metadata.update(SegmentUpdate(segment, self._broker_id, self._clock.now_ms(), state))
