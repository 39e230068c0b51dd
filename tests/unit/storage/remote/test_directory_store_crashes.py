"""A broker dies, or its machine loses power, at any call of a directory store to its file system, or the call hangs for long."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable

import pytest

from ottla.broker.remote.store_threads import StoreThreads
from ottla.storage.remote import directory_store
from ottla.storage.remote.directory_store import DirectoryStore
from ottla.storage.remote.ports import IndexKind, RemoteStoreError, SegmentFiles
from tests.contract.test_remote_store import do
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.remote_stores import an_entry, at_once

RECORDS = bytes(range(256)) * 20
ENTRY = an_entry(0, 99, len(RECORDS))
INDEXES = {
    IndexKind.OFFSET: b"o" * 8,
    IndexKind.TIMESTAMP: b"t" * 12,
    IndexKind.PRODUCER_SNAPSHOT: b"snapshot",
    IndexKind.TRANSACTION: b"x" * 34,
    IndexKind.LEADER_EPOCH: b"0\n1\n0 0\n",
}
FILES = SegmentFiles("/log/.log", "/log/.index", "/log/.timeindex", "/log/.txnindex", b"snapshot", b"0\n1\n0 0\n")


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_store, "PIECE_BYTES", 2000)
    monkeypatch.setattr(directory_store, "_COPY_BYTES", 1000)


def a_disk() -> MemoryFileSystem:
    """The files of a segment, which are durable, and an empty store."""
    disk = MemoryFileSystem()
    disk.make_directory("/log")
    disk.make_directory("/shared")
    for path, data in (
        (FILES.log, RECORDS),
        (FILES.offset_index, INDEXES[IndexKind.OFFSET]),
        (FILES.time_index, INDEXES[IndexKind.TIMESTAMP]),
        (FILES.transaction_index or "", INDEXES[IndexKind.TRANSACTION]),
    ):
        disk.open(path, create=True).pwrite(data, 0)
    disk.sync_everything("/")
    a_store(disk).prepare()
    return disk


def a_store(disk: MemoryFileSystem | FaultyFileSystem) -> DirectoryStore:
    return DirectoryStore(disk, "/shared", at_once)  # type: ignore[arg-type]  # a faulty one passes all calls on


def crashes(disk: MemoryFileSystem, call: int, work: Callable[[DirectoryStore], Awaitable[object]]) -> bool:
    """Does the work until this call, from which on all fail. Returns whether there were as many."""
    faulty = FaultyFileSystem(disk)
    faulty.fail_at = call
    try:
        do(work(a_store(faulty)))
    except RemoteStoreError:
        return True
    return False


def check_whole(disk: MemoryFileSystem) -> None:
    store = a_store(disk)
    assert do(store.fetch(ENTRY, 0, len(RECORDS))) == RECORDS
    assert {kind: do(store.index(ENTRY, kind)) for kind in IndexKind} == INDEXES


def names(disk: MemoryFileSystem) -> list[str]:
    async def listed() -> list[str]:
        return [each.name async for each in a_store(disk).list("")]

    return do(listed())


def test_a_copy_that_a_crash_or_a_loss_of_power_ends_is_completed_by_the_next_or_removed() -> None:
    call = 1
    disk = a_disk()
    while crashes(disk, call, lambda store: store.copy(ENTRY, FILES)):
        for after in (disk, disk.after_power_cut(call)):
            do(a_store(after).copy(ENTRY, FILES))
            check_whole(after)
            do(a_store(after).delete(ENTRY))
            assert names(after) == []
        call += 1
        disk = a_disk()
    assert call > 20


@pytest.mark.parametrize("seed", range(10))
def test_a_copy_is_durable_when_it_is_done(seed: int) -> None:
    disk = a_disk()
    do(a_store(disk).copy(ENTRY, FILES))
    check_whole(disk.after_power_cut(seed))


def test_a_removal_that_a_crash_ends_is_completed_by_the_next() -> None:
    call = 1
    while True:
        disk = a_disk()
        do(a_store(disk).copy(ENTRY, FILES))
        if not crashes(disk, call, lambda store: store.delete(ENTRY)):
            break
        do(a_store(disk).delete(ENTRY))
        assert names(disk) == []
        call += 1
    assert call > 6


async def copies_twice(disk: MemoryFileSystem, number: int) -> bool:
    """Copies while the first attempt hangs in this call, until the second one has ended. Returns whether there were as many calls."""
    loop, reached, gate = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    calls = 0

    def hang(_name: str, path: str) -> bool:
        nonlocal calls
        calls += path.startswith("/shared")
        if calls == number and path.startswith("/shared"):
            loop.call_soon_threadsafe(reached.set)
            gate.wait(60)
        return False

    faulty = FaultyFileSystem(disk)
    faulty.fails_if = hang
    before = threading.enumerate()
    threads = StoreThreads()
    first = asyncio.ensure_future(DirectoryStore(faulty, "/shared", threads).copy(ENTRY, FILES))
    await asyncio.wait({first, asyncio.ensure_future(reached.wait())}, return_when=asyncio.FIRST_COMPLETED)
    first.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await first
    await a_store(disk).copy(ENTRY, FILES)
    gate.set()
    threads.close()
    for thread in set(threading.enumerate()) - set(before):
        thread.join(60)
    return reached.is_set()


def test_a_copy_stays_whole_when_a_call_of_an_attempt_that_was_given_up_ends_at_last() -> None:
    number = 1
    while do(copies_twice(disk := a_disk(), number)):
        check_whole(disk)
        number += 1
    assert number > 20


@pytest.mark.parametrize("size", [0, 1500, len(RECORDS) + 1])
def test_a_segment_whose_file_has_another_size_is_not_copied(size: int) -> None:
    disk = a_disk()
    disk.open(FILES.log).truncate(size)
    with pytest.raises(RemoteStoreError, match=f"has {size} bytes, and the segment to copy {len(RECORDS)}"):
        do(a_store(disk).copy(ENTRY, FILES))
