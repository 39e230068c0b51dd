"""Where a loop over very many things lets others have their turn: a port that the broker fills.

`await pause()` between any two of them; it comes back at once as long as there is time. Afterwards the world may be another.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

Pause = Callable[[], Awaitable[None]]

PER_SLICE = 50
"""Things of which each takes some microseconds."""

T = TypeVar("T")


async def no_pause() -> None:
    """For tests, and where there are never many."""


async def let_go(large: Iterable[dict[Any, Any]], pause: Pause) -> None:
    """Empty these dicts, which nobody needs any more, with pauses."""
    for each in large:
        while each:
            for _ in range(min(PER_SLICE, len(each))):
                each.popitem()
            await pause()


def slices(things: Iterable[T], size: int = PER_SLICE) -> Iterator[list[T]]:
    """`things`, that many at a time: a pause belongs after each."""
    iterator = iter(things)
    while slice_ := list(islice(iterator, size)):
        yield slice_
