"""Waiting, in a coroutine, for what storage does in a thread."""

import asyncio
from collections.abc import Callable


async def done(begin: Callable[[Callable[[BaseException | None], None]], None]) -> None:
    """Wait for what `begin` begins and tells the end of; raises what went wrong. It goes on when this is cancelled."""
    waiting: asyncio.Future[None] | None = None
    outcome: list[BaseException | None] = []

    def then(error: BaseException | None) -> None:
        outcome.append(error)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    begin(then)
    if not outcome:
        waiting = asyncio.get_running_loop().create_future()
        await waiting
    error = outcome[0]
    if error is not None:
        raise error
