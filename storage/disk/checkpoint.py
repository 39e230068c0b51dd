"""Reads and writes Kafka's checkpoint files: small texts that are replaced as a whole.

`recovery-point-offset-checkpoint`, `replication-offset-checkpoint`, `log-start-offset-checkpoint` and
`cleaner-offset-checkpoint` are in each log directory and have an offset per partition. All have a line `0` (the
version), a line with the count, and one line `topic partition offset` for each partition. The leader epoch file of a
partition has the same frame.

Written by LogManager, the replica manager (high watermarks) and the cleaner. Invariant: a reader finds either the old
file or the new one, never a mixture. So a malformed file means a broken disk or a manual change, and the log directory
is not used.
"""

from collections.abc import Iterable, Mapping
from itertools import islice

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.file_names import TEMPORARY_SUFFIX
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.yielding import yield_to_loop
from ottla.storage.errors import CorruptCheckpoint

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
VERSION = 0
MAX_INT32 = 2**31 - 1
MAX_OFFSET = 2**63 - 1
_LINES_AT_ONCE = 1000
"""Lines encoded between two yields, 0.4 ms."""


class OffsetCheckpoint:
    """One checkpoint file of one log directory."""

    __slots__ = ("_fs", "path")

    def __init__(self, log_dir: str, name: str, filesystem: FileSystem) -> None:
        self.path = f"{log_dir}/{name}"
        self._fs = filesystem

    def read(self) -> dict[TopicPartition, int]:
        """The offsets, in the order of the file; empty when there is no file. Raises CorruptCheckpoint, with file and
        line."""
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
        """Like `write`, with one entry for each partition."""
        replace_file(self._fs, self.path, encode_offsets(entries), sync=sync)


def encode_offsets(offsets: Iterable[tuple[TopicPartition, int]]) -> bytes:
    """The text of an offset checkpoint. For a thread; yields to the loop."""
    rest = iter(offsets)
    pieces = []
    count = 0
    while lines := [f"{partition.topic} {partition.partition} {offset}\n" for partition, offset in islice(rest, _LINES_AT_ONCE)]:
        pieces.append("".join(lines))
        count += len(lines)
        if len(lines) == _LINES_AT_ONCE:
            yield_to_loop()
    return f"{VERSION}\n{count}\n{''.join(pieces)}".encode()


def read_lines(path: str, filesystem: FileSystem) -> list[tuple[int, str]]:
    """(line number, line) of the entries, as `decode_lines`. Raises CorruptCheckpoint, FileNotFoundError."""
    return decode_lines(filesystem.read_file(path), path)


def decode_lines(data: bytes, path: str) -> list[tuple[int, str]]:
    """(line number, line) of the entries, after validation of the frame. Raises CorruptCheckpoint, with `path`.

    An empty file has no entries: Apache Kafka creates its checkpoints empty. As in Apache Kafka, a file that ends after
    the version has none, and lines may end with CR LF, as after manual repair with an editor.
    """
    try:
        text = data.decode()
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
        raise CorruptCheckpoint(path, f"line 2 has {lines[1]} as the number of entries, but {len(lines) - 2} follow")
    return list(enumerate(lines[2:], 3))


def replace_file(filesystem: FileSystem, path: str, data: bytes, *, sync: bool = True) -> None:
    """Replaces the file in one step: a temporary file, then a rename. With `sync`, durable on return."""
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
