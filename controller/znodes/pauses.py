"""Declares the port by which a loop over many elements yields to the event loop; the broker implements it.

A loop calls `await pause()` between two elements. The call returns at once as long as the time slice lasts. Any state
may have changed when it returns.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

Pause = Callable[[], Awaitable[None]]

PER_SLICE = 50
"""Elements between two pauses; each takes some microseconds."""

T = TypeVar("T")


async def no_pause() -> None:
    """Never yields. For tests, and for loops that are always short."""


async def clear_in_slices(large: Iterable[dict[Any, Any]], pause: Pause) -> None:
    """Empty dicts that are no longer needed, with pauses. Freeing all entries at once would block the event loop."""
    for each in large:
        while each:
            for _ in range(min(PER_SLICE, len(each))):
                each.popitem()
            await pause()


def slices(things: Iterable[T], size: int = PER_SLICE) -> Iterator[list[T]]:
    """`things` in lists of `size`; a pause belongs after each list."""
    iterator = iter(things)
    while slice_ := list(islice(iterator, size)):
        yield slice_
