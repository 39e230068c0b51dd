"""What storage relies on in a file system, held against every one there is."""

import contextlib
import errno
import gc
import mmap
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.storage.disk.deleted_files import LARGE_BYTES
from ottla.storage.disk.filesystem import FileSystem, RealFileSystem
from ottla.storage.disk.movable_directory import MovableDirectory
from ottla.storage.disk.small_files import SmallFiles
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.slow_disk import Delays, SlowFileSystem

Case = tuple[FileSystem, str]


def _real(tmp_path: Path) -> Case:
    return RealFileSystem(), str(tmp_path)


def _memory(tmp_path: Path) -> Case:
    filesystem = MemoryFileSystem()
    filesystem.make_directory("/data")
    return filesystem, "/data"


def _faulty(tmp_path: Path) -> Case:
    filesystem, root = _memory(tmp_path)
    return FaultyFileSystem(filesystem), root


def _moved(tmp_path: Path) -> Case:
    """A directory that is called otherwise by now."""
    inner = RealFileSystem()
    small_files = SmallFiles(inner, str(tmp_path / "before"))
    inner.make_directory(small_files.directory)
    filesystem = MovableDirectory(inner, small_files)
    small_files.move_to(str(tmp_path / "after"))
    return filesystem, str(tmp_path / "before")


def _slow(tmp_path: Path) -> Case:
    return SlowFileSystem(RealFileSystem(), Delays(1)), str(tmp_path)


