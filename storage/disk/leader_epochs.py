"""Tracks the start offset of each leader epoch of a partition, in memory and in the file `leader-epoch-checkpoint`.

Owned by `PartitionLog`. Replication queries the end of the epoch of a diverging replica (KIP-101, KIP-279), which is
the offset where the replica truncates.

The file is text: a line `0` (the version), a line with the count, and a line `epoch start_offset` for each epoch.

Invariants: epochs and start offsets both strictly increase. The owner of `on_change` writes each change to the file
before it checkpoints a recovery point, because recovery reads batches only from the recovery point on. Without
`on_change`, `assign` writes at once. Entries that are removed while a log is loaded stay in the file until the broker
runs; the next load would remove them again.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.checkpoint import MAX_INT32, MAX_OFFSET, decode_lines, replace_file
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import CorruptCheckpoint

log = logging.getLogger(__name__)

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class LeaderEpochCache:
    """The epochs of one partition, with their start offsets. Kafka's LeaderEpochFileCache."""

    __slots__ = ("_epochs", "_fs", "_start_offsets", "directory", "is_dirty", "on_change", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, directory: str, filesystem: FileSystem, *, is_new: bool = False) -> None:
        """Reads the file, unless `is_new` guarantees that there is none. Raises CorruptCheckpoint."""
        self.topic_partition = topic_partition
        self.directory = directory
        self.is_dirty = False
        """Whether the file is out of date."""
        self.on_change: Callable[[LeaderEpochCache], None] | None = None
        """Called for each change; the callback then writes the file with the content of `take_file`, so that the event
        loop does not wait."""
        self._fs = filesystem
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []
        if not is_new:
            with suppress(FileNotFoundError):
                for epoch, start_offset in read_leader_epochs(self.path, filesystem):
                    self._append(epoch, start_offset)

    @property
    def path(self) -> str:
        """The path of the file."""
        return f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), ascending."""
        return list(zip(self._epochs, self._start_offsets, strict=True))

    @property
    def latest_epoch(self) -> int | None:
        """The newest epoch with an entry."""
        return self._epochs[-1] if self._epochs else None

    def start_offset_of(self, epoch: int) -> int | None:
        """The start offset of `epoch`, if it has an entry."""
        at = bisect_right(self._epochs, epoch) - 1
        return self._start_offsets[at] if at >= 0 and self._epochs[at] == epoch else None

    def epoch_of(self, offset: int) -> int | None:
        """The epoch in which `offset` was, or would be, written; None below the first entry."""
        at = bisect_right(self._start_offsets, offset)
        return self._epochs[at - 1] if at else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Sets the start of `epoch`; True if that is a change. Entries that contradict it are removed, because the
        leader is authoritative.

        Without `on_change` it writes the file, and blocks.
        """
        if not self._append(epoch, start_offset):
            return False
        self._changed()
        if self.is_dirty and self.on_change is None:
            self.write()
        return True

    def on_recovered(self, epoch: int, base_offset: int, last_offset: int) -> None:
        """Recovery found a batch of `epoch`. An entry that contradicts it belongs to batches that a crash removed, or
        whose predecessors it removed.

        An entry that agrees is kept, because the batch that began the epoch may have been compacted away.
        """
        if self.epoch_of(base_offset) == epoch == self.epoch_of(last_offset):
            return
        newer = bisect_right(self._epochs, epoch)
        if newer < len(self._epochs) and self._start_offsets[newer] <= last_offset:
            self.truncate_from_end(self._start_offsets[newer])
        if self.epoch_of(base_offset) != epoch:
            self.assign(epoch, base_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Removes the entries that begin at `end_offset` or later."""
        keep = len(self._start_offsets)
        while keep and self._start_offsets[keep - 1] >= end_offset:
            keep -= 1
        if end_offset >= 0 and keep < len(self._epochs):
            del self._epochs[keep:], self._start_offsets[keep:]
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Removes the entries that end at `start_offset` or before; the entry that contains it then begins there."""
        keep_from = bisect_right(self._start_offsets, start_offset) - 1
        if keep_from < 0 or (keep_from == 0 and self._start_offsets[0] == start_offset):
            return
        del self._epochs[:keep_from], self._start_offsets[:keep_from]
        self._start_offsets[0] = start_offset
        self._changed()

    def replace(self, entries: Iterable[tuple[int, int]]) -> None:
        """Takes these entries in place of all others."""
        found = list(entries)
        if found != self.entries:
            self._epochs[:] = [epoch for epoch, _ in found]
            self._start_offsets[:] = [start_offset for _, start_offset in found]
            self._changed()

    def clear(self) -> None:
        """Removes all entries."""
        self.replace(())

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and its end offset: Kafka's answer to OffsetForLeaderEpoch.

        (-1, -1) when it is unknown. An epoch below the first known one ended where that one begins, as far as this log shows.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if higher == 0:
            return epoch, self._start_offsets[0]
        return self._epochs[higher - 1], self._start_offsets[higher]

    def flush(self) -> None:
        """Writes the file if it is out of date, unless `on_change` does that. Blocks."""
        if self.is_dirty and self.on_change is None:
            self.write()

    def take_file(self) -> bytes:
        """The current content of the file; the caller writes it."""
        content = encode_leader_epochs(self.entries)
        self.is_dirty = False
        return content

    def write(self) -> None:
        """Replaces the file, durably. Blocks."""
        replace_file(self._fs, self.path, self.take_file())

    def _changed(self) -> None:
        self.is_dirty = True
        if self.on_change is not None:
            self.on_change(self)

    def _append(self, epoch: int, start_offset: int) -> bool:
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} from offset {start_offset} of {self.topic_partition}")
        epochs, start_offsets = self._epochs, self._start_offsets
        if epochs and epochs[-1] == epoch and start_offset >= start_offsets[-1]:
            return False
        keep = len(epochs)
        while keep and (epochs[keep - 1] >= epoch or start_offsets[keep - 1] >= start_offset):
            keep -= 1
        if keep < len(epochs):
            removed = self.entries[keep:]
            if len(removed) > 1 or removed[0][1] != start_offset:
                log.warning("%s: epoch %d from offset %d contradicts and replaces %s", self.topic_partition, epoch, start_offset, removed)
            del epochs[keep:], start_offsets[keep:]
        epochs.append(epoch)
        start_offsets.append(start_offset)
        return True


def encode_leader_epochs(entries: list[tuple[int, int]]) -> bytes:
    """The text of the file."""
    lines = "".join(f"{epoch} {start_offset}\n" for epoch, start_offset in entries)
    return f"0\n{len(entries)}\n{lines}".encode()


def read_leader_epochs(path: str, filesystem: FileSystem) -> list[tuple[int, int]]:
    """The entries of the file. Raises CorruptCheckpoint with the line, FileNotFoundError."""
    return decode_leader_epochs(filesystem.read_file(path), path)


def decode_leader_epochs(data: bytes, path: str) -> list[tuple[int, int]]:
    """The entries of the text of a file. Raises CorruptCheckpoint with `path` and the line."""
    entries = []
    for number, line in decode_lines(data, path):
        fields = line.split()
        if len(fields) != 2 or not all(field.isdecimal() for field in fields):
            raise CorruptCheckpoint(path, f"line {number}: {line!r} is not `epoch start_offset`")
        epoch, start_offset = map(int, fields)
        if epoch > MAX_INT32 or start_offset > MAX_OFFSET:
            raise CorruptCheckpoint(path, f"line {number}: {line!r} has a number that is too large")
        entries.append((epoch, start_offset))
    return entries
