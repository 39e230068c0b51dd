"""Tracks the remote partitions of one Fetch or ShareFetch: what is being read for them, and what could not be read.

All remote partitions of a fetch are started, as far as its byte limit reaches. The fetch answers as soon as one has records. The reads
for the others go on, and the next fetch finds their results in the cache. An error of the store is answered at the end of the fetch's
wait only, because clients repeat a fetch with such an error at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from ottla.broker.fetching.fetch_session import SessionPartition
from ottla.protocol.errors import ErrorCode
from ottla.replication.leader.partition import Partition
from ottla.replication.reading.fetch_read import FetchParams
from ottla.replication.reading.remote_read import RemoteReads, Wanted, find_records, note_offsets, read_remote
from ottla.storage.remote.chunk_loads import TooManyReads
from ottla.storage.remote.ports import MetadataNotReady, RemoteStoreError
from ottla.storage.remote.segment_reader import NotHere
from ottla.storage.segment.file_region import FileRegion
from ottla.storage.segment.transaction_index import AbortedTransaction

NO_ERROR: Final = int(ErrorCode.NONE)
STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
NOT_READY: Final = int(ErrorCode.REPLICA_NOT_AVAILABLE)


class RemoteFetch:
    """The remote partitions of one Fetch. `wake` has the fetch read again."""

    __slots__ = ("_client", "_failed", "_pending", "_planned", "_reads", "_wake", "has_records")

    def __init__(self, reads: RemoteReads, client: Hashable, wake: Callable[[], None]) -> None:
        """`client` is the connection: readers of several connections have turns."""
        self._reads = reads
        self._wake: Callable[[], None] | None = wake
        self._client = client
        self._pending: dict[Partition, asyncio.Future[None]] = {}
        self._failed: dict[Partition, int] = {}
        self._planned = 0
        self.has_records = False
        """Whether the present reading found records of a remote partition."""

    @property
    def max_wait_ms(self) -> int:
        """Returns the time for which the fetch may wait."""
        return self._reads.max_wait_ms()

    def begin(self) -> None:
        """Begins another reading of all partitions."""
        self._planned = 0
        self.has_records = False

    def read(self, asked: SessionPartition, partition: Partition, params: FetchParams, cuts_first: bool, is_last: bool) -> int:
        """Reads one partition, or begins to get what that needs. Returns an error code, which is NONE until the reading `is_last`.

        Raises ColdRead and StorageError.
        """
        note_offsets(partition, asked)

        def read() -> bool:
            read_remote(self._reads, partition, asked, params, (self._client, asked.topic, asked.index), cuts_first)
            return asked.region is not None

        return self._try(partition, asked.max_bytes, params.left, is_last, read)

    def find(
        self, partition: Partition, wanted: Wanted, left: int, reader: Hashable, is_last: bool
    ) -> tuple[int, FileRegion | None, list[AbortedTransaction]]:
        """Finds records of a share partition: an error code as above, and the result of `find_records`.

        The fetch takes `left` bytes of all partitions. Raises ColdRead, StorageError.
        """
        found: list[tuple[FileRegion | None, list[AbortedTransaction]]] = [(None, [])]

        def read() -> bool:
            found[0] = find_records(self._reads, partition.log, wanted, reader)
            return found[0][0] is not None

        code = self._try(partition, wanted.max_bytes, left, is_last, read)
        return code, *found[0]

    def _try(self, partition: Partition, max_bytes: int, left: int, is_last: bool, read: Callable[[], bool]) -> int:
        """Reads, which tells if there were records, or begins to get what that needs. At most `left` bytes are begun."""
        code = self._failed.get(partition)
        if code is not None:
            return code if is_last else NO_ERROR
        pending = self._pending.get(partition)
        if pending is not None and not pending.done():
            self._planned += max_bytes
            return NO_ERROR
        try:
            self.has_records = read() or self.has_records
        except NotHere as missing:
            if not is_last and (not self._planned or self._planned < left):
                self._begin(partition, max_bytes, missing)
        except MetadataNotReady:
            return self._fail(partition, NOT_READY, is_last)
        except RemoteStoreError as error:
            return self._fail(partition, STORAGE_ERROR, is_last, error)
        return NO_ERROR

    def end(self) -> None:
        """Forgets the fetch, which is answered or whose client has left."""
        self._wake = None
        self._pending.clear()

    def _begin(self, partition: Partition, max_bytes: int, missing: NotHere) -> None:
        try:
            pending = missing.load(self._client)
        except TooManyReads:
            return  # it is tried again when another partition has something, or by the next fetch
        self._planned += max_bytes
        self._pending[partition] = pending
        pending.add_done_callback(partial(self._on_done, partition))

    def _on_done(self, partition: Partition, pending: asyncio.Future[None]) -> None:
        if self._wake is None or self._pending.get(partition) is not pending:
            return
        error = None if pending.cancelled() else pending.exception()
        if error is None:
            self._wake()
        else:
            self._fail(partition, STORAGE_ERROR, False, error)

    def _fail(self, partition: Partition, code: int, is_last: bool, error: BaseException | None = None) -> int:
        if error is not None:
            self._reads.report(partition.log, error)
        self._failed[partition] = code
        return code if is_last else NO_ERROR
