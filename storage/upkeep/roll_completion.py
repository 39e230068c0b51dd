"""Completes the rolls of all logs, one per turn of the event loop, in the order in which they began (see `Rolls`).

`LogManager` owns one. So many logs can roll at the same time without delaying other work. A log whose directory has no spare files left
waits until a thread has made some, and the others go first.
"""

import logging
from collections.abc import Callable
from contextlib import suppress

from ottla.storage.disk.background import Background
from ottla.storage.errors import LogClosed, LogDirFailure
from ottla.storage.log.rolls import FILES_MADE_LATER, Rolls
from ottla.storage.segment.spare_files import SpareFiles

log = logging.getLogger(__name__)

_MOMENT_MS = 1
_BACKOFF_MS = 1000
"""Delay after a roll that failed for another reason than the disk, milliseconds."""


class RollCompletion:
    """The incomplete rolls of all logs."""

    __slots__ = ("_background", "_is_armed", "_on_failure", "_spare_files", "_waiting")

    def __init__(self, background: Background, spare_files: SpareFiles, on_failure: Callable[[LogDirFailure], None]) -> None:
        """`on_failure` is called on the loop after a disk error."""
        self._background = background
        self._spare_files = spare_files
        self._on_failure = on_failure
        self._waiting: dict[Rolls, None] = {}
        self._is_armed = False

    def complete_later(self, rolls: Rolls) -> None:
        """Add a log that has begun a roll."""
        self._waiting[rolls] = None
        self._arm()

    def forget(self, rolls: Rolls) -> None:
        """Drop a log that will be deleted, and leave its files as they are."""
        self._waiting.pop(rolls, None)
        rolls.unfinished.clear()

    def _arm(self, delay_ms: int = 0) -> None:
        if self._waiting and not self._is_armed:
            self._is_armed = True
            self._background.schedule("complete-roll", delay_ms, 0, self._complete_one)

    def _complete_one(self) -> None:
        self._is_armed = False
        rolls = next(iter(self._waiting), None)
        if rolls is None:
            return
        files = rolls.files
        del self._waiting[rolls]
        if not self._spare_files.are_ready(files.log_dir, FILES_MADE_LATER):
            self._waiting[rolls] = None
            self._arm(_MOMENT_MS)
            return
        try:
            rolls.complete()
        except OSError as error:
            with suppress(LogClosed):
                failure = files.failure(error)
                self._on_failure(failure)
                if failure.passes:
                    self._waiting[rolls] = None
                    self._arm(_BACKOFF_MS)
        except Exception:  # out of memory, for example; the rolls of all other logs wait behind this one
            log.exception("%s: completing a roll failed; it will be retried", files.topic_partition)
            if not files.is_closed:
                self._waiting[rolls] = None
            self._arm(_BACKOFF_MS)
        else:
            if rolls.unfinished:
                self._waiting[rolls] = None
        self._arm()
