"""Where a loop over very many things lets others have their turn: a port that the broker fills.

`await pause()` between any two of them; it comes back at once as long as there is time. Afterwards the world may be another.
"""

from collections.abc import Awaitable, Callable

Pause = Callable[[], Awaitable[None]]


async def no_pause() -> None:
    """For tests, and where there are never many."""
