"""Splits work on many elements into parts, and frees many entries; between two parts a loop pauses."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from ottla.pauses import pause

Pause = Callable[[], Awaitable[None]]
"""Pauses, and may raise an error afterwards, as `ControllerCore.pause` does."""

PER_SLICE = 50
"""Elements between two pauses; each takes some microseconds."""

T = TypeVar("T")


async def clear_in_slices(large: Iterable[dict[Any, Any]]) -> None:
    """Empty dicts that are no longer needed, with pauses. Freeing all entries at once would block the event loop."""
    for each in large:
        while each:
            each.popitem()
            await pause()


def slices(things: Iterable[T], size: int = PER_SLICE) -> Iterator[list[T]]:
    """`things` in lists of `size`; a pause belongs after each list."""
    iterator = iter(things)
    while slice_ := list(islice(iterator, size)):
        yield slice_
