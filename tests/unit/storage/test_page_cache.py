"""How much of a file is in the page cache: what the system says, and what is made of it when it says nothing."""

import ctypes
import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.storage.disk import page_cache, real_file
from ottla.storage.disk.filesystem import RealFile, RealFileSystem
from ottla.storage.disk.page_cache import PageCache

PAGE = mmap.PAGESIZE
LENGTH = 64 * PAGE


def saying(pages: int, asked: list[int]) -> Callable[..., int]:
    """A system that counts `pages` in the cache, whatever it is asked."""

    def cachestat(number: int, descriptor: int, asked_at: int, answer_at: int, flags: int) -> int:
        asked.append(descriptor)
        ctypes.c_uint64.from_address(answer_at).value = pages
        return 0

    return cachestat


def refusing(code: int, asked: list[int]) -> Callable[..., int]:
    """A system without the call, or that does not let us use it."""

    def cachestat(number: int, descriptor: int, asked_at: int, answer_at: int, flags: int) -> int:
        asked.append(descriptor)
        ctypes.set_errno(code)
        return -1

    return cachestat


@pytest.fixture
def file(tmp_path: Path) -> RealFile:
    found = RealFileSystem().open(f"{tmp_path}/a", create=True)
    found.write(bytes(LENGTH))
    return found


def test_what_was_just_written_is_in_the_page_cache_or_nothing_is_told(file: RealFile) -> None:
    assert PageCache().holds(file.fileno(), LENGTH, 0) in (True, None)
    assert PageCache().holds(file.fileno(), 3 * PAGE, PAGE - 1) in (True, None)


@pytest.mark.parametrize(
    ("length", "at", "pages"),
    [(1, 0, 1), (PAGE, 0, 1), (PAGE, 1, 2), (2, PAGE - 1, 2), (PAGE + 1, 0, 2), (10 * PAGE, 5 * PAGE, 10), (10 * PAGE, 5 * PAGE + 7, 11)],
)
def test_every_page_that_the_bytes_touch_has_to_be_there(monkeypatch: pytest.MonkeyPatch, length: int, at: int, pages: int) -> None:
    cache = PageCache()
    monkeypatch.setattr(cache, "_is_supported", True)
    monkeypatch.setattr(page_cache, "_syscall", saying(pages, []))
    assert cache.holds(0, length, at) is True
    monkeypatch.setattr(page_cache, "_syscall", saying(pages - 1, []))
    assert cache.holds(0, length, at) is (False if pages > 1 else None)


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
def test_a_system_that_does_not_tell_is_asked_once(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    asked: list[int] = []
    cache = PageCache()
    monkeypatch.setattr(cache, "_is_supported", True)
    monkeypatch.setattr(page_cache, "_syscall", refusing(code, asked))
    assert [cache.holds(5, LENGTH, 0) for _ in range(3)] == [None] * 3
    assert asked == [5]


def test_a_file_system_that_does_not_tell_says_nothing_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    cache = PageCache()
    monkeypatch.setattr(cache, "_is_supported", True)
    monkeypatch.setattr(page_cache, "_syscall", refusing(errno.EOPNOTSUPP, asked))
    assert [cache.holds(each, LENGTH, 0) for each in (5, 6)] == [None, None]
    assert asked == [5, 6]


@pytest.mark.parametrize(("told", "is_cached"), [(True, True), (False, False), (None, True)])
def test_a_large_part_is_cached_if_the_system_says_so_and_else_if_no_probe_refuses(
    monkeypatch: pytest.MonkeyPatch, file: RealFile, told: bool | None, is_cached: bool
) -> None:
    monkeypatch.setattr(PageCache, "holds", lambda *_: told)
    assert file.is_cached(LENGTH, 0) is is_cached


def test_a_large_part_whose_last_byte_is_still_being_read_is_not_cached(monkeypatch: pytest.MonkeyPatch, file: RealFile) -> None:
    probed: list[int] = []

    def would_wait(descriptor: int, buffers: object, at: int, flags: int) -> int:
        probed.append(at)
        raise BlockingIOError

    monkeypatch.setattr(PageCache, "holds", lambda *_: True)
    monkeypatch.setattr(os, "preadv", would_wait)
    assert not file.is_cached(LENGTH, 0)
    assert probed == [LENGTH - 1]


def test_only_small_reads_hold_the_interpreter(file: RealFile, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    def read_cached(descriptor: int, length: int, at: int) -> bytes:
        held.append(length)
        return os.pread(descriptor, length, at)

    monkeypatch.setattr(real_file, "_read_cached", read_cached)
    large = real_file.SMALL_BYTES + 1
    assert file.pread(PAGE, 0) == bytes(PAGE)
    assert file.pread(large, 0) == bytes(large)
    assert held == [PAGE]
