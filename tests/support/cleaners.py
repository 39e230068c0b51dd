"""Cleans logs in the test's own process: at once (`clean_log`), or with a `LogCleaner` whose worker needs no process (`InlineCleaner`)."""

from collections.abc import Callable, Generator

from ottla.protocol.records.errors import RecordFormatError
from ottla.storage.cleaner.choice import log_to_clean
from ottla.storage.cleaner.job import CleanedGroup, CleaningAborted, CleaningJob, CleaningStats, decode_job, encode_job
from ottla.storage.cleaner.process import CleanerMessage, CleaningEnded
from ottla.storage.cleaner.run import CleanerPorts, clean
from ottla.storage.cleaner.task import CleaningTask, WorkerLimits
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import StorageError
from ottla.storage.log.partition_log import PartitionLog

LIMITS = WorkerLimits(map_bytes=1 << 20, load_factor=0.9, io_buffer_bytes=1 << 16, max_bytes_per_second=1e300)


def _nothing(*_: object) -> None:
    pass


def _raise(failure: StorageError | None) -> None:
    if failure is not None:
        raise failure


def ports(filesystem: FileSystem, check: Callable[[], None] = _nothing) -> CleanerPorts:
    """A world in which no time passes."""
    return CleanerPorts(filesystem, lambda: 0.0, check, _nothing)


def clean_log(
    log: PartitionLog, first_dirty_offset: int | None = None, *, now_ms: int | None = None, limits: WorkerLimits = LIMITS
) -> CleaningStats:
    """Cleans all of the log that may be, however clean it is, and puts the segments in place."""
    now = log.context.clock.now_ms() if now_ms is None else now_ms
    task = CleaningTask(log_to_clean(log, first_dirty_offset, now), InlineCleaner(log.context.filesystem), limits, now)
    run = clean(decode_job(encode_job(task.job_with_producers())), ports(log.context.filesystem))
    while True:
        try:
            group = next(run)
        except StopIteration as end:
            stats: CleaningStats = end.value
            return stats
        assert task.is_current(group)
        task.put_in_place(group, _raise)


class InlineCleaner:
    """A `CleanerWorker` that does a group's work in `poll`."""

    def __init__(self, filesystem: FileSystem) -> None:
        self.filesystem = filesystem
        self.jobs: list[CleaningJob] = []
        self.is_closed = False
        self.before_read: Callable[[], None] = _nothing
        """Called before each read of a segment; what it raises becomes the end of the job."""
        self._run: Generator[CleanedGroup, None, CleaningStats] | None = None
        self._is_killed = False
        self._waits = False

    def start(self, job: CleaningJob) -> None:
        self.jobs.append(job)
        self.is_closed = self._waits = self._is_killed = False
        self._run = clean(decode_job(encode_job(job)), ports(self.filesystem, self._check))

    def _check(self) -> None:
        if self._is_killed:
            raise CleaningAborted("killed")
        self.before_read()

    def poll(self) -> CleanerMessage | None:
        if self._is_killed:
            return CleaningEnded("killed")
        if self._waits or self._run is None:
            return None
        try:
            group = next(self._run)
        except StopIteration as end:
            self._run = None
            stats: CleaningStats = end.value
            return stats
        except CleaningAborted as reason:
            return CleaningEnded(str(reason))
        except OSError as error:
            return CleaningEnded(error.strerror or str(error), disk_failure_path=error.filename or self.jobs[-1].directory)
        except RecordFormatError as error:
            return CleaningEnded(str(error), is_log_at_fault=True)
        self._waits = True
        return group

    def proceed(self) -> None:
        self._waits = False

    def kill(self) -> None:
        self._is_killed = True

    def close(self) -> None:
        if self._run is not None:
            self._run.close()
        self.is_closed = True
