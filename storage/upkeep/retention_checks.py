"""Looking through all logs for segments to delete, every `log.retention.check.interval.ms`, without holding up the event loop.

`LogManager` owns one. A few logs are looked at per turn of the loop, and a few segments deleted; how old a segment is stands in its time
index, which a thread reads first when it is not in the page cache. The files are renamed, and later removed, in threads.
"""

from collections import deque
from collections.abc import Callable, Iterable

from storage.disk.background import Background
from storage.disk.clock import Clock
from storage.errors import LogDirFailure
from storage.log.partition_log import PartitionLog
from storage.log.retention import delete_old_segments, work_of
from storage.segment.cold_lookups import ColdRead

SEGMENTS_PER_TURN = 10
"""Each costs some 50 µs."""
_LOGS_PER_TURN = 15
"""Each costs some 50 µs when the indexes of a segment have to be opened to tell how old it is."""
_PASSED_OVER_PER_LOG = 10
"""Of logs that are none of ours as many cost as much."""
_NAME = "log-retention"
_ROUNDS = 1000
"""A log whose segments are still not in the page cache after so many reads is looked at all the same: memory must be very short."""


class RetentionChecks:
    """One round at a time."""

    __slots__ = ("_background", "_clock", "_is_at_it", "_is_ours", "_on_failure", "_rounds", "_waiting")

    def __init__(
        self, background: Background, clock: Clock, is_ours: Callable[[PartitionLog], bool], on_failure: Callable[[LogDirFailure], None]
    ) -> None:
        """`is_ours` tells whether the broker still has a log, and nobody else sees to its segments."""
        self._background = background
        self._clock = clock
        self._is_ours = is_ours
        self._on_failure = on_failure
        self._waiting: deque[PartitionLog] = deque()
        self._is_at_it = False
        self._rounds = 0

    def check(self, logs: Iterable[PartitionLog]) -> None:
        """Looks at `logs`, now and in the turns that follow; does nothing while the last round is under way."""
        if not self._is_at_it:
            self._is_at_it = True
            self._waiting.extend(logs)
            self._check_some()

    def _check_some(self) -> None:
        now_ms = self._clock.now_ms()
        deletable = SEGMENTS_PER_TURN
        left = _LOGS_PER_TURN * _PASSED_OVER_PER_LOG
        while self._waiting and left > 0:
            left -= 1
            each = self._waiting[0]
            # One that is being truncated has its turn in the next round.
            if self._is_ours(each) and each.truncation is None:
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
                if deletable <= 0:
                    break
            self._rounds = 0
            self._waiting.popleft()
        if self._waiting:
            self._background.schedule(_NAME, 0, 0, self._check_some)
        else:
            self._is_at_it = False
