"""Keeps a broker from writing to the remote store of another cluster, also one that has started while the store did not answer.

Nothing is copied or removed before the store has named this cluster as its owner. If it names another one, nothing is until the broker is
started again: its segments would be mixed with those of that cluster, and either could remove what the other needs.

Lives on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping

from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.ports import MAX_INDEX_BYTES, OWNER_NAME, IndexKind, RemoteStore, RemoteStoreError, SegmentFiles, StoredObject

logger = logging.getLogger(__name__)


class OtherOwner(RemoteStoreError):
    """The store belongs to another cluster."""


async def check_owner(store: RemoteStore, cluster_id: str, claim: str | None = None) -> None:
    """Raises OtherOwner if the store belongs to another cluster. One without an owner belongs to the cluster `claim`, if that is given."""
    owner = await store.owner(claim)
    if owner not in (None, cluster_id):
        raise OtherOwner(
            f"the remote store belongs to the cluster {owner}, as its object {OWNER_NAME} says, and this is the cluster {cluster_id}: "
            "give each cluster a bucket, a directory or a key.prefix of its own"
        )


class ClaimedStore:
    """The RemoteStore `store` for one cluster; see the module. A call that writes asks for the owner first, until that is known."""

    def __init__(self, store: RemoteStore, cluster_id: str, *, is_ours: bool = False) -> None:
        """`is_ours` tells that the owner was checked."""
        self._store = store
        self._cluster_id = cluster_id
        self._is_ours = is_ours
        self._refusal = ""
        """Says that the store belongs to another cluster."""
        self._asking: asyncio.Task[RemoteStoreError | None] | None = None
        """The newest question, whose answer is for all who wait."""
        self.chunk_bytes = store.chunk_bytes
        self.copy_bytes = store.copy_bytes
        self.save_bytes = store.save_bytes

    async def copy(self, entry: SegmentEntry, files: SegmentFiles) -> bytes | None:
        """See RemoteStore."""
        await self._make_sure()
        return await self._store.copy(entry, files)

    async def fetch(self, entry: SegmentEntry, start: int, end: int) -> bytes | memoryview:
        """See RemoteStore."""
        return await self._store.fetch(entry, start, end)

    async def index(self, entry: SegmentEntry, kind: IndexKind, most: int = MAX_INDEX_BYTES) -> bytes:
        """See RemoteStore."""
        return await self._store.index(entry, kind, most)

    async def index_size(self, entry: SegmentEntry, kind: IndexKind) -> int:
        """See RemoteStore."""
        return await self._store.index_size(entry, kind)

    async def save_indexes(self, entry: SegmentEntry, paths: Mapping[IndexKind, str]) -> None:
        """See RemoteStore."""
        await self._store.save_indexes(entry, paths)

    async def manifest(self, entry: SegmentEntry) -> bytes | None:
        """See RemoteStore."""
        return await self._store.manifest(entry)

    async def size(self, entry: SegmentEntry) -> int:
        """See RemoteStore."""
        return await self._store.size(entry)

    async def delete(self, entry: SegmentEntry) -> None:
        """See RemoteStore."""
        await self._make_sure()
        await self._store.delete(entry)

    async def probe(self) -> None:
        """See RemoteStore. Also raises if the store belongs to another cluster: then it is of no use here, whatever it answers."""
        await self._store.probe()
        await self._make_sure()

    async def now_ms(self) -> int | None:
        """See RemoteStore. The store of objects writes one for that."""
        await self._make_sure()
        return await self._store.now_ms()

    async def owner(self, claim: str | None = None) -> str | None:
        """See RemoteStore."""
        return await self._store.owner(claim)

    def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        """See RemoteStore."""
        return self._store.list(prefix)

    async def close(self) -> None:
        """See RemoteStore."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait((self._asking,))
        await self._store.close()

    async def _make_sure(self) -> None:
        """Returns if the store is that of this cluster. Raises RemoteStoreError if that is not known, and OtherOwner."""
        if self._is_ours:
            return
        if self._refusal:
            raise OtherOwner(self._refusal)
        asking = self._asking
        if asking is None or asking.done():
            asking = self._asking = asyncio.get_running_loop().create_task(self._ask(), name="owner of the remote store")
        await asyncio.wait((asking,))
        if asking.cancelled():
            raise RemoteStoreError("the remote store was closed")
        failure = asking.result()
        if failure is not None:
            raise failure

    async def _ask(self) -> RemoteStoreError | None:
        """Asks for the owner once, and returns what speaks against a write."""
        try:
            await check_owner(self._store, self._cluster_id, self._cluster_id)
        except OtherOwner as error:
            self._refusal = str(error)
            logger.error("nothing is copied to the remote store or removed there, until this broker is started again: %s", error)
            return error
        except RemoteStoreError as error:
            return error
        self._is_ours = True
        return None
