"""Makes stores of remote segments for tests, and the files that are copied into them."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.remote.directory_store import DirectoryStore
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, TopicIdPartition
from ottla.storage.remote.ports import SegmentFiles

_Result = TypeVar("_Result")

PARTITION = TopicIdPartition(bytes(range(16)), "orders", 3)


async def _at_once(work: Callable[[], _Result]) -> _Result:
    return work()


def at_once(work: Callable[[], _Result]) -> Awaitable[_Result]:
    """Does the work of threads in the test's own."""
    return _at_once(work)


def a_directory_store(directory: Path) -> DirectoryStore:
    """A store on this directory, which exists, that works in the test's thread."""
    store = DirectoryStore(RealFileSystem(), str(directory), at_once)
    store.prepare()
    return store


def an_entry(start_offset: int, end_offset: int, size: int, uuid: int = 1) -> SegmentEntry:
    """An entry of a copy of `orders-3` that has begun, whose uuid is this byte sixteen times."""
    return SegmentEntry(
        SegmentId(PARTITION, bytes([uuid] * 16)),
        start_offset,
        end_offset,
        broker_id=1,
        max_timestamp_ms=1000,
        event_timestamp_ms=2000,
        leader_epochs={0: start_offset},
        size=size,
        state=SegmentState.COPY_SEGMENT_STARTED,
    )


def segment_files(
    directory: Path, records: bytes, *, offset_index: bytes = b"o" * 8, time_index: bytes = b"t" * 12, transactions: bytes | None = None
) -> SegmentFiles:
    """The parts of a segment, as files in this directory."""
    for name, data in ((".log", records), (".index", offset_index), (".timeindex", time_index), (".txnindex", transactions)):
        if data is not None:
            (directory / name).write_bytes(data)
    return SegmentFiles(
        log=str(directory / ".log"),
        offset_index=str(directory / ".index"),
        time_index=str(directory / ".timeindex"),
        transaction_index=None if transactions is None else str(directory / ".txnindex"),
        producer_snapshot=b"snapshot",
        leader_epochs=b"0\n1\n0 0\n",
    )
