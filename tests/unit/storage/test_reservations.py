"""Disk space ahead of the active segment: asked for when it grows, used, and given back."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.storage.disk import disk_space
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.disk.real_file import RealFile
from ottla.storage.log.context import LogContext
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.segment.segment import FIRST_BYTES, NEVER
from ottla.storage.upkeep.reservations import MOST_BYTES, Reservations
from tests.support.batches import a_batch
from tests.support.filesystems import MemoryFile, MemoryFileSystem
from tests.support.logs import a_context, a_log, append, read_all

MIB = 1 << 20
Then = Callable[[BaseException | None], None]


class Disk:
    """What is asked of the disk, and how it answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[int, int]] = []
        self.given_back = 0
        self.grants = True
        self.free_bytes = 1 << 50
        self.filesystem = MemoryFileSystem()
        monkeypatch.setattr(MemoryFile, "reserve", lambda _, at, length: self.asked.append((at, length)) or self.grants)
        monkeypatch.setattr(MemoryFile, "give_back", lambda _: setattr(self, "given_back", self.given_back + 1))
        monkeypatch.setattr(self.filesystem, "total_and_free_bytes", lambda _: (1 << 60, self.free_bytes))
        self.threads: list[tuple[Callable[[], None], Then]] = []

    def submit(self, name: str, work: Callable[[], None], then: Then) -> None:
        """To be run by `run`."""
        self.threads.append((work, then))

    def run(self) -> None:
        """What was submitted."""
        for work, then in self.threads:
            work()
            then(None)
        self.threads.clear()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def a_growing_log(disk: Disk, name: str = "growing", reservations: Reservations | None = None, **settings: int) -> PartitionLog:
    context: LogContext = a_context(disk.filesystem)
    context.reserve = (reservations or Reservations(disk.filesystem, disk.submit)).reserve
    return a_log(context, log_dir=f"/{name}", **{"segment_bytes": 1 << 30, "segment_index_bytes": 1 << 20, **settings})