@pytest.fixture(params=[_real, _memory, _faulty, _moved, _slow], ids=["real", "memory", "faulty", "moved", "slow"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    make: Callable[[Path], Case] = request.param
    return make(tmp_path)


def test_opening_what_does_not_exist_fails_unless_it_is_to_be_created(case: Case) -> None:
    filesystem, root = case
    with pytest.raises(FileNotFoundError):
        filesystem.open(f"{root}/a")
    filesystem.open(f"{root}/a", create=True).close()
    assert filesystem.exists(f"{root}/a")
    assert filesystem.size(f"{root}/a") == 0


def test_opening_to_create_keeps_what_is_there(case: Case) -> None:
    filesystem, root = case
    filesystem.open(f"{root}/a", create=True).write(b"content")
    filesystem.open(f"{root}/a", create=True).close()
    assert filesystem.read_file(f"{root}/a") == b"content"


def test_writes_follow_each_other(case: Case) -> None:
    filesystem, root = case
    file = filesystem.open(f"{root}/a", create=True)
    file.write(b"one")
    file.write(memoryview(b" two"))
    assert file.size() == 7
    assert filesystem.read_file(f"{root}/a") == b"one two"


def test_a_write_at_a_position_overwrites_and_extends(case: Case) -> None:
    filesystem, root = case
    file = filesystem.open(f"{root}/a", create=True)
    file.pwrite(b"abcdef", 0)
    file.pwrite(bytearray(b"XY"), 5)
    file.pwrite(b"Z", 9)
    assert file.pread(100, 0) == b"abcdeXY\0\0Z"


def test_a_read_ends_at_the_end_of_the_file(case: Case) -> None:
    filesystem, root = case
    file = filesystem.open(f"{root}/a", create=True)
    file.write(b"0123456789")
    assert file.pread(4, 3) == b"3456"
    assert file.pread(4, 8) == b"89"
    assert file.pread(4, 10) == b""


def test_truncation_cuts_and_extends_with_zeros(case: Case) -> None:
    filesystem, root = case
    file = filesystem.open(f"{root}/a", create=True)
    file.write(b"0123456789")
    file.truncate(4)
    file.truncate(6)
    assert filesystem.read_file(f"{root}/a") == b"0123\0\0"


def test_a_file_opened_for_reading_cannot_be_written(case: Case) -> None:
    filesystem, root = case
    filesystem.open(f"{root}/a", create=True).write(b"x")
    with pytest.raises(OSError) as caught:
        filesystem.open(f"{root}/a", read_only=True).pwrite(b"y", 0)
    assert caught.value.errno == errno.EBADF


def test_a_deleted_file_stays_readable_for_who_has_it_open(case: Case) -> None:
    filesystem, root = case
    file = filesystem.open(f"{root}/a", create=True)
    file.write(b"still here")
    filesystem.unlink(f"{root}/a")
    assert not filesystem.exists(f"{root}/a")
    assert file.pread(10, 0) == b"still here"


def test_a_rename_replaces_its_target(case: Case) -> None:
    filesystem, root = case
    filesystem.open(f"{root}/new", create=True).write(b"new")
    filesystem.open(f"{root}/old", create=True).write(b"old")
    filesystem.rename(f"{root}/new", f"{root}/old")
    assert filesystem.list_directory(root) == ["old"]
    assert filesystem.read_file(f"{root}/old") == b"new"


def test_renaming_a_directory_takes_its_files_along(case: Case) -> None:
    filesystem, root = case
    filesystem.make_directory(f"{root}/a/b")
    filesystem.open(f"{root}/a/b/file", create=True).write(b"x")
    filesystem.rename(f"{root}/a", f"{root}/z")
    assert filesystem.read_file(f"{root}/z/b/file") == b"x"
    assert not filesystem.exists(f"{root}/a")


def test_names_are_listed_in_order_without_what_is_deeper(case: Case) -> None:
    filesystem, root = case
    for name in ("c", "a", "b"):
        filesystem.open(f"{root}/{name}", create=True).close()
    filesystem.make_directory(f"{root}/d/e")
    assert filesystem.list_directory(root) == ["a", "b", "c", "d"]
    with pytest.raises(FileNotFoundError):
        filesystem.list_directory(f"{root}/nowhere")


def test_only_an_empty_directory_is_removed(case: Case) -> None:
    filesystem, root = case
    filesystem.make_directory(f"{root}/d")
    filesystem.make_directory(f"{root}/d")
    filesystem.open(f"{root}/d/file", create=True).close()
    with pytest.raises(OSError):
        filesystem.remove_directory(f"{root}/d")
    filesystem.unlink(f"{root}/d/file")
    filesystem.remove_directory(f"{root}/d")
    assert not filesystem.is_directory(f"{root}/d")


def test_the_time_of_the_last_change_can_be_set(case: Case) -> None:
    filesystem, root = case
    filesystem.open(f"{root}/a", create=True).close()
    filesystem.set_modified_ms(f"{root}/a", 1_700_000_000_123)
    assert filesystem.modified_ms(f"{root}/a") == 1_700_000_000_123


def test_syncing_what_exists_succeeds(case: Case) -> None:
    filesystem, root = case
    file = filesystem.open(f"{root}/a", create=True)
    file.write(b"x")
    file.sync()
    filesystem.sync_directory(root)


def test_a_lock_is_held_by_one_until_it_is_given_back(case: Case) -> None:
    filesystem, root = case
    lock = filesystem.try_lock(f"{root}/.lock")
    assert lock is not None
    assert filesystem.try_lock(f"{root}/.lock") is None
    filesystem.unlock(lock)
    assert filesystem.try_lock(f"{root}/.lock") is not None


def test_what_was_just_written_is_cached(case: Case) -> None:
    filesystem, root = case
    file = filesystem.open(f"{root}/a", create=True)
    file.write(bytes(300_000))
    assert file.is_cached(300_000, 0)


def test_the_disk_has_a_size_and_room(case: Case) -> None:
    filesystem, root = case
    total, free = filesystem.total_and_free_bytes(root)
    assert total >= free > 0


def _open_inodes() -> set[int]:
    """The inodes of the regular files that this process has open."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            status = os.fstat(int(name))
            if stat.S_ISREG(status.st_mode):
                found.add(status.st_ino)
    return found


def test_a_hole_in_a_real_file_is_not_mapped_for_that_takes_room_on_some_disks(tmp_path: Path) -> None:
    file = RealFileSystem().open(str(tmp_path / "file"), create=True)
    file.write(b"x" * 4096)
    assert isinstance(file.map(4096), mmap.mmap)
    file.truncate(1 << 20)
    assert isinstance(file.map(4096), mmap.mmap)
    assert file.map(1 << 20) == b"x" * 4096 + bytes((1 << 20) - 4096)
    file.close()


@pytest.mark.slow
def test_a_real_file_closes_its_descriptor_with_its_last_reference(tmp_path: Path) -> None:
    file = RealFileSystem().open(f"{tmp_path}/a", create=True)
    inode = os.fstat(file.fileno()).st_ino
    assert inode in _open_inodes()
    del file
    gc.collect()
    # Not by the number of the descriptor: a thread of an earlier test may have been given the same one since.
    assert inode not in _open_inodes()


@pytest.mark.slow
@pytest.mark.parametrize(("size", "is_deleted"), [(LARGE_BYTES, True), (LARGE_BYTES, False), (4096, True)])
def test_a_large_file_that_was_deleted_is_given_back_in_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, is_deleted: bool
) -> None:
    threads: list[int] = []
    is_closed = threading.Event()
    close = os.close

    filesystem = RealFileSystem()
    file = filesystem.open(str(tmp_path / "a"), create=True)
    own = file.fileno()

    def noting(descriptor: int) -> None:
        close(descriptor)
        if descriptor == own and not is_closed.is_set():  # others are closed at any time, by whoever left them
            threads.append(threading.get_ident())
            is_closed.set()

    file.write(bytes(size))
    if is_deleted:
        filesystem.unlink(str(tmp_path / "a"))
    monkeypatch.setattr(os, "close", noting)
    del file
    gc.collect()
    assert is_closed.wait(60)
    assert (threads != [threading.get_ident()]) == (is_deleted and size == LARGE_BYTES)


def test_a_real_file_may_be_closed_twice(tmp_path: Path) -> None:
    file = RealFileSystem().open(f"{tmp_path}/a", create=True)
    file.close()
    file.close()


def test_a_short_write_is_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFileSystem().open(f"{tmp_path}/a", create=True)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:3], at))
    file.pwrite(b"0123456789", 0)
    assert file.pread(10, 0) == b"0123456789"


def test_a_write_that_makes_no_progress_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFileSystem().open(f"{tmp_path}/a", create=True)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError, match="0 of 10 bytes"):
        file.pwrite(b"0123456789", 0)


def test_a_write_that_is_made_to_fail_leaves_half_of_it() -> None:
    inner = MemoryFileSystem()
    inner.make_directory("/d")
    faulty = FaultyFileSystem(inner)
    file = faulty.open("/d/a", create=True)
    faulty.fail_at = faulty.calls + 1
    with pytest.raises(OSError):
        file.pwrite(b"0123456789", 0)
    assert inner.read_file("/d/a") == b"01234"


def test_a_file_without_a_name_is_nowhere_until_it_is_named(case: Case) -> None:
    filesystem, root = case
    file = filesystem.open_unnamed(root)
    assert file is not None
    assert filesystem.list_directory(root) == []
    filesystem.make_directory(f"{root}/inside")
    filesystem.link(f"{root}/inside/named", file)
    file.pwrite(b"data", 0)
    assert filesystem.read_file(f"{root}/inside/named") == b"data"


def test_a_file_is_not_given_a_name_that_is_taken(case: Case) -> None:
    filesystem, root = case
    filesystem.open(f"{root}/taken", create=True)
    file = filesystem.open_unnamed(root)
    assert file is not None
    with pytest.raises(FileExistsError):
        filesystem.link(f"{root}/taken", file)


def test_where_files_must_have_names_there_are_none_without(tmp_path: Path) -> None:
    assert RealFileSystem().open_unnamed("/proc") is None
    with pytest.raises(FileNotFoundError):
        RealFileSystem().open_unnamed(str(tmp_path / "missing"))
