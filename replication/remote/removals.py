"""Removes segments from the remote store: publishes that the deletion begins, deletes the objects, publishes the end."""

from __future__ import annotations

from collections.abc import Callable

from ottla.storage.disk.clock import Clock
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, SegmentUpdate
from ottla.storage.remote.ports import MetadataWriteFailed, RemoteLogMetadata, RemoteStore


class Removals:
    """Removes segments for the tasks of all partitions."""

    __slots__ = ("_broker_id", "_clock", "_metadata", "_store")

    def __init__(self, store: RemoteStore, metadata: RemoteLogMetadata, broker_id: int, clock: Clock) -> None:
        self._store = store
        self._metadata = metadata
        self._broker_id = broker_id
        self._clock = clock

    async def remove(self, entry: SegmentEntry, check: Callable[[], object]) -> None:
        """Removes one segment. `check` is called after every wait, and ends the work by an exception.

        No object is deleted before the deletion's begin is applied, so no reader is sent to it any more. An interrupted removal is
        repeated from the beginning. Raises RemoteStoreError, MetadataWriteFailed, MetadataNotReady.
        """
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

    async def _publish(self, segment: SegmentId, state: SegmentState) -> None:
        await self._metadata.update(SegmentUpdate(segment, self._broker_id, self._clock.now_ms(), state))
