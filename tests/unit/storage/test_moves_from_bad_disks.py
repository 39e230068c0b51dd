"""Moving logs that cannot be read, for their disk or for damage in them: other moves go on."""

import errno
import os

import pytest

from ottla.protocol.records.batch import HEADER_SIZE
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager import log_moves
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.manager.log_moves import LogMoves, Move
from ottla.storage.segment.file_region import FileRegion
from tests.support.batches import a_batch
from tests.support.filesystems import MemoryFile, MemoryFileSystem
from tests.support.log_manager import Disks, a_future_log
from tests.support.logs import append

FROM_BAD, FROM_GOOD = TopicPartition("topic", 0), TopicPartition("topic", 1)
HEADERS_BYTES = 50_000
"""A read that is longer is one of records, not of the headers between them."""


class _BadFile(MemoryFile):
    """Its headers can be read, its records cannot."""

    def pread(self, length: int, at: int) -> bytes:
        if length > HEADERS_BYTES:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        return super().pread(length, at)


class BadDisk(MemoryFileSystem):
    """The log files in `bad` have sectors that cannot be read."""

    def __init__(self, bad: str) -> None:
        super().__init__()
        self.has_unnamed_files = False  # so that every file is opened by its name
        self._bad = bad

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        file = super().open(path, create=create, read_only=read_only)
        return _BadFile(path, file.node, read_only=read_only) if path.startswith(self._bad) and path.endswith(".log") else file


def two_moves(batches: int) -> tuple[Disks, LogManager]:
    """A partition in /a, whose disk is bad, and one in /b; a copy of each is to be made in /c, one at a time."""
    disks = Disks(BadDisk("/a/"), log_dirs="/a,/b,/c")
    manager = disks.start(num_replica_alter_log_dirs_threads=1)
    for topic_partition, log_dir in ((FROM_BAD, "/a"), (FROM_GOOD, "/b")):
        log = manager.get_or_create(topic_partition, is_new=True, log_dir=log_dir)
        for _ in range(batches):
            append(log, a_batch(1, value_bytes=200_000))
        a_future_log(manager, log, "/c")
    disks.settle()
    return disks, manager


def log_dir_of(manager: LogManager, topic_partition: TopicPartition) -> str | None:
    found = manager.get(topic_partition)
    return None if found is None else found.log_dir


@pytest.mark.parametrize("batches", [1, 2])
def test_a_read_that_fails_takes_its_directory_offline_and_the_next_move_begins(batches: int) -> None:
    """The last batch is read on the event loop, and those before in a thread."""
    disks, manager = two_moves(batches)
    for topic_partition in (FROM_BAD, FROM_GOOD):
        manager.moves.start(topic_partition)
    disks.settle()
    assert manager.offline_log_dirs == ["/a"]
    assert (log_dir_of(manager, FROM_BAD), log_dir_of(manager, FROM_GOOD)) == (None, "/c")


def test_a_read_that_fails_after_its_directory_leaves_room_for_the_next_move() -> None:
    disks, manager = two_moves(2)
    for topic_partition in (FROM_BAD, FROM_GOOD):
        manager.moves.start(topic_partition)
    assert [name for name, _, _ in disks.background.work] == ["alter-log-dirs"]
    manager.handle_log_dir_failure("/a", "test")
    disks.settle()
    assert log_dir_of(manager, FROM_GOOD) == "/c"


def two_moves_of_small_logs() -> tuple[Disks, LogManager, PartitionLog]:
    """As `two_moves`, on good disks; and the log in /a, of three batches of two records."""
    disks = Disks(log_dirs="/a,/b,/c")
    manager = disks.start(num_replica_alter_log_dirs_threads=1)
    logs = [manager.get_or_create(each, is_new=True, log_dir=log_dir) for each, log_dir in ((FROM_BAD, "/a"), (FROM_GOOD, "/b"))]
    for log in logs:
        for _ in range(3):
            append(log, a_batch(2))
        a_future_log(manager, log, "/c")
    disks.settle()
    return disks, manager, logs[0]


def test_a_damaged_log_takes_no_room_from_the_next_move() -> None:
    disks, manager, log = two_moves_of_small_logs()
    damaged = log.segments.active.file
    byte = damaged.pread(1, HEADER_SIZE)
    damaged.pwrite(bytes([byte[0] ^ 1]), HEADER_SIZE)
    for topic_partition in (FROM_BAD, FROM_GOOD):
        manager.moves.start(topic_partition)
    disks.settle()
    assert (log_dir_of(manager, FROM_BAD), log_dir_of(manager, FROM_GOOD)) == ("/a", "/c")
    assert FROM_BAD in manager.moves
    damaged.pwrite(byte, HEADER_SIZE)
    disks.background.advance(1000)
    assert log_dir_of(manager, FROM_BAD) == "/c"


def test_a_log_that_damage_keeps_from_being_truncated_takes_no_room_from_the_next_move() -> None:
    disks, manager, log = two_moves_of_small_logs()
    log.segments.active.file.pwrite(b"\xff" * 70, len(a_batch(2)))
    log.truncations.truncate_in_thread(3, lambda error: None)
    for topic_partition in (FROM_BAD, FROM_GOOD):
        manager.moves.start(topic_partition)
    disks.background.advance(100)
    assert (log_dir_of(manager, FROM_BAD), log_dir_of(manager, FROM_GOOD)) == ("/a", "/c")
    manager.moves.stop(FROM_BAD)
    disks.background.advance(1000)
    assert FROM_BAD not in manager.moves


@pytest.mark.parametrize("failing", ["in the thread", "on the loop"])
def test_a_fault_of_the_broker_takes_no_room_from_the_next_move(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disks = Disks(log_dirs="/a,/b,/c")
    manager = disks.start(num_replica_alter_log_dirs_threads=1)
    for topic_partition, log_dir in ((FROM_BAD, "/a"), (FROM_GOOD, "/b")):
        log = manager.get_or_create(topic_partition, is_new=True, log_dir=log_dir)
        for _ in range(2):
            append(log, a_batch(1, value_bytes=200_000))
        a_future_log(manager, log, "/c")
    disks.settle()
    faults = 0
    read, append_to = log_moves._read, LogMoves._append

    def refuse(topic_partition: TopicPartition) -> None:
        nonlocal faults
        if topic_partition == FROM_BAD:
            faults += 1
            raise MemoryError

    def failing_read(current: PartitionLog, region: FileRegion) -> bytes:
        refuse(current.topic_partition)
        return read(current, region)

    def failing_append(moves: LogMoves, move: Move, data: bytes) -> None:
        refuse(move.current.topic_partition)
        append_to(moves, move, data)

    with monkeypatch.context() as broken:
        if failing == "in the thread":
            broken.setattr(log_moves, "_read", failing_read)
        else:
            broken.setattr(LogMoves, "_append", failing_append)
        for topic_partition in (FROM_BAD, FROM_GOOD):
            manager.moves.start(topic_partition)
        disks.background.advance(900)
    assert (log_dir_of(manager, FROM_BAD), log_dir_of(manager, FROM_GOOD)) == ("/a", "/c")
    assert faults == 1
    disks.background.advance(1000)
    assert log_dir_of(manager, FROM_BAD) == "/c"
