"""Kafka's checkpoint files: small texts that are replaced whole.

`recovery-point-offset-checkpoint`, `replication-offset-checkpoint`, `log-start-offset-checkpoint` and `cleaner-offset-checkpoint` stand in
each log directory and hold an offset per partition. All have a line `0` (the version), a line with the count, and one line `topic partition
offset` for each. The leader epoch file of a partition has the same frame.

Written by LogManager, the replica manager (high watermarks) and the cleaner. Invariant: a reader finds the old file or the new one, never a
mixture; therefore garbage in one means a broken disk or a hand in it, and the log directory is not used.
"""

from collections.abc import Iterable, Mapping
from itertools import islice

from storage.disk.file_names import TEMPORARY_SUFFIX
from storage.disk.filesystem import FileSystem
from storage.disk.giving_way import give_way
from storage.disk.topic_partition import TopicPartition
from storage.errors import CorruptCheckpoint

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
VERSION = 0
MAX_INT32 = 2**31 - 1
MAX_OFFSET = 2**63 - 1
_LINES_AT_ONCE = 1000
"""0.4 ms."""


class OffsetCheckpoint:
    """One checkpoint file of one log directory."""

    __slots__ = ("_fs", "path")

    def __init__(self, log_dir: str, name: str, filesystem: FileSystem) -> None:
        self.path = f"{log_dir}/{name}"
        self._fs = filesystem

    def read(self) -> dict[TopicPartition, int]:
        """The offsets, in the order of the file; none when there is no file. Raises CorruptCheckpoint, which names file and line."""
        if not self._fs.exists(self.path):
            return {}
        offsets = {}
        for number, line in read_lines(self.path, self._fs):
            fields = line.split()
            if len(fields) != 3 or not fields[1].isdecimal() or not fields[2].removeprefix("-").isdecimal():
                raise CorruptCheckpoint(self.path, f"line {number}: {line!r} is not `topic partition offset`")
            partition, offset = int(fields[1]), int(fields[2])
            if partition > MAX_INT32 or abs(offset) > MAX_OFFSET:
                raise CorruptCheckpoint(self.path, f"line {number}: {line!r} has a number that is too large")
            offsets[TopicPartition(fields[0], partition)] = offset
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int], *, sync: bool = True) -> None:
        """Replaces the file. Blocks when `sync`."""
        self.write_entries(offsets.items(), sync=sync)

    def write_entries(self, entries: Iterable[tuple[TopicPartition, int]], *, sync: bool = True) -> None:
        """As `write`, with one entry for each partition."""
        replace_file(self._fs, self.path, encode_offsets(entries), sync=sync)


def encode_offsets(offsets: Iterable[tuple[TopicPartition, int]]) -> bytes:
    """The text of an offset checkpoint. For a thread; gives way to the loop."""
    rest = iter(offsets)
    pieces = []
    count = 0
    while lines := [f"{partition.topic} {partition.partition} {offset}\n" for partition, offset in islice(rest, _LINES_AT_ONCE)]:
        pieces.append("".join(lines))
        count += len(lines)
        if len(lines) == _LINES_AT_ONCE:
            give_way()
    return f"{VERSION}\n{count}\n{''.join(pieces)}".encode()


def read_lines(path: str, filesystem: FileSystem) -> list[tuple[int, str]]:
    """(line number, line) of the entries, after the frame was found right. Raises CorruptCheckpoint, FileNotFoundError.

    An empty file has none: Apache Kafka creates its checkpoints empty. As there, so has one that ends behind the version, and lines may
    end as on Windows, where somebody's editor mended the file.
    """
    try:
        text = filesystem.read_file(path).decode()
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(path, f"byte {error.start} is not UTF-8") from None
    if not text:
        return []
    lines = text.replace("\r\n", "\n").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    if not lines or lines[0] != str(VERSION):
        raise CorruptCheckpoint(path, f"line 1: the version is not {VERSION}")
    if len(lines) == 1:
        return []
    if not lines[1].isdecimal():
        raise CorruptCheckpoint(path, "line 2 is not the number of entries")
    if len(lines) - 2 != int(lines[1]):
        raise CorruptCheckpoint(path, f"line 2 says {lines[1]} entries, {len(lines) - 2} follow")
    return list(enumerate(lines[2:], 3))


def replace_file(filesystem: FileSystem, path: str, data: bytes, *, sync: bool = True) -> None:
    """Puts `data` in the place of the file in one step: a temporary file, then a rename. With `sync`, durable on return."""
    temporary = path + TEMPORARY_SUFFIX
    file = filesystem.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write(data)
        if sync:
            file.sync()
    finally:
        file.close()
    filesystem.rename(temporary, path)
    if sync:
        filesystem.sync_directory(path.rpartition("/")[0])
