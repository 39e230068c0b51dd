"""Writing a producer snapshot that takes long: for `PartitionLog.roll`, kept in a file of its own.

A thread encodes and writes a few hundred producers, then the event loop has its turn, then the next few hundred: what runs in a thread
holds the interpreter, too. Until the snapshot is complete the log is not flushed and no segment of it deleted: what a crash leaves then is
what it would have left before the roll. When it is complete, the flush follows that is due after a roll.
"""

from typing import TYPE_CHECKING

from storage.errors import LogDirFailure
from storage.producers.snapshot import SnapshotWrite

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog

_NAME = "producer-snapshot"


def write_in_thread(self: "PartitionLog", writing: SnapshotWrite) -> None:
    """Does not block."""
    # By directory: each is a disk of its own.
    self.context.submit(f"{_NAME} {self.log_dir}", writing.step, lambda error: _on_step(self, writing, error))


def _on_step(self: "PartitionLog", writing: SnapshotWrite, error: BaseException | None) -> None:
    producers = self.producer_state
    if self.is_closed or producers.writing is not writing:
        return  # somebody could not wait, and has finished it
    if error is None and not writing.is_done:
        write_in_thread(self, writing)
        return
    try:
        following = producers.end_snapshot()  # with an error, it is raised again
    except OSError as found:
        failure = self.disk_failure(self.directory, found)
        if isinstance(failure, LogDirFailure):
            self.context.on_failure(failure)
        return
    if following is not None:
        write_in_thread(self, following)
    else:
        self.context.on_flush_due(self)