def grow(log: PartitionLog, mib: int, disk: Disk | None = None) -> None:
    for _ in range(mib * 2):
        append(log, a_batch(1, value_bytes=MIB // 2))
        if disk is not None:
            disk.run()


def test_a_segment_that_hardly_grows_gets_nothing(disk: Disk) -> None:
    log = a_growing_log(disk)
    grow(log, 3)
    assert not disk.threads
    assert log.segments.active.reserved_bytes == 0


@pytest.mark.slow
def test_one_that_grows_gets_more_and_more_ahead_of_it(disk: Disk) -> None:
    log = a_growing_log(disk)
    grow(log, 300, disk)
    sizes = [length for _, length in disk.asked]
    assert sizes[:6] == [FIRST_BYTES, 2 * FIRST_BYTES, 4 * FIRST_BYTES, 8 * FIRST_BYTES, MOST_BYTES, MOST_BYTES]
    assert max(sizes) == MOST_BYTES
    ends = [at + length for at, length in disk.asked]
    assert all(at <= end for (at, _), end in zip(disk.asked[1:], ends, strict=False))  # asked before what was there is used up
    assert ends[-1] > log.segments.active.size


def test_nothing_is_asked_twice_while_a_thread_is_at_it(disk: Disk) -> None:
    log = a_growing_log(disk)
    grow(log, 20)
    assert len(disk.threads) == 1
    assert log.segments.active.reserve_at == NEVER


def test_a_refusal_is_final_and_harmless(disk: Disk) -> None:
    disk.grants = False
    log = a_growing_log(disk)
    grow(log, 20, disk)
    assert len(disk.asked) == 1
    assert log.segments.active.reserved_bytes == 0


def test_an_error_is_as_a_refusal(disk: Disk) -> None:
    log = a_growing_log(disk)
    grow(log, 5)
    ((_, then),) = disk.threads
    then(OSError(28, "no space"))
    assert (log.segments.active.reserved_bytes, log.segments.active.reserve_at) == (0, NEVER)
    grow(log, 5)


def test_never_more_than_fits_into_the_segment(disk: Disk) -> None:
    log = a_growing_log(disk, segment_bytes=20 * MIB)
    grow(log, 19, disk)
    assert all(at + length <= 20 * MIB for at, length in disk.asked)


def test_a_disk_with_little_left_is_left_alone(disk: Disk) -> None:
    reservations = Reservations(disk.filesystem, disk.submit)
    disk.free_bytes = 2 * MOST_BYTES * 8
    logs = [a_growing_log(disk, f"t{n}", reservations) for n in range(3)]
    for log in logs:
        grow(log, 5, disk)
    assert [log.segments.active.reserved_bytes > 0 for log in logs] == [True, True, False]
    logs[0].segments.active.give_back()
    grow(logs[0], 5)
    disk.run()
    assert logs[0].segments.active.reserved_bytes > 0


def test_what_was_not_used_goes_back_when_the_segment_ends(disk: Disk) -> None:
    log = a_growing_log(disk)
    grow(log, 10, disk)
    ended = log.segments.active
    log.roll()
    log.rolls.finish()
    assert disk.given_back == 1
    assert ended.reserved_bytes == 0


def test_a_thread_that_comes_too_late_gives_back_what_it_got(disk: Disk) -> None:
    log = a_growing_log(disk)
    grow(log, 5)
    ended = log.segments.active
    log.roll()
    log.rolls.finish()
    before = disk.given_back
    disk.run()
    assert disk.given_back == before + 1
    assert ended.reserved_bytes == 0


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_thread_may_outlive_its_log(disk: Disk, is_deleted: bool) -> None:
    log = a_growing_log(disk)
    grow(log, 5)
    if is_deleted:
        log.files.delete()
    else:
        log.close()
    before = disk.given_back
    disk.run()
    assert disk.given_back == before


def test_a_close_gives_back(disk: Disk) -> None:
    log = a_growing_log(disk)
    grow(log, 10, disk)
    log.close()
    assert disk.given_back == 1


def test_after_it_was_given_back_it_has_to_grow_again(disk: Disk) -> None:
    log = a_growing_log(disk)
    grow(log, 10, disk)
    segment = log.segments.active
    segment.give_back()
    asked = len(disk.asked)
    grow(log, 3, disk)
    assert len(disk.asked) == asked
    grow(log, 2, disk)
    assert len(disk.asked) == asked + 1


def test_a_log_that_nobody_reserves_for_asks_once(disk: Disk) -> None:
    log = a_log(a_context(disk.filesystem), segment_bytes=1 << 30)
    grow(log, 5)
    assert log.segments.active.reserve_at == NEVER


# The real disk


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


def is_reserved(tmp_path: Path) -> bool:
    with open(tmp_path / "probe", "wb") as probe:
        return disk_space.reserve(probe.fileno(), 0, 4096)


def test_the_size_and_the_bytes_stay(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = RealFileSystem().open(str(path), create=True)
    file.pwrite(b"abc" * 1000, 0)
    was_reserved = file.reserve(3000, 8 * MIB)
    assert was_reserved == is_reserved(tmp_path)
    assert path.read_bytes() == b"abc" * 1000
    if was_reserved:
        assert allocated(path) >= 8 * MIB
    file.pwrite(b"def", 3000)
    file.give_back()
    assert path.read_bytes() == b"abc" * 1000 + b"def"
    assert allocated(path) < MIB


def test_giving_back_nothing_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = RealFileSystem().open(str(path), create=True)
    file.pwrite(b"abc" * 1000, 0)
    os.utime(path, (1, 1))
    file.give_back()
    assert path.stat().st_mtime == 1  # no call that changes the file


def test_a_log_on_the_real_disk_holds_what_was_appended_and_no_more_once_closed(tmp_path: Path) -> None:
    filesystem = RealFileSystem()
    context = a_context(filesystem)
    context.reserve = Reservations(filesystem, context.submit).reserve  # where it is asked for
    (tmp_path / "topic-0").mkdir()
    log = a_log(context, log_dir=str(tmp_path), segment_bytes=1 << 30)
    grow(log, 12)
    path = Path(log.segments.active.path)
    if is_reserved(tmp_path) and filesystem.total_and_free_bytes(str(tmp_path))[1] > 8 * MOST_BYTES:
        assert allocated(path) > 14 * MIB
    assert path.stat().st_size == log.segments.active.size
    assert len(read_all(log)) == log.size_bytes
    log.close()
    assert allocated(path) < 14 * MIB


def test_what_a_killed_broker_had_goes_back_at_the_next_start(tmp_path: Path) -> None:
    filesystem = RealFileSystem()
    context = a_context(filesystem)
    context.reserve = Reservations(filesystem, context.submit).reserve
    (tmp_path / "topic-0").mkdir()
    log = a_log(context, log_dir=str(tmp_path), segment_bytes=1 << 30)
    grow(log, 12)
    size, path = log.size_bytes, Path(log.segments.active.path)
    log.close_without_writing()
    opened = a_log(a_context(filesystem), clean=False, log_dir=str(tmp_path), segment_bytes=1 << 30)
    assert (opened.size_bytes, path.stat().st_size) == (size, size)
    assert allocated(path) < 14 * MIB


def test_a_file_that_cannot_be_asked_refuses() -> None:
    assert not disk_space.reserve(-1, 0, 4096)
    assert not RealFile("gone", -1).reserve(0, 4096)
