"""Stores the znode tree in a SQLite file that the broker processes of one host share; needs neither ZooKeeper nor Java.

Only the thread of `embedded_worker` touches the file. The event loop posts requests to the thread and receives results,
so that a slow disk never stalls a Produce.
"""

import asyncio
from collections.abc import Callable, Sequence

from ottla.controller.errors import SessionExpired, StoreError
from ottla.controller.store.embedded_worker import EmbeddedWorker
from ottla.controller.store.metadata_store import MetadataStore, Request, Result
from ottla.storage.disk.clock import Clock


class EmbeddedStore(MetadataStore):
    """One client of the file. Belongs to the event loop that opened its session."""

    def __init__(self, path: str, clock: Clock, session_timeout_ms: int = 18_000) -> None:
        """`path` is the file; its directory exists. Nothing is opened before `open_session`."""
        self.path = path
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._session_id = 0
        self._worker: EmbeddedWorker | None = None
        self._on_expired: list[Callable[[], None]] = []
        self.is_durable = True
        """Whether writes survive a power cut; may be changed before `open_session`."""

    @property
    def session_id(self) -> int:
        """See MetadataStore."""
        return self._session_id

    async def open_session(self) -> int:
        """See MetadataStore. Raises StoreUnavailable."""
        if self._worker is None:
            loop = asyncio.get_running_loop()
            self._worker = EmbeddedWorker(self.path, self._clock, self._session_timeout_ms, loop, self._expired, is_durable=self.is_durable)
        if not self._session_id:
            self._session_id = await self._worker.submit(self._worker.begin_session)
        return self._session_id

    async def close(self) -> None:
        """See MetadataStore."""
        worker, self._worker = self._worker, None
        self._session_id = 0
        if worker is not None:
            await worker.stop()

    def on_session_expired(self, callback: Callable[[], None]) -> None:
        """See MetadataStore."""
        self._on_expired.append(callback)

    async def other_sessions(self) -> list[str]:
        """See MetadataStore. Raises SessionExpired, StoreUnavailable."""
        if self._worker is None:
            raise SessionExpired("")
        return [f"process {pid}" for pid in await self._worker.submit(self._worker.other_owners)]

    async def pipeline(self, requests: Sequence[Request]) -> list[Result | StoreError]:
        """See MetadataStore. Raises StoreUnavailable when the file cannot be written; then none of the requests was
        carried out."""
        worker = self._worker
        if worker is None or not self._session_id:
            raise SessionExpired("")
        session_id = self._session_id
        try:
            return await worker.submit(lambda: worker.carry_out(session_id, requests))
        except SessionExpired:
            # the session may end before `open_session` returns, and the worker's report then finds no session here
            self._expired(session_id)
            raise

    def _expired(self, session_id: int) -> None:
        if session_id == self._session_id:
            self._session_id = 0
            for callback in self._on_expired:
                callback()
