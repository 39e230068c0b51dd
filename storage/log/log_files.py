"""Holds the directory of one log, and the ports by which the parts of that log change files there.

Owned by `PartitionLog`, and shared by its `Rolls`, `Discards`, `Truncations` and `Flushes`.
"""

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.small_files import SmallFiles
from ottla.storage.errors import CorruptRecord, LogClosed, LogDirFailure
from ottla.storage.log.context import LogContext
from ottla.storage.segment.cold_lookups import ColdRead, NotCached

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


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
        return LogDirFailure.of(error, self.log_dir, path or self.directory)

    def failed_lookup(self, error: NotCached | OSError | RecordFormatError, where: str = "") -> ColdRead | LogDirFailure | CorruptRecord:
        """The error to raise for one of `LOOKUP_ERRORS`. Raises LogClosed for a closed log."""
        if isinstance(error, NotCached):
            return ColdRead(self.topic_partition, error)
        if isinstance(error, OSError):
            return self.failure(error)
        return CorruptRecord(self.topic_partition, f"{where}{error}")

    def request_flush(self) -> None:
        """Report that the log should be flushed."""
        self.context.on_flush_due(self.log)

    def delete(self) -> None:
        """Delete the directory of a closed log and everything in it. Blocks; raises LogDirFailure."""
        self.small_files.forget()
        filesystem = self.context.filesystem
        try:
            for name in filesystem.list_directory(self.directory):
                with suppress(FileNotFoundError):  # a thread may be deleting a file of a removed segment
                    filesystem.unlink(f"{self.directory}/{name}")
            filesystem.remove_directory(self.directory)
            filesystem.sync_directory(self.log_dir)
        except OSError as error:
            raise LogDirFailure.of(error, self.log_dir, self.directory) from error
        logger.debug("%s: deleted %s", self.topic_partition, self.directory)
