"""Declares the port through which remote stores and their caches do blocking work: `broker` runs it in its worker threads."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

_Result = TypeVar("_Result")


class Threads(Protocol):
    """Runs work that blocks in a thread."""

    def __call__(self, work: Callable[[], _Result]) -> Awaitable[_Result]:
        """Returns what `work` returned, or raises its exception. A cancelled caller does not stop the work."""
