"""Bundles the ports and limits that all logs of a broker share."""

import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.storage.disk.clock import Clock
from ottla.storage.disk.directory_writes import OnWritten
from ottla.storage.disk.filesystem import File, FileSystem
from ottla.storage.disk.scheduler import Scheduler
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.pending_topic_id import make_durable
from ottla.storage.segment.log_settings import LogSettings

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log.rolls import Rolls


logger = logging.getLogger(__name__)

MAX_LINES: Final = 20
_MS_PER_SECOND: Final = 1000


class LimitedLines:
    """Logs what clients may cause hundreds of times in a second: at most MAX_LINES a second, and later how many lines were left out."""

    __slots__ = ("_clock", "_left_out", "_lines", "_log", "_second", "_unshown")

    def __init__(self, clock: Clock, log: Callable[..., object], left_out: str) -> None:
        """`log` is a method of a logger, `left_out` the text of a line about those that were left out, with their number."""
        self._clock = clock
        self._log = log
        self._left_out = left_out
        self._second = 0
        self._lines = 0
        self._unshown = 0

    def add(self, text: str, *arguments: object) -> None:
        """Log a line, unless there were too many in this second."""
        second = self._clock.now_ms() // _MS_PER_SECOND
        if second != self._second:
            if self._unshown:
                self._log(self._left_out, self._unshown)
            self._second = second
            self._lines = self._unshown = 0
        if self._lines >= MAX_LINES:
            self._unshown += 1
            return
        self._lines += 1
        self._log(text, *arguments)


Submit = Callable[[str, Callable[[], None], Callable[[BaseException | None], None]], None]
Schedule = Callable[[str, int, int, Callable[[], None]], None]
DAY_MS = 24 * 60 * 60 * 1000


def _ignore_log(log: "PartitionLog") -> None:
    pass


def _none_to_spare(log_dir: str, path: str) -> File | None:
    return None


def _reserve_nothing(log: "PartitionLog") -> None:
    log.segments.active.reserve_at = sys.maxsize


def _complete_now(rolls: "Rolls") -> None:
    rolls.complete()


def _ignore_duration(seconds: float) -> None:
    pass


def _ignore_failure(failure: LogDirFailure) -> None:
    pass


def _schedule_nothing(name: str, delay_ms: int, period_ms: int, callback: Callable[[], None]) -> None:
    pass


def _never() -> bool:
    return False


def _checkpointed_at_once(log_dir: str, then: OnWritten) -> None:
    then(None)


def _at_once(name: str, work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
    try:
        work()
    except Exception as error:
        then(error)
    else:
        then(None)


class LogContext:
    """Ports and limits for every log that is opened. `LogManager` owns the broker's."""

    __slots__ = (
        "clock",
        "complete_roll_later",
        "filesystem",
        "on_failure",
        "on_flush_due",
        "on_flushed",
        "on_log_start_offset",
        "on_topic_id_due",
        "on_truncated",
        "producer_id_expiration_ms",
        "random",
        "reserve",
        "roll_lines",
        "schedule",
        "scheduler",
        "submit",
        "take_spare_file",
        "verifies_transactions",
        "when_checkpointed",
    )

    def __init__(
        self,
        filesystem: FileSystem,
        clock: Clock,
        scheduler: Scheduler,
        *,
        random: Callable[[], float] = lambda: 0.0,
        producer_id_expiration_ms: int = DAY_MS,
        on_flush_due: Callable[["PartitionLog"], None] = _ignore_log,
        on_truncated: Callable[["PartitionLog"], None] = _ignore_log,
        on_failure: Callable[[LogDirFailure], None] = _ignore_failure,
        on_topic_id_due: Callable[["PartitionLog"], None] = make_durable,
        submit: Submit = _at_once,
        schedule: Schedule = _schedule_nothing,
        when_checkpointed: Callable[[str, OnWritten], None] = _checkpointed_at_once,
        take_spare_file: Callable[[str, str], File | None] = _none_to_spare,
        reserve: Callable[["PartitionLog"], None] = _reserve_nothing,
        complete_roll_later: Callable[["Rolls"], None] = _complete_now,
        verifies_transactions: Callable[[], bool] = _never,
    ) -> None:
        """`random` gives numbers in [0, 1). `on_flush_due` is called when a log rolled or reached `flush.messages`, `on_truncated` when a
        log was truncated at its end; neither may block."""
        self.filesystem = filesystem
        self.clock = clock
        self.scheduler = scheduler
        self.random = random
        self.roll_lines = LimitedLines(clock, logger.info, "%d more segments were rolled, without lines")
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.on_flush_due = on_flush_due
        self.on_truncated = on_truncated
        self.on_failure = on_failure
        """Called on the loop when the disk refused something that a thread did."""
        self.on_topic_id_due = on_topic_id_due
        """`LogCheckpoints.write_topic_id` of the broker. The default blocks."""
        self.on_flushed: Callable[[float], None] = _ignore_duration
        """Called with the duration of a flush, in seconds; at shutdown by several threads."""
        self.on_log_start_offset: Callable[[PartitionLog], None] = _ignore_log
        """Called when the log start offset was incremented."""
        self.submit = submit
        """`Background.submit` of the broker, for long work. The default does the work at once."""
        self.schedule = schedule
        """`Background.schedule` of the broker, for work to be repeated."""
        self.when_checkpointed = when_checkpointed
        """`LogCheckpoints.when_written` of the broker."""
        self.take_spare_file = take_spare_file
        """`SpareFiles.take` of the broker."""
        self.reserve = reserve
        """`Reservations.reserve` of the broker. Called when the active segment has reached its `reserve_at`."""
        self.complete_roll_later = complete_roll_later
        """`RollCompletion.complete_later` of the broker; may raise OSError."""
        self.verifies_transactions = verifies_transactions
        """Returns whether a transactional batch may open a transaction only after its coordinator was asked."""

    def roll_jitter_ms(self, settings: LogSettings) -> int:
        """How much earlier than due a new segment is rolled, so that the partitions of a topic do not roll at the same time."""
        jitter_ms = min(settings.segment_jitter_ms, settings.segment_ms)
        return int(self.random() * jitter_ms) if jitter_ms else 0  # a random number costs a system call
