"""Keeps the offset up to which each log is clean, in memory and in `cleaner-offset-checkpoint` of each log directory.

Owned by `LogCleaner`; queried on the event loop, loaded in a thread at start, written by threads.
"""

from collections.abc import Callable, Iterable

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.checkpoint import CLEANER_OFFSET_CHECKPOINT, OffsetCheckpoint
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import CorruptCheckpoint, LogDirFailure
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.upkeep.log_checkpoints import LogCheckpoints


class CleanerCheckpoints:
    """The cleaner checkpoints of all log directories."""

    __slots__ = ("_checkpoints", "_failures", "_fs", "_logs", "_offsets", "_on_failure")

    def __init__(
        self,
        filesystem: FileSystem,
        checkpoints: LogCheckpoints,
        logs: Callable[[], Iterable[PartitionLog]],
        on_failure: Callable[[LogDirFailure], None],
    ) -> None:
        self._fs = filesystem
        self._checkpoints = checkpoints
        self._logs = logs
        self._on_failure = on_failure
        self._offsets: dict[str, dict[TopicPartition, int]] = {}
        self._failures: list[LogDirFailure] = []

    def load(self, log_dirs: Iterable[str]) -> None:
        """Reads the files, ignoring entries of logs that do not exist. Blocks; `report_failures` reports files that
        could not be read."""
        present = {(log.log_dir, log.topic_partition) for log in self._logs()}
        for log_dir in log_dirs:
            try:
                found = OffsetCheckpoint(log_dir, CLEANER_OFFSET_CHECKPOINT, self._fs).read()
                self._offsets[log_dir] = {each: offset for each, offset in found.items() if (log_dir, each) in present}
            except CorruptCheckpoint as error:
                self._failures.append(LogDirFailure(log_dir, error.path, error.reason))
            except OSError as error:
                self._failures.append(LogDirFailure.of(error, log_dir, f"{log_dir}/{CLEANER_OFFSET_CHECKPOINT}"))

    def report_failures(self) -> None:
        """Reports unreadable files, on the loop: as for other checkpoints, their directories are taken offline."""
        failures, self._failures = self._failures, []
        for failure in failures:
            self._on_failure(failure)

    def get(self, log: PartitionLog) -> int | None:
        """The first offset that was not cleaned; None if none ever was."""
        return self._offsets.get(log.log_dir, {}).get(log.topic_partition)

    def update(self, log: PartitionLog, offset: int) -> None:
        """The log is clean up to `offset`."""
        self._offsets.setdefault(log.log_dir, {})[log.topic_partition] = offset
        self._write(log.log_dir)

    def truncate(self, log: PartitionLog, offset: int) -> None:
        """The log is no longer clean from `offset` on."""
        known = self.get(log)
        if known is not None and known > offset:
            self.update(log, offset)

    def remove(self, log: PartitionLog) -> None:
        """The log was deleted."""
        if self._offsets.get(log.log_dir, {}).pop(log.topic_partition, None) is not None:
            self._write(log.log_dir)

    def on_log_dir_failure(self, log_dir: str) -> None:
        """The directory is offline."""
        self._offsets.pop(log_dir, None)

    def _write(self, log_dir: str) -> None:
        self._checkpoints.offsets(CLEANER_OFFSET_CHECKPOINT, log_dir, lambda: dict(self._offsets.get(log_dir, {})))
