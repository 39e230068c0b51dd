"""Producer ids for InitProducerId: every broker hands out ids of blocks of 1000 that the controller allots. Kafka's ProducerIdManager.

Owned by the server, called by the InitProducerId handler. The next block is fetched when a tenth of the
present one is left, so that nobody waits for it; who comes when there is none waits for the one fetch that is under way.

Invariant: no id is handed out twice, also not after a restart: what is left of a block is lost then.

Wiring: `ProducerIds(cluster_wiring.producer_id_block)`; `await producer_ids.stop()` before the way to the controller ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from controller.errors import ControllerError
from controller.znodes.changes import ProducerIdBlock
from replication.ports.peer import PeerUnavailable

logger = logging.getLogger(__name__)

PREFETCH_AT = 0.9
"""How much of a block is used up when the next is fetched."""


class ProducerIds:
    """See the module. `allocate` gives the next block; PeerUnavailable and ControllerError mean that there is none now."""

    __slots__ = ("_allocate", "_block", "_fetching", "_following", "_next")

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._block: ProducerIdBlock | None = None
        self._following: ProducerIdBlock | None = None
        self._fetching: asyncio.Task[bool] | None = None
        self._next = 0

    def next_now(self) -> int | None:
        """An id that nobody had, or None when a block has to be fetched first, which this begins."""
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

    async def next(self) -> int | None:
        """An id that nobody had; None when the controller gave no block."""
        while (producer_id := self.next_now()) is None:
            assert self._fetching is not None
            # Shielded: a client that goes away does not take the block away from the others who wait for it.
            if not await asyncio.shield(self._fetching):
                return None
        return producer_id

    async def stop(self) -> None:
        """Fetch no more."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    def _fetch(self) -> None:
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.get_running_loop().create_task(self._fetch_block(), name="producer-id-block")

    async def _fetch_block(self) -> bool:
        try:
            self._following = await self._allocate()
        except (PeerUnavailable, ControllerError) as error:
            logger.warning("no block of producer ids from the controller, clients will ask again: %s", error)
            return False
        except Exception:
            # A fault of ours, in a task whose outcome is only looked at as yes or no.
            logger.exception("no block of producer ids, clients will ask again")
            return False
        return True
