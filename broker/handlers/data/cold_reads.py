"""Reading again what was not in the page cache: for the handlers that look things up in logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from broker.request.services import Services
from broker.request.turns import Steps
from storage.segment.cold_lookups import ColdRead

MAX_ROUNDS = 1000
"""A search by time may look into each segment of a log. What takes longer waits on the loop: memory must be very short."""

_Found = TypeVar("_Found")


async def until_cached(broker: Services, cold: ColdRead, read: Callable[[bool], Steps[_Found]]) -> _Found:
    """Has threads pull in what `read(may_wait)` needs, and takes its steps until it needs nothing more. It has met `cold` already.

    A handler that has a slot leaves it: it waits for a disk, and others have what they need in memory.
    """
    broker.administration.metadata_waits.on_wait()
    loop = asyncio.get_running_loop()
    for _ in range(MAX_ROUNDS):
        await loop.run_in_executor(None, cold.warm)
        try:
            return await broker.turns.spread(read(False))
        except ColdRead as again:
            cold = again
    return await broker.turns.spread(read(True))
