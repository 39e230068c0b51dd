"""Allocates producer ids for InitProducerId from blocks of 1000 that the controller allocates. Kafka's
ProducerIdManager.

Owned by the server, called by the InitProducerId handler. The next block is fetched when a tenth of the current one is
left, so that requests need not wait. A request that finds no id waits for the one fetch in progress.

Invariant: no id is allocated twice, even across a restart: the rest of a block is then lost.

Wiring: `ProducerIds(cluster_wiring.producer_id_block)`; `await producer_ids.stop()` before the channel to the
controller closes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from ottla.controller.errors import ControllerError
from ottla.controller.znodes.changes import ProducerIdBlock
from ottla.replication.ports.peer import PeerUnavailable

logger = logging.getLogger(__name__)

PREFETCH_AT = 0.9
"""Used part of a block at which the next one is fetched."""


class ProducerIds:
    """See the module. `allocate` gives the next block; PeerUnavailable and ControllerError mean that there is none now."""

    __slots__ = ("_allocate", "_block", "_fetching", "_following", "_next", "_trouble", "_waiting")

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._block: ProducerIdBlock | None = None
        self._following: ProducerIdBlock | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._next = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._trouble = ""
        """Why the last fetch failed, so that each reason is logged once: producers ask again many times a second."""

    def next_now(self) -> int | None:
        """A new id, or None when a block has to be fetched first; the fetch is then started."""
        block = self._block
        if block is None or self._next > block.last:
            block = self._block = self._following
            self._following = None
            if block is None:
                self._fetch()
                return None
            self._next = block.first
        producer_id = self._next
        self._next += 1
        if self._following is None and producer_id - block.first >= (block.last - block.first) * PREFETCH_AT:
            self._fetch()
        return producer_id

    def when_next(self, then: Callable[[], None]) -> None:
        """Call `then` as soon as `next_now` gives an id, or the controller gave no block; at once when there is an id."""
        if self._has_next():
            then()
        else:
            self._waiting.append(then)
            self._fetch()

    def _has_next(self) -> bool:
        block = self._block
        return (block is not None and self._next <= block.last) or self._following is not None

    async def stop(self) -> None:
        """Stop fetching."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    def _fetch(self) -> None:
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.get_running_loop().create_task(self._fetch_blocks(), name="producer-id-block")

    async def _fetch_blocks(self) -> None:
        """Fetch a block, and more while requests wait."""
        while await self._fetch_block():
            while self._waiting and self._has_next():
                _call(self._waiting.popleft())
            if not self._waiting:
                return
        waiting, self._waiting = self._waiting, deque()
        for then in waiting:
            _call(then)

    async def _fetch_block(self) -> bool:
        try:
            self._following = await self._allocate()
        except (PeerUnavailable, ControllerError) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                logger.warning("no block of producer ids from the controller, clients will ask again: %s", error)
            return False
        except Exception:
            # An internal error, in a task of which only the yes or no is read.
            logger.exception("no block of producer ids, clients will ask again")
            return False
        if self._trouble:
            self._trouble = ""
            logger.info("the controller gives blocks of producer ids again")
        return True


def _call(then: Callable[[], None]) -> None:
    try:
        then()
    except Exception:
        logger.exception("a request for a producer id failed; the others go on")
