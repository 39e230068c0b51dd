"""Lets administrative requests wait until this broker's metadata cache shows their outcome, as CreateTopics does."""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import TypeVar

from ottla.pauses import pause

T = TypeVar("T")


class MetadataWaits:
    """Waits on conditions of the metadata cache. `notify` is called after every UpdateMetadata that was applied."""

    def __init__(self, on_wait: Callable[[], None] = lambda: None) -> None:
        """`on_wait` is called in the task that is about to wait. A client may ask for a wait of weeks, so the task must release what blocks
        others."""
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self.on_wait = on_wait

    def notify(self) -> None:
        """The cache has changed: complete the waits whose condition holds now."""
        for future, condition in list(self._waiting.items()):
            if not future.done() and condition():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait at most `timeout_ms` until `condition` holds; returns whether it does."""
        if condition():
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = condition
        self.on_wait()
        try:
            await asyncio.wait((future,), timeout=max(0, timeout_ms) / 1000)
        finally:
            del self._waiting[future]
        return future.done() or condition()

    async def until_all(self, things: Collection[T], holds: Callable[[T], bool], timeout_ms: int) -> None:
        """Wait at most `timeout_ms` until `holds` for each of the things, of which there may be very many.

        Waits for one after the other, so that a change of the cache costs the check of one.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + timeout_ms / 1000
        has_waited = True
        while has_waited:  # one that held before may not hold any more
            has_waited = False
            for thing in things:
                await pause()
                if holds(thing):
                    continue
                has_waited = True
                if not await self.until(partial(holds, thing), int((until - clock()) * 1000)):
                    return
