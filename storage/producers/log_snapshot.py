"""Writes producer snapshots that take long, for `PartitionLog.roll`.

A thread encodes and writes a few hundred producers at a time. It yields to the event loop in between, because Python code in a thread holds
the interpreter, too. Until the snapshot is complete, the log is not flushed and no segment of it is deleted. So a crash leaves the same
state as before the roll. When the snapshot is complete, the flush that is due after a roll follows.

A disk failure takes the log directory offline. After any other error, for example a lack of memory, the snapshot is begun again, until it
is complete. Otherwise the log would never be flushed again.
"""

import logging
from typing import TYPE_CHECKING

from ottla.storage.errors import LogDirFailure
from ottla.storage.producers.snapshot import SnapshotWrite

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_NAME = "producer-snapshot"
_RETRY_MS = 10_000
"""Delay before a snapshot is begun again, milliseconds."""


def write_in_thread(self: "PartitionLog", writing: SnapshotWrite) -> None:
    """Have a thread write the next piece. Does not block."""
    # One queue per log directory, because each may be a disk of its own.
    self.context.submit(f"{_NAME} {self.log_dir}", writing.step, lambda error: _on_step(self, writing, error))


def _on_step(self: "PartitionLog", writing: SnapshotWrite, error: BaseException | None) -> None:
    producers = self.producer_state
    if self.is_closed or producers.writing is not writing:
        return  # another caller has finished it
    if error is not None and not isinstance(error, OSError):
        logger.error(
            "%s: a snapshot of its producers could not be written (%r); before it is, the log is not flushed and no segment of it deleted; "
            "trying again in %d ms",
            self.topic_partition, error, _RETRY_MS, exc_info=error,
        )  # fmt: skip
        self.context.schedule(_NAME, _RETRY_MS, 0, lambda: _begin_again(self, writing))
        return
    if error is None and not writing.is_done:
        write_in_thread(self, writing)
        return
    try:
        following = producers.end_snapshot()  # raises the error again, if there was one
    except OSError as found:
        failure = self.disk_failure(self.directory, found)
        if isinstance(failure, LogDirFailure):
            self.context.on_failure(failure)
        return
    if following is not None:
        write_in_thread(self, following)
    else:
        self.context.on_flush_due(self)


def _begin_again(self: "PartitionLog", writing: SnapshotWrite) -> None:
    if not self.is_closed and self.producer_state.writing is writing:
        write_in_thread(self, writing)
