"""Repeats a look-up in logs until the pages that it needs are in the page cache. The handlers of look-ups call it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ottla.broker.request.services import Services
from ottla.pauses import pause
from ottla.storage.segment.cold_lookups import ColdRead, LongWalk
from ottla.storage.segment.record_search import LongSearch

MAX_ROUNDS = 1000
"""Reads in threads before the look-up blocks the loop instead. A search by time may need one per segment; more are needed only when memory
is very short."""

_Found = TypeVar("_Found")


async def until_cached(broker: Services, cold: ColdRead, read: Callable[[bool], Coroutine[Any, Any, _Found]]) -> _Found:
    """Reads the pages that `read(may_wait)` needs in threads, and runs `read` until it completes. Its first run has raised `cold`.

    A handler with a slot releases it: the handler waits for a disk, while other requests find their pages in memory.
    """
    broker.administration.metadata_waits.on_wait()
    loop = asyncio.get_running_loop()
    rounds = 0
    while rounds < MAX_ROUNDS:
        if isinstance(cold.what, LongSearch):
            await broker.expansion.run(cold.what.search)
            rounds += 1
        elif isinstance(cold.what, LongWalk):
            await pause()  # the search goes on in the next slice, however many it needs
        else:
            await loop.run_in_executor(None, cold.warm)
            rounds += 1
        try:
            return await read(False)
        except ColdRead as again:
            cold = again
    return await read(True)
