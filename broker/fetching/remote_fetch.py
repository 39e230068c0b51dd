"""Tracks the remote partitions of one Fetch: what is being read for them, and what could not be read.

All remote partitions of a fetch are started, as far as its byte limit reaches. The fetch answers as soon as one has records. The reads
for the others go on, and the next fetch finds their results in the cache. An error of the store is answered at the end of the fetch's
wait only, because clients repeat a fetch with such an error at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from ottla.broker.fetching.fetch_session import SessionPartition
from ottla.protocol.errors import ErrorCode
from ottla.replication.leader.partition import Partition
from ottla.replication.reading.fetch_read import FetchParams
from ottla.replication.reading.remote_read import RemoteReads, note_offsets, read_remote
from ottla.storage.remote.chunk_loads import TooManyReads
from ottla.storage.remote.ports import MetadataNotReady, RemoteStoreError
from ottla.storage.remote.segment_reader import NotHere

logger = logging.getLogger(__name__)

NO_ERROR: Final = int(ErrorCode.NONE)
STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
NOT_READY: Final = int(ErrorCode.REPLICA_NOT_AVAILABLE)


class RemoteFetch:
    """The remote partitions of one Fetch. `wake` has the fetch read again."""

    __slots__ = ("_client", "_failed", "_has_expired", "_pending", "_planned", "_reads", "_wake", "has_records")

    def __init__(self, reads: RemoteReads, client: Hashable, wake: Callable[[], None]) -> None:
        """`client` is the connection: readers of several connections have turns."""
        self._reads = reads
        self._wake: Callable[[], None] | None = wake
        self._client = client
        self._pending: dict[SessionPartition, asyncio.Future[None]] = {}
        self._failed: dict[SessionPartition, int] = {}
        self._planned = 0
        self._has_expired = False
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
        if is_last and not self._has_expired:
            self._has_expired = True
            self._reads.expirations += 1
        note_offsets(partition, asked)
        code = self._failed.get(asked)
        if code is not None:
            return code if is_last else NO_ERROR
        pending = self._pending.get(asked)
        if pending is not None and not pending.done():
            self._planned += asked.max_bytes
            return NO_ERROR
        try:
            read_remote(self._reads, partition, asked, params, (self._client, asked.topic, asked.index), cuts_first)
        except NotHere as missing:
            if not is_last and (not self._planned or self._planned < params.left):
                self._begin(asked, missing)
        except MetadataNotReady:
            return self._fail(asked, NOT_READY, is_last)
        except RemoteStoreError as error:
            return self._fail(asked, STORAGE_ERROR, is_last, error)
        else:
            self.has_records = self.has_records or asked.region is not None
        return NO_ERROR

    def end(self) -> None:
        """Forgets the fetch, which is answered or whose client has left."""
        self._wake = None
        self._pending.clear()

    def _begin(self, asked: SessionPartition, missing: NotHere) -> None:
        try:
            pending = missing.load(self._client)
        except TooManyReads:
            return  # it is tried again when another partition has something, or by the next fetch
        self._planned += asked.max_bytes
        self._pending[asked] = pending
        pending.add_done_callback(partial(self._on_done, asked))

    def _on_done(self, asked: SessionPartition, pending: asyncio.Future[None]) -> None:
        if self._wake is None or self._pending.get(asked) is not pending:
            return
        error = None if pending.cancelled() else pending.exception()
        if error is None:
            self._wake()
        else:
            self._fail(asked, STORAGE_ERROR, False, error)

    def _fail(self, asked: SessionPartition, code: int, is_last: bool, error: BaseException | None = None) -> int:
        if error is not None:
            logger.debug("%s-%d at offset %d cannot be read from the remote store: %s", asked.name, asked.index, asked.offset, error)
        self._failed[asked] = code
        return code if is_last else NO_ERROR
