"""Pauses the garbage collector while many long-lived objects are created.

The collector scans new objects after every certain number of them, and from time to time all objects. That took 180 ms in one turn of the
event loop after 100,000 groups were loaded, and 85 ms when 10,000 partitions were created. Loaded objects are no garbage, so they are
excluded.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


class CollectorPauses:
    """The number of pauses in progress. The collector belongs to the process, and runs again after the last of them."""

    count = 0
    keeps = False
    """Whether the objects created in one of the pauses are long-lived."""


def collector_paused() -> AbstractContextManager[None]:
    """Pause the collector. Later collections exclude the objects that were created meanwhile, too.

    The objects are still freed when the last reference goes; only cycles among them are not found.
    """
    return _pause(keeps_what_was_made=True)


def collector_resting() -> AbstractContextManager[None]:
    """Pause the collector, which scans the new objects afterwards. For work that releases nearly all objects that it creates."""
    return _pause(keeps_what_was_made=False)


@contextmanager
def _pause(*, keeps_what_was_made: bool) -> Iterator[None]:
    CollectorPauses.count += 1
    gc.disable()
    try:
        yield
    finally:
        CollectorPauses.count -= 1
        CollectorPauses.keeps |= keeps_what_was_made
        if not CollectorPauses.count:
            if CollectorPauses.keeps:
                gc.freeze()  # few of them may be long: the next pass would take 3.5 ms for ten lists of 50,000 numbers
            CollectorPauses.keeps = False
            gc.enable()
