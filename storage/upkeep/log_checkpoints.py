"""Writes the checkpoints of the logs while the broker runs: offsets per log directory, and the small files of partition
directories.

Owned by `LogManager`, which requests writes on the event loop; threads write. A recovery point is written after all
leader epochs that were assigned before the point was read, because recovery looks for epochs in batches only from the
recovery point on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.background import Background
from ottla.storage.disk.checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    OffsetCheckpoint,
)
from ottla.storage.disk.deferred_writes import DeferredWrites
from ottla.storage.disk.directory_writes import Checkpoint, OnWritten, Write
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.leader_epochs import LEADER_EPOCH_CHECKPOINT, LeaderEpochCache
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.partition_log import PartitionLog

LOGS_TOGETHER = 100
"""Logs whose offsets are collected between two looks at the clock, a tenth of a millisecond at most."""


class LogCheckpoints:
    """Writes for the logs that `all_logs` returns."""

    __slots__ = ("_all_logs", "_fs", "_writes")

    def __init__(
        self,
        filesystem: FileSystem,
        background: Background,
        all_logs: Callable[[], Iterable[PartitionLog]],
        on_failure: Callable[[LogDirFailure], None],
    ) -> None:
        self._fs = filesystem
        self._all_logs = all_logs
        self._writes = DeferredWrites(background, on_failure)

    def watch(self, log: PartitionLog) -> None:
        """Writes the log's leader epochs from now on. Callable from any thread."""
        log.leader_epochs.on_change = partial(self._on_epochs_change, log)

    def write_epochs(self) -> None:
        """Writes the leader epochs of the logs that lost some when they were opened. On the loop."""
        for log in self._all_logs():
            if log.leader_epochs.is_dirty:
                self._on_epochs_change(log, log.leader_epochs)

    def on_created(self, log: PartitionLog) -> None:
        """A partition's directory was created: makes its name durable."""
        log_dir = log.log_dir
        self._writes.write(("directory", log_dir), log_dir, lambda: lambda: self._fs.sync_directory(log_dir))

    def write_topic_id(self, log: PartitionLog) -> None:
        """Makes the topic id of a log durable soon."""

        def prepare() -> Write:
            pending = log.pending_topic_id
            return _nothing if pending is None else pending.write

        self._writes.write(("topic id", log), log.log_dir, prepare)

    def on_truncated(self, log: PartitionLog) -> None:
        """The log was truncated or restarted.

        The next start would take offsets beyond the cut for flushed, and offsets below the earlier log start offset for
        deleted. So the log waits for both before it accepts appends (`LogContext.when_checkpointed`).
        """
        self.recovery_points([log.log_dir])
        self.log_start_offsets([log.log_dir])

    def recovery_points(self, log_dirs: Iterable[str]) -> None:
        """Writes `recovery-point-offset-checkpoint`."""
        self._checkpoint(RECOVERY_POINT_CHECKPOINT, log_dirs)

    def log_start_offsets(self, log_dirs: Iterable[str]) -> None:
        """Writes `log-start-offset-checkpoint`, with only the offsets that differ from the first segment's base offset."""
        self._checkpoint(LOG_START_OFFSET_CHECKPOINT, log_dirs)

    def high_watermarks(self, log_dirs: Iterable[str]) -> None:
        """Writes `replication-offset-checkpoint`."""
        self._checkpoint(HIGH_WATERMARK_CHECKPOINT, log_dirs)

    def offsets(self, name: str, log_dir: str, offsets: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Writes another checkpoint with the result of `offsets` at the time of writing."""

        def prepare() -> Checkpoint:
            found = offsets()
            return Checkpoint(iter(()), lambda: OffsetCheckpoint(log_dir, name, self._fs).write(found))

        self._writes.checkpoint((name, log_dir), log_dir, prepare)

    def when_written(self, log_dir: str, then: OnWritten) -> None:
        """Calls `then(None)` on the loop when all requests so far for the log directory are durable. After a disk error
        nothing is durable, and `then` gets the failure."""
        self._writes.when_written(log_dir, then)

    def run_now(self) -> None:
        """Writes all requests in this thread."""
        self._writes.run_now()

    def write_all(self, log_dir: str, logs: Sequence[PartitionLog]) -> None:
        """Writes the three files of a directory whose logs are closed. Raises OSError; blocks."""
        for name in _OFFSET_OF:
            gather, write = self._of(name, log_dir, logs)
            for _ in gather:
                pass
            write()

    def _checkpoint(self, name: str, log_dirs: Iterable[str]) -> None:
        for log_dir in log_dirs:
            self._writes.checkpoint((name, log_dir), log_dir, partial(self._of_all, name, log_dir))

    def _of_all(self, name: str, log_dir: str) -> Checkpoint:
        return self._of(name, log_dir, list(self._all_logs()))

    def _of(self, name: str, log_dir: str, logs: Sequence[PartitionLog]) -> Checkpoint:
        offset_of = _OFFSET_OF[name]
        offsets: list[int] = []

        def gather() -> Iterator[None]:
            # Only the numbers are collected here, on the loop, because pairs take ten times as long.
            for start in range(0, len(logs), LOGS_TOGETHER):
                offsets.extend(map(offset_of, logs[start : start + LOGS_TOGETHER]))
                yield

        def write() -> None:
            entries = ((log.topic_partition, at) for log, at in zip(logs, offsets, strict=True) if at >= 0 and log.log_dir == log_dir)
            OffsetCheckpoint(log_dir, name, self._fs).write_entries(entries)

        return Checkpoint(gather(), write)

    def _on_epochs_change(self, log: PartitionLog, epochs: LeaderEpochCache) -> None:
        def prepare() -> Write:
            return partial(log.files.small_files.replace, LEADER_EPOCH_CHECKPOINT, epochs.take_file())

        self._writes.write(epochs, log.log_dir, prepare)


def _nothing() -> None:
    pass


def _log_start_offset(log: PartitionLog) -> int:
    """-1 when the first segment begins there, and no segments before it are still to be removed. A log with remote storage always has an
    entry, because its first segment says nothing about its start."""
    start = log.log_start_offset
    if log.tier is not None or (start and (log.discards.in_progress or start > log.segments.first.base_offset)):
        return start
    return -1


_OFFSET_OF: dict[str, Callable[[PartitionLog], int]] = {
    RECOVERY_POINT_CHECKPOINT: attrgetter("recovery_point"),
    LOG_START_OFFSET_CHECKPOINT: _log_start_offset,
    HIGH_WATERMARK_CHECKPOINT: attrgetter("high_watermark"),
}
