"""Keeps the session of a store that has nothing but the ACLs (`authorizer.zookeeper.*`), and closes the store.

The controller renews the sessions of the broker's own store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.controller.errors import SessionExpired, StoreError
from ottla.controller.store.metadata_store import MetadataStore

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.5
"""Pause before the next attempt to begin a session, seconds."""


class AclSession:
    """See the module."""

    def __init__(self, store: MetadataStore, on_new_session: Callable[[], Awaitable[None]], retry_seconds: float = RETRY_SECONDS) -> None:
        self._store = store
        self._on_new_session = on_new_session
        self._retry_seconds = retry_seconds
        self._renewal: asyncio.Task[None] | None = None
        store.on_session_expired(self._on_expired)

    def _on_expired(self) -> None:
        logger.warning("the session with the store of the ACLs ended; changes of ACLs count again in the next one")
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.get_running_loop().create_task(self._renew(), name="acl-session")

    async def _renew(self) -> None:
        while True:
            try:
                session = await self._store.open_session()
                await self._on_new_session()
            except SessionExpired:
                continue
            except Exception as error:  # other errors than StoreError are faults of this broker
                fault = None if isinstance(error, StoreError) else error
                logger.error("the store of the ACLs cannot be reached (%s); trying again", error, exc_info=fault)
                await asyncio.sleep(self._retry_seconds)
                continue
            if self._store.session_id == session:
                return

    async def close(self) -> None:
        """Stop, and close the store."""
        if self._renewal is not None:
            self._renewal.cancel()
        await self._store.close()
