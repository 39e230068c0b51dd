"""Closes the files of idle segments, because a process may only have a limited number of descriptors.

`LogManager` starts it. Once a minute every log is checked, with pauses. The files and index maps of segments that are only read
are closed, and those of an active segment without an append since the last check. The next read or append reopens them
(20 µs). So open files belong to the logs and segments of the last two minutes. A map counts, too, because it holds a
descriptor.

When most descriptors of the process are in use, all idle files are closed within a second or two. Until then each file
that the loop opens closes some others first, so that a quarter of the descriptors is always left for sockets and
threads.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from ottla.storage.disk.background import Background
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.rounds import Rounds
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.segment.segment import Segment

log = logging.getLogger(__name__)

PERIOD_MS = 60_000
_PRESSURE_PERIOD_MS = 1000
_SAID_AGAIN_AFTER = 60
"""Periods in a row without a shortage after which the next one is logged again."""
_CLOSED_AT_ONCE = 64
_LOOKED_AT_AT_ONCE = 2000
"""Logs checked at once, half a millisecond."""


class IdleFiles:
    """The files of all logs that `logs` returns."""

    __slots__ = (
        "_background",
        "_calm_periods",
        "_closes_all",
        "_ends",
        "_filesystem",
        "_hand",
        "_logs",
        "_new_ends",
        "_rounds",
        "_thread",
    )

    def __init__(self, filesystem: FileSystem, background: Background, logs: Callable[[], Iterable[PartitionLog]]) -> None:
        self._filesystem = filesystem
        self._background = background
        self._closes_all = False
        self._calm_periods = _SAID_AGAIN_AFTER
        self._logs = logs
        self._rounds: Rounds[PartitionLog] = Rounds(background, "idle-files", self._close_idle_files, self._end_round)
        self._thread = 0
        self._hand: deque[PartitionLog] = deque()
        """The logs whose files are closed next in a shortage, the first opened first, round robin."""
        self._ends: dict[PartitionLog, int] = {}
        """The end of each log in the last round."""
        self._new_ends: dict[PartitionLog, int] = {}
        """The end of each log in the current round."""

    def start(self) -> None:
        """Starts the checks; on the loop."""
        self._thread = threading.get_ident()
        self._filesystem.relieve_with(self.close_some)
        self._background.schedule("idle-files", PERIOD_MS, PERIOD_MS, self.close_idle)
        self._background.schedule("idle-files", _PRESSURE_PERIOD_MS, _PRESSURE_PERIOD_MS, self.relieve)

    def relieve(self) -> None:
        """Closes all idle files if the process is short of descriptors."""
        if not self._filesystem.is_short_of_files():
            self._calm_periods += 1
            return
        if self._calm_periods >= _SAID_AGAIN_AFTER:
            log.info("most of the permitted files are open; those of logs are closed. A higher limit (ulimit -n) avoids reopening them")
        self._calm_periods = 0
        self._closes_all = True
        self.close_idle()

    def close_some(self) -> None:
        """Closes files of some logs now; does nothing on another thread than the loop's."""
        if threading.get_ident() != self._thread:
            return
        left = _CLOSED_AT_ONCE
        if not self._hand:
            self._hand.extend(self._logs())
        for _ in range(min(_LOOKED_AT_AT_ONCE, len(self._hand))):
            each = self._hand.popleft()
            if each.is_closed or each.truncations.current is not None:
                continue
            each.reader.hints.clear()
            flushed = _being_flushed(each)
            left -= sum(segment.release() for segment in each.segments if segment not in flushed)
            if left <= 0:
                return

    def close_idle(self) -> None:
        """Begins a round over all logs."""
        self._rounds.begin(self._logs())

    def _end_round(self) -> None:
        self._closes_all = False
        self._ends, self._new_ends = self._new_ends, {}

    def _close_idle_files(self, partition_log: PartitionLog) -> None:
        if partition_log.is_closed:
            return
        end = self._new_ends[partition_log] = partition_log.log_end_offset
        if partition_log.truncations.current is not None:
            return  # a thread uses the files that were open when it began
        flushed = _being_flushed(partition_log)
        active = partition_log.segments.active
        is_idle = self._closes_all or self._ends.get(partition_log) == end
        if is_idle and active.reserved_bytes:
            with suppress(OSError):  # the next writer gets the error
                active.give_back()
        for segment in partition_log.segments:
            if (is_idle or segment is not active) and segment not in flushed:
                segment.release()
        if is_idle:
            partition_log.reader.hints.clear()


def _being_flushed(partition_log: PartitionLog) -> set[Segment]:
    """The segments that a thread is flushing, which needs their files. A busy log always has a flush in progress, but
    never of all segments."""
    return {segment for plan in partition_log.flushes.plans for segment in plan.segments}
