"""Lets a coroutine wait for work that storage does in a thread."""

import asyncio
from collections.abc import Callable


async def done(begin: Callable[[Callable[[BaseException | None], None]], None]) -> None:
    """Wait for the work that `begin` starts, and raise its error. A cancellation does not stop the work."""
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
