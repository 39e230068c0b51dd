"""Holds the directory of one log, and the ports by which the parts of that log change files there.

Owned by `PartitionLog`, and shared by its `Rolls`, `Discards`, `Truncations` and `Flushes`.
"""

from typing import TYPE_CHECKING

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.small_files import SmallFiles
from ottla.storage.errors import LogClosed, LogDirFailure
from ottla.storage.log.context import LogContext

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog


class LogFiles:
    """The directory of a log, and whether the log uses it."""

    __slots__ = ("context", "directory", "is_closed", "log", "log_dir", "small_files", "topic_partition")

    def __init__(self, log: "PartitionLog", context: LogContext, topic_partition: TopicPartition, log_dir: str, directory: str) -> None:
        self.log = log
        """The log that the events of `LogContext` name."""
        self.context = context
        self.topic_partition = topic_partition
        self.log_dir = log_dir
        self.directory = directory
        self.small_files = SmallFiles(context.filesystem, directory)
        self.is_closed = False
        """Whether the log refuses all further writes."""

    def failure(self, error: OSError, path: str | None = None) -> LogDirFailure:
        """The error to raise for `error`. Raises LogClosed for a closed log, whose files may be missing without a failure."""
        if self.is_closed:
            raise LogClosed(self.topic_partition) from error
        return LogDirFailure(self.log_dir, str(error.filename or path or self.directory), error.strerror or str(error))

    def request_flush(self) -> None:
        """Report that the log should be flushed."""
        self.context.on_flush_due(self.log)
