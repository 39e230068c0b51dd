"""Implements the port to the metadata of remote segments (`RemoteLogMetadata`) on the topic `__remote_log_metadata`.

Kafka's TopicBasedRemoteLogMetadataManager. Lookups are answered from memory, for the partitions whose records have been read. A write has
succeeded when this broker's own reader has taken it in; a caller looks the entry up to see if the record was applied.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.broker.remote.metadata.reader import MetadataReader
from ottla.broker.remote.metadata.writer import MetadataWriter
from ottla.protocol.schema.wire import ProtocolError
from ottla.storage.remote.entries import Accepts, SegmentEntry, SegmentId, SegmentState, SegmentUpdate, TopicIdPartition, any_copy
from ottla.storage.remote.metadata.records import encode_entry, encode_update
from ottla.storage.remote.metadata.segment_cache import SegmentCache, SegmentEntries
from ottla.storage.remote.ports import MetadataNotReady, MetadataWriteFailed

_MS: Final = 1000


class TopicMetadata:
    """See the module."""

    def __init__(self, reader: MetadataReader, writer: MetadataWriter, consume_wait_ms: int) -> None:
        self.reader = reader
        self.writer = writer
        self._consume_wait_ms = consume_wait_ms
        self.failed_writes = 0

    def start(self) -> None:
        """Begins to read."""
        self.reader.start()

    async def close(self) -> None:
        """Gives up writes, stops reading, and writes snapshots."""
        await self.writer.close()
        await self.reader.close()

    # -- RemoteLogMetadata -------------------------------------------------------------------------------------------------

    def follow(self, partition: TopicIdPartition) -> None:
        """See RemoteLogMetadata."""
        self.reader.follow(partition)

    def unfollow(self, partition: TopicIdPartition) -> None:
        """See RemoteLogMetadata."""
        self.reader.unfollow(partition)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """See RemoteLogMetadata."""
        log = self.reader.log_of(partition)
        return log is not None and log.cache_of(partition) is not None

    async def when_ready(self, partition: TopicIdPartition) -> None:
        """See RemoteLogMetadata."""
        log = self.reader.log_of(partition)
        if log is None:
            raise MetadataNotReady(f"the metadata of {partition.topic}-{partition.partition} are not followed")
        ready = asyncio.get_running_loop().create_future()
        log.when_ready(partition, ready)
        await ready

    async def add(self, entry: SegmentEntry) -> None:
        """See RemoteLogMetadata."""
        if entry.state is not SegmentState.COPY_SEGMENT_STARTED:
            raise MetadataWriteFailed(f"a new entry has the state {entry.state.name}")
        await self._write(entry.id.partition, entry)

    async def update(self, update: SegmentUpdate) -> None:
        """See RemoteLogMetadata."""
        await self._write(update.id.partition, update)

    def find(self, partition: TopicIdPartition, epoch: int, offset: int, accepts: Accepts = any_copy) -> SegmentEntry | None:
        """See RemoteLogMetadata."""
        return self._cache(partition).find(epoch, offset, accepts)

    def get(self, partition: TopicIdPartition, uuid: bytes) -> SegmentEntry | None:
        """See RemoteLogMetadata."""
        return self._cache(partition).get(uuid)

    def marked(self, partition: TopicIdPartition) -> SegmentEntry | None:
        """See RemoteLogMetadata."""
        return self._cache(partition).marked()

    def is_finished(self, segment: SegmentId) -> bool:
        """Tells if the copy is known, and consumers may read it."""
        log = self.reader.log_of(segment.partition)
        cache = None if log is None else log.cache_of(segment.partition)
        known = None if cache is None else cache.get(segment.uuid)
        return known is not None and known.state is SegmentState.COPY_SEGMENT_FINISHED

    def highest_offset(self, partition: TopicIdPartition, epoch: int) -> int | None:
        """See RemoteLogMetadata."""
        return self._cache(partition).highest_offset(epoch)

    def epochs(self, partition: TopicIdPartition) -> list[int]:
        """See RemoteLogMetadata."""
        return list(self._cache(partition).epochs)

    def entries(self, partition: TopicIdPartition, epoch: int) -> SegmentEntries:
        """See RemoteLogMetadata."""
        return self._cache(partition).entries(epoch)

    def unfinished(self, partition: TopicIdPartition, epoch: int) -> SegmentEntries:
        """See RemoteLogMetadata."""
        return self._cache(partition).unfinished(epoch)

    def all_entries(self, partition: TopicIdPartition) -> SegmentEntries:
        """See RemoteLogMetadata."""
        return self._cache(partition).all_entries()

    # -- steps -------------------------------------------------------------------------------------------------------------

    def _cache(self, partition: TopicIdPartition) -> SegmentCache:
        log = self.reader.log_of(partition)
        cache = None if log is None else log.cache_of(partition)
        if cache is None:
            raise MetadataNotReady(f"the metadata of {partition.topic}-{partition.partition} have not been read yet")
        return cache

    async def _write(self, partition: TopicIdPartition, what: SegmentEntry | SegmentUpdate) -> None:
        try:
            await self._write_and_read(partition, what)
        except MetadataWriteFailed:
            self.failed_writes += 1
            raise

    async def _write_and_read(self, partition: TopicIdPartition, what: SegmentEntry | SegmentUpdate) -> None:
        loop = asyncio.get_running_loop()
        log = self.reader.log_of(partition)
        if log is None:
            raise MetadataWriteFailed(f"{partition.topic}-{partition.partition} is not followed")
        deadline = loop.time() + self._consume_wait_ms / _MS
        try:
            value = encode_entry(what) if isinstance(what, SegmentEntry) else encode_update(what)
        except ProtocolError as error:
            raise MetadataWriteFailed(f"the record cannot be written: {error}") from None
        offset = await self.writer.write(log.index, value, deadline)
        applied = loop.create_future()
        log.when_applied(offset, applied)
        try:
            async with asyncio.timeout_at(deadline):
                await applied
        except TimeoutError:
            raise MetadataWriteFailed(f"{log.name}: this broker did not read its record at offset {offset} in time") from None
