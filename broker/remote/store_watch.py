"""Knows whether the remote store answers, for the health of the broker and for operators.

The store is asked now and then, also while nothing is copied or read: a consumer of old records should not be the first to find out. One
failure may be an accident, so the state changes at the second one in a row; refused credentials count at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ottla.storage.remote.ports import RemoteStore, RemoteStoreDenied, RemoteStoreError

logger = logging.getLogger(__name__)

ASK_SECONDS: Final = 30.0
"""Time between two questions."""
RETRY_SECONDS: Final = 10.0
"""The same after a failure."""
ANSWER_SECONDS: Final = 15.0
"""Time for an answer."""


class StoreWatch:
    """See the module. `store` is asked. `trouble` says why the store is of no use now; it is empty while the store answers."""

    def __init__(self, store: RemoteStore) -> None:
        self.store = store
        self._failures = 0
        self._asking: asyncio.Task[None] | None = None
        self.trouble = ""

    def begin_degraded(self, reason: str) -> None:
        """Notes that the broker starts without the store."""
        self._failures = 1
        self.trouble = reason

    def start(self) -> None:
        """Asks from now on."""
        self._asking = asyncio.get_running_loop().create_task(self._repeat(), name="health of the remote store")

    async def close(self) -> None:
        """Asks no more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS if self._failures else ASK_SECONDS)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self.store.probe()
            except TimeoutError:
                self._on_failure(f"no answer within {ANSWER_SECONDS:.0f} s", at_once=False)
            except RemoteStoreError as error:
                self._on_failure(str(error), at_once=isinstance(error, RemoteStoreDenied))
            except Exception as error:  # also a fault of this broker must not end the questions
                self._on_failure(f"{type(error).__name__}: {error}", at_once=False)
            else:
                self._on_answer()

    def _on_failure(self, reason: str, *, at_once: bool) -> None:
        self._failures += 1
        if self._failures > 1 or at_once:
            if not self.trouble:
                logger.error("the remote store does not answer, the health of this broker is degraded: %s", reason)
            self.trouble = reason

    def _on_answer(self) -> None:
        if self.trouble:
            logger.info("the remote store answers again")
        self._failures = 0
        self.trouble = ""
