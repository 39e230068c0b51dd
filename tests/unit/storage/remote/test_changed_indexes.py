"""A bit of a stored index that is changed for good never gives a wrong answer: the index is made anew from the records, or refused."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.protocol.records.checksum import crc32c
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.errors import CorruptIndex
from ottla.storage.log.lookups import offset_for_timestamp
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.index_checks import check_index, index_checksums, with_checksums
from ottla.storage.remote.object_layout import CustomMetadata, custom_metadata, read_custom_metadata
from ottla.storage.remote.ports import IndexKind, RemoteStoreError
from ottla.storage.segment.transaction_index import AbortedTransaction
from tests.support.batches import a_batch
from tests.support.logs import a_context, a_log, append
from tests.support.remote_reading import Reading, a_reading, copy_closed_segments, files_of, run, when_here
from tests.support.remote_stores import a_directory_store
from tests.unit.storage.remote.test_segment_reader import a_local_log, a_transactional_log, local_bytes, read_segments

CHUNK_BYTES = 1 << 20


def flips(path: Path) -> Iterator[int]:
    """Changes each bit of a file in turn; it is right again at the end."""
    right = path.read_bytes()
    assert right
    for bit in range(8 * len(right)):
        changed = bytearray(right)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        yield bit
    path.write_bytes(right)


def with_the_checksums(entry: SegmentEntry, log: object) -> SegmentEntry:
    """The entry as this broker writes it; without them it is as another one does."""
    segment = log.segments.floor(entry.start_offset)  # type: ignore[attr-defined]  # a PartitionLog
    files = files_of(segment, entry.end_offset + 1, RealFileSystem())
    return replace(entry, custom=with_checksums(None, index_checksums(RealFileSystem(), files), 128))


def a_log_of_repeated_times(tmp_path: Path) -> object:
    """Batches whose times stand still, go back, and jump."""
    log = a_log(a_context(RealFileSystem()), log_dir=str(tmp_path / "log"), segment_bytes=1500, index_interval_bytes=300)
    for at in range(60):
        times = [1000 + at // 5 * 8 - at % 3, 1000 + at // 5 * 8]
        append(log, a_batch(2, value_bytes=20, timestamps=times))
    log.update_high_watermark(log.log_end_offset)
    return log


async def offset_at(reading: Reading, entry: SegmentEntry, timestamp: int) -> int | None:
    """The answer by time; repeated after an error, as clients do."""
    for _ in range(3):
        try:
            found = await when_here(reading.reader.find_by_timestamp, entry, timestamp, 0, True, None)
            return None if found is None else found.offset
        except RemoteStoreError:
            continue
    raise AssertionError("the answer stays away")


@pytest.mark.slow
@pytest.mark.parametrize("has_checksums", [True, False], ids=["own copy", "copy of another broker"])
@pytest.mark.parametrize("kind", [".timeindex", ".index"])
def test_no_changed_bit_of_an_index_changes_an_answer(tmp_path: Path, kind: str, has_checksums: bool) -> None:
    log = a_log_of_repeated_times(tmp_path)
    (tmp_path / "shared").mkdir()
    store = a_directory_store(tmp_path / "shared")

    async def story() -> None:
        (entry, *_) = await copy_closed_segments(log, store)  # type: ignore[arg-type]  # a PartitionLog
        if has_checksums:
            entry = with_the_checksums(entry, log)
        records = local_bytes(log, [entry])  # type: ignore[arg-type]  # a PartitionLog
        times = range(995, entry.max_timestamp_ms + 1)
        expected = [offset_for_timestamp(log, each) for each in times]  # type: ignore[arg-type]  # a PartitionLog
        path = next((tmp_path / "shared").rglob(f"00000000000000000000-*{kind}"))
        for bit in flips(path):
            cache = tmp_path / f"cache-{bit}"
            cache.mkdir()
            reading = a_reading(store, cache, chunk_bytes=CHUNK_BYTES)
            for timestamp, right in zip(times, expected, strict=True):
                assert right is not None
                assert await offset_at(reading, entry, timestamp) == right.offset, (bit, timestamp)
            try:
                assert await read_segments(reading, [entry], 700) == records, bit
            except RemoteStoreError:
                assert await read_segments(reading, [entry], 700) == records, bit
            await reading.reader.close()

    run(story)


@pytest.mark.slow
@pytest.mark.parametrize("has_checksums", [True, False], ids=["own copy", "copy of another broker"])
def test_a_changed_transaction_index_is_refused(tmp_path: Path, has_checksums: bool) -> None:
    """Without checksums only order and bounds can be checked: what passes is as long as it was."""
    log = a_transactional_log(tmp_path)
    (tmp_path / "shared").mkdir()
    store = a_directory_store(tmp_path / "shared")

    async def story() -> None:
        entries = await copy_closed_segments(log, store)
        path = next((tmp_path / "shared").rglob("*.txnindex"))
        entry = next(each for each in entries if path.name.startswith(f"{each.start_offset:020d}"))
        if has_checksums:
            entry = with_the_checksums(entry, log)
        refused = 0
        for bit in flips(path):
            cache = tmp_path / f"cache-{bit}"
            cache.mkdir()
            reading = a_reading(store, cache, chunk_bytes=CHUNK_BYTES)
            try:
                found: list[AbortedTransaction]
                found, _ = await when_here(reading.reader.aborted_transactions, entry, entry.start_offset, entry.end_offset + 1, None)
                assert not has_checksums, (bit, found)
            except RemoteStoreError:
                refused += 1
            await reading.reader.close()
        assert refused > 8 * path.stat().st_size // 2

    run(story)


def test_an_index_is_made_anew_once_and_then_kept(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)
    (tmp_path / "shared").mkdir()
    (tmp_path / "cache").mkdir()
    store = a_directory_store(tmp_path / "shared")

    async def story() -> None:
        (entry, *_) = await copy_closed_segments(log, store)
        entry = with_the_checksums(entry, log)
        path = next((tmp_path / "shared").rglob("00000000000000000000-*.timeindex"))
        path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
        reading = a_reading(store, tmp_path / "cache", chunk_bytes=CHUNK_BYTES)
        for timestamp in (1000, 1100, 1200, 1000):
            expected = offset_for_timestamp(log, timestamp)
            assert expected is not None
            assert await offset_at(reading, entry, timestamp) == expected.offset
        assert reading.store.fetches == [(0, 0, entry.size)] * 2, "once for the index, once for the search"
        await reading.reader.close()

    run(story)


def test_checksums_are_a_field_beside_those_of_the_plugin_and_within_the_limit() -> None:
    of_store = custom_metadata(CustomMetadata(1234, "prefix/", "key"))
    both = with_checksums(of_store, bytes(20), 128)
    assert both is not None
    assert of_store is not None
    assert both[1 : len(of_store)] == of_store[1:], "the fields of the plugin come first"
    assert read_custom_metadata(both) == CustomMetadata(1234, "prefix/", "key", bytes(20))
    assert with_checksums(of_store, bytes(20), len(both) - 1) == of_store
    assert with_checksums(None, bytes(20), 0) is None
    assert with_checksums(b"\xff", bytes(20), 128) == b"\xff", "what another store answers is kept"


def test_every_part_has_its_own_checksum(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)
    (tmp_path / "shared").mkdir()
    (entry, *_) = run(lambda: copy_closed_segments(log, a_directory_store(tmp_path / "shared")))
    parts = {kind: bytes([kind]) * 3 for kind in IndexKind}
    proved = replace(entry, custom=with_checksums(None, struct.pack(">5I", *(crc32c(parts[kind]) for kind in IndexKind)), 128))
    for kind in IndexKind:
        assert check_index(proved, kind, parts[kind])
        with pytest.raises(CorruptIndex, match=r"orders-0 at offset 0.*checksum"):
            check_index(proved, kind, parts[kind] + b"x")
