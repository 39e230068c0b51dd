"""Pauses the garbage collector while many long-lived objects are created.

The collector scans new objects after every certain number of them, and from time to time all objects. That took 180 ms in one turn of the
event loop after 100,000 groups were loaded, and 85 ms when 10,000 partitions were created. Loaded objects are no garbage, so they are
excluded.
"""

from __future__ import annotations

import gc
from asyncio import _get_running_loop as running_loop
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

MOST_SCANNED: Final = 20_000
"""New objects through which the collector looks at once: 2 ms. If a request that has ended leaves more, most of them are freed soon."""
RETRY_SECONDS: Final = 0.05
MOST_RETRIES: Final = 600


class CollectorPauses:
    """The number of pauses in progress. The collector belongs to the process, and runs again after the last of them."""

    count = 0
    keeps_many = False
    """Whether many objects that were created in one of the pauses are long-lived."""
    keeps_all = False
    """Whether a few may be as well, since each has many references."""


def collector_paused() -> AbstractContextManager[None]:
    """Pause the collector. If many objects were created meanwhile, later collections exclude them.

    The objects are still freed when the last reference goes; only cycles among them are not found. The same holds for older cycles that the
    collector has not found yet, so little work excludes nothing.
    """
    return _pause(keeps_many=True)


def collector_paused_for_tables() -> AbstractContextManager[None]:
    """Pause the collector. Later collections exclude all that was created meanwhile, however few objects it is.

    For tables with many keys: a pass over ten lists of 50,000 numbers takes 3.5 ms.
    """
    return _pause(keeps_all=True)


def collector_resting() -> AbstractContextManager[None]:
    """Pause the collector, which scans the new objects afterwards. For work that releases nearly all objects that it creates."""
    return _pause()


@contextmanager
def _pause(*, keeps_many: bool = False, keeps_all: bool = False) -> Iterator[None]:
    pauses = CollectorPauses
    pauses.count += 1
    gc.disable()
    try:
        yield
    finally:
        pauses.count -= 1
        pauses.keeps_many |= keeps_many
        pauses.keeps_all |= keeps_all
        _resume(MOST_RETRIES)


def _resume(retries: int) -> None:
    """Let the collector run again, unless another pause is in progress."""
    pauses = CollectorPauses
    if pauses.count or gc.isenabled():
        return
    is_kept = pauses.keeps_all or (pauses.keeps_many and gc.get_count()[0] > gc.get_threshold()[0])
    if is_kept:
        gc.freeze()
    elif gc.get_count()[0] > MOST_SCANNED and retries and (loop := running_loop()) is not None:
        loop.call_later(RETRY_SECONDS, _resume, retries - 1)
        return
    pauses.keeps_many = pauses.keeps_all = False
    gc.enable()
