"""Deletes old segments of all logs every `log.retention.check.interval.ms`, without blocking the event loop.

Owned by `LogManager`. A number of logs are checked per turn of the loop, and a number of segments deleted. The age of a
segment is in its time index, which a thread reads first when it is not in the page cache. Threads rename and later
remove the files.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable

from ottla.protocol.records.errors import RecordFormatError
from ottla.storage.disk.background import Background
from ottla.storage.disk.clock import Clock
from ottla.storage.errors import LogDirFailure, StorageError
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.retention import delete_old_segments, work_of
from ottla.storage.segment.cold_lookups import ColdRead

log = logging.getLogger(__name__)

SEGMENTS_PER_TURN = 10
"""Segments deleted per turn; each costs some 50 µs."""
_LOGS_PER_TURN = 15
"""Logs checked per turn; each costs some 50 µs if its segments' indexes have to be opened."""
_PASSED_OVER_PER_LOG = 10
"""Number of skipped logs that cost as much as one checked log."""
_NAME = "log-retention"
_ROUNDS = 1000
"""Reads after which a log is checked although its segments are not in the page cache: memory must be very short."""


class RetentionChecks:
    """Runs one round at a time."""

    __slots__ = ("_background", "_clock", "_is_ours", "_is_running", "_on_failure", "_rounds", "_waiting")

    def __init__(
        self, background: Background, clock: Clock, is_ours: Callable[[PartitionLog], bool], on_failure: Callable[[LogDirFailure], None]
    ) -> None:
        """`is_ours` returns whether the broker still has the log, and no other component deletes its segments."""
        self._background = background
        self._clock = clock
        self._is_ours = is_ours
        self._on_failure = on_failure
        self._waiting: deque[PartitionLog] = deque()
        self._is_running = False
        self._rounds = 0

    def check(self, logs: Iterable[PartitionLog]) -> None:
        """Checks `logs`, in this and the following turns; does nothing while the last round is in progress."""
        if not self._is_running:
            self._is_running = True
            self._waiting.extend(logs)
            self._check_some()

    def _check_some(self) -> None:
        now_ms = self._clock.now_ms()
        deletable = SEGMENTS_PER_TURN
        left = _LOGS_PER_TURN * _PASSED_OVER_PER_LOG
        while self._waiting and left > 0:
            left -= 1
            each = self._waiting[0]
            # A log that is being truncated is checked in the next round.
            if self._is_ours(each) and each.truncations.current is None:
                left -= _PASSED_OVER_PER_LOG - 1
                try:
                    deleted = delete_old_segments(each, now_ms, at_most=deletable, may_wait=self._rounds >= _ROUNDS)
                    deletable -= work_of(each, deleted)
                except ColdRead as cold:
                    self._rounds += 1
                    self._background.submit(_NAME, cold.warm, lambda error: self._check_some())
                    return
                except LogDirFailure as failure:
                    self._on_failure(failure)
                except (RecordFormatError, StorageError) as error:  # damage in one log must not end the checks of all
                    log.error("%s: its old segments cannot be deleted: %s", each.topic_partition, error)
                except Exception:  # a fault of this broker: no later round would begin
                    log.exception("%s: its old segments cannot be deleted", each.topic_partition)
                if deletable <= 0:
                    break
            self._rounds = 0
            self._waiting.popleft()
        if self._waiting:
            self._background.schedule(_NAME, 0, 0, self._check_some)
        else:
            self._is_running = False
