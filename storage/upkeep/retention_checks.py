"""Deletes old segments of all logs every `log.retention.check.interval.ms`, without blocking the event loop.

Owned by `LogManager`. The age of a segment is in its time index, which a thread reads first when it is not in the page cache; the log is
then checked apart from the round. Threads rename and later remove the files.
"""

import logging
from collections.abc import Callable, Iterable

from ottla.pauses import begin, pause
from ottla.protocol.records.errors import RecordFormatError
from ottla.storage.disk.background import Background
from ottla.storage.disk.clock import Clock
from ottla.storage.disk.rounds import Rounds
from ottla.storage.errors import LogDirFailure, StorageError
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.retention import DELETED_TOGETHER, delete_old_segments
from ottla.storage.segment.cold_lookups import ColdRead

log = logging.getLogger(__name__)

_NAME = "log-retention"
_MOST_READS = 1000
"""Reads after which a log is checked although its segments are not in the page cache: memory must be very short."""


class RetentionChecks:
    """Runs one round at a time."""

    __slots__ = ("_background", "_clock", "_is_ours", "_on_failure", "_reads", "_rounds")

    def __init__(
        self, background: Background, clock: Clock, is_ours: Callable[[PartitionLog], bool], on_failure: Callable[[LogDirFailure], None]
    ) -> None:
        """`is_ours` returns whether the broker still has the log, and no other component deletes its segments."""
        self._background = background
        self._clock = clock
        self._is_ours = is_ours
        self._on_failure = on_failure
        self._rounds: Rounds[PartitionLog] = Rounds(background, _NAME, self._check_unless_it_waits)
        self._reads: dict[PartitionLog, int] = {}
        """Logs whose time indexes a thread reads, and the number of reads so far."""

    def check(self, logs: Iterable[PartitionLog]) -> None:
        """Checks `logs`, now and after pauses; does nothing while the last round is in progress."""
        self._rounds.begin(logs)

    async def _check_unless_it_waits(self, each: PartitionLog) -> None:
        if each not in self._reads:
            await self._check(each)

    async def _check(self, each: PartitionLog) -> None:
        may_wait = self._reads.get(each, 0) >= _MOST_READS
        try:
            # A log that is being truncated is checked in the next round.
            while not self._background.is_closed and self._is_ours(each) and each.truncations.current is None:
                now_ms = self._clock.now_ms()
                if delete_old_segments(each, now_ms, at_most=DELETED_TOGETHER, may_wait=may_wait) < DELETED_TOGETHER:
                    break
                await pause()
        except ColdRead as cold:
            self._reads[each] = self._reads.get(each, 0) + 1
            self._background.submit(_NAME, cold.warm, lambda error: begin(self._check_again(each)))
            return
        except LogDirFailure as failure:
            self._on_failure(failure)
        except (RecordFormatError, StorageError) as error:  # damage in one log must not end the checks of all
            log.error("%s: its old segments cannot be deleted: %s", each.topic_partition, error)
        self._reads.pop(each, None)

    async def _check_again(self, each: PartitionLog) -> None:
        try:
            await self._check(each)
        except Exception:  # a fault of this broker: no later round would check the log
            log.exception("%s: its old segments cannot be deleted", each.topic_partition)
            self._reads.pop(each, None)
