"""Reading again what was not in the page cache: for the handlers that look things up in logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from broker.request.services import Services
from broker.request.turns import Steps
from protocol.messages.fetch import FetchResponse
from storage.disk.clock import elapsed_ms
from storage.segment.cold_lookups import ColdRead

if TYPE_CHECKING:
    from broker.handlers.data.fetch_reading import Fetch

MAX_ROUNDS = 1000
"""A search by time may look into each segment of a log. What takes longer waits on the loop: memory must be very short."""

_Found = TypeVar("_Found")


async def until_cached(broker: Services, cold: ColdRead, read: Callable[[bool], Steps[_Found]]) -> _Found:
    """Has threads pull in what `read(may_wait)` needs, and takes its steps until it needs nothing more. It has met `cold` already.

    The handler leaves its slot: it waits for a disk, and others have what they need in memory.
    """
    broker.metadata_waits.on_wait()
    loop = asyncio.get_running_loop()
    for _ in range(MAX_ROUNDS):
        await loop.run_in_executor(None, cold.warm)
        try:
            return await broker.turns.spread(read(False))
        except ColdRead as again:
            cold = again
    return await broker.turns.spread(read(True))


async def read_when_cached(fetch: Fetch, cold: ColdRead) -> FetchResponse:
    """Old segments have to be looked into: answer what is found once threads have pulled in what that needs.

    It is not held back for more: a fetch from an old segment is answered at once in Apache Kafka, too.
    """
    broker = fetch.context.broker
    await until_cached(broker, cold, lambda may_wait: fetch.read_steps(elapsed_ms(broker.clock), may_wait=may_wait))
    return fetch.response(elapsed_ms(broker.clock))
