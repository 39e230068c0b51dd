"""Records of remote segments are read as those of local ones, whatever is cached and wherever chunks end."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.records.builder import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.log.lookups import aborted_transactions, offset_for_timestamp
from ottla.storage.log.origins import AppendOrigin
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.ports import RemoteStoreError
from tests.support.batches import a_batch
from tests.support.logs import a_context, a_log, append
from tests.support.remote_reading import Reading, a_reading, copy_closed_segments, quiet, run, when_here
from tests.support.remote_stores import a_directory_store


def a_local_log(tmp_path: Path, *, batches: int = 120, value_bytes: int = 60, segment_bytes: int = 9000) -> PartitionLog:
    log = a_log(
        a_context(RealFileSystem()),
        log_dir=str(tmp_path / "log"),
        segment_bytes=segment_bytes,
        index_interval_bytes=500,
        segment_index_bytes=4000,
    )
    rng = random.Random(5)
    for at in range(batches):
        records = rng.randint(1, 4)
        append(log, a_batch(records, value_bytes=rng.randint(1, value_bytes), timestamps=[1000 + at * 10 + i for i in range(records)]))
    log.update_high_watermark(log.log_end_offset)
    assert len(log.segments) > 1
    return log


async def a_remote_log(tmp_path: Path, log: PartitionLog, **caches: Any) -> tuple[Reading, list[SegmentEntry]]:
    (tmp_path / "shared").mkdir()
    (tmp_path / "cache").mkdir()
    store = a_directory_store(tmp_path / "shared")
    entries = await copy_closed_segments(log, store)
    return a_reading(store, tmp_path / "cache", **caches), entries


async def read_segments(reading: Reading, entries: list[SegmentEntry], max_bytes: int, *, may_wait: bool = True) -> bytes:
    """All records, read as a consumer does."""
    records = b""
    for at, entry in enumerate(entries):
        following = entries[at + 1] if at + 1 < len(entries) else None
        offset = entry.start_offset
        while offset <= entry.end_offset:
            found = await when_here(reading.reader.read, entry, offset, max_bytes, True, may_wait)
            assert found.region is not None
            assert found.next_offset > offset
            reading.reader.read_ahead(entry, offset, found, "reader", following)
            records += found.region.read()
            offset = found.next_offset
    return records


def local_bytes(log: PartitionLog, entries: list[SegmentEntry]) -> bytes:
    return b"".join(segment.file.pread(segment.size, 0) for segment in list(log.segments)[: len(entries)])


@pytest.mark.parametrize("chunk_bytes", [100, 700, 1000, 4096, 1 << 20])
@pytest.mark.parametrize("max_bytes", [1, 300, 2500, 1 << 20])
def test_a_consumer_reads_what_was_copied(tmp_path: Path, chunk_bytes: int, max_bytes: int) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, chunk_bytes=chunk_bytes)
        assert await read_segments(reading, entries, max_bytes) == local_bytes(log, entries)
        assert await read_segments(reading, entries, max_bytes, may_wait=False) == local_bytes(log, entries)
        await reading.reader.close()
        assert len(reading.store.fetches) == len(set(reading.store.fetches)) == sum(-(-each.size // chunk_bytes) for each in entries)
        assert reading.budget.used == 0

    run(story)


@pytest.mark.parametrize("chunk_bytes", [100, 700, 5000])
def test_a_read_at_any_offset_begins_with_its_batch(tmp_path: Path, chunk_bytes: int) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, chunk_bytes=chunk_bytes)
        offsets = list(range(entries[-1].end_offset + 1))
        random.Random(1).shuffle(offsets)
        for offset in offsets:
            entry = next(each for each in entries if each.end_offset >= offset)
            found = await when_here(reading.reader.read, entry, offset, 1, True, True)
            expected = log.read(offset, 1, log.log_end_offset, True)
            assert found.region is not None
            assert expected.region is not None
            assert found.region.read() == expected.region.read()
            assert found.next_offset == expected.next_offset
        await reading.reader.close()

    run(story)


def test_a_batch_that_is_too_large_is_read_only_if_one_must_be(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log)
        assert (await when_here(reading.reader.read, entries[0], 0, 10, False, True)).region is None
        assert (await when_here(reading.reader.read, entries[0], 0, 10, True, True)).region is not None
        await reading.reader.close()

    run(story)


def test_batches_over_many_chunks_are_read(tmp_path: Path) -> None:
    log = a_local_log(tmp_path, batches=8, value_bytes=2500, segment_bytes=12_000)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, chunk_bytes=600)
        assert await read_segments(reading, entries, 5000) == local_bytes(log, entries)
        await reading.reader.close()

    run(story)


@pytest.mark.parametrize("at", [0, 61, 700, 3000, -1])
def test_a_changed_byte_is_never_answered(tmp_path: Path, at: int) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, chunk_bytes=1 << 20)
        size = entries[0].size

        def flip(data: bytes) -> bytes:
            changed = bytearray(data)
            changed[at % size] ^= 0x40
            return bytes(changed)

        reading.store.change = flip
        with pytest.raises(RemoteStoreError):
            await when_here(reading.reader.read, entries[0], 0, 1 << 20, True, True)
        assert reading.counts.remote_fetch_errors == 1
        reading.store.change = lambda data: data
        assert await read_segments(reading, entries, 3000) == local_bytes(log, entries)
        await reading.reader.close()

    run(story)


@pytest.mark.parametrize("chunk_bytes", [300, 1000])
def test_changed_bytes_at_borders_of_chunks_are_never_answered(tmp_path: Path, chunk_bytes: int) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, chunk_bytes=chunk_bytes)
        expected = local_bytes(log, entries[:1])

        def flip(data: bytes) -> bytes:
            return data[:-1] + bytes([data[-1] ^ 1])

        reading.store.change = flip
        offset = 0
        while offset <= entries[0].end_offset:
            try:
                found = await when_here(reading.reader.read, entries[0], offset, 2000, True, True)
            except RemoteStoreError:
                offset += 1
                continue
            assert found.region is not None
            assert found.region.read() in expected
            offset = found.next_offset
        assert reading.counts.remote_fetch_errors
        await reading.reader.close()

    run(story)


def test_an_index_that_is_not_of_its_segment_is_an_error_and_read_again(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log)
        shared = next((tmp_path / "shared").rglob("00000000000000000000-*.index"))
        right = shared.read_bytes()
        shared.write_bytes(b"".join(right[at : at + 4] + (int.from_bytes(right[at + 4 : at + 8], "big") + 3).to_bytes(4, "big")
                                    for at in range(0, len(right), 8)))  # fmt: skip
        with pytest.raises(RemoteStoreError):
            await read_segments(reading, entries[:1], 700)
        shared.write_bytes(right)
        assert await read_segments(reading, entries, 3000) == local_bytes(log, entries)
        await reading.reader.close()

    run(story)


def test_a_record_is_found_by_its_time(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log)
        for timestamp in range(990, entries[1].max_timestamp_ms + 5, 7):
            entry = next(each for each in entries if each.max_timestamp_ms >= timestamp)
            found = await when_here(reading.reader.find_by_timestamp, entry, timestamp, 0, True, None)
            expected = offset_for_timestamp(log, timestamp)
            assert found is not None
            assert expected is not None
            assert (found.offset, found.timestamp, found.leader_epoch) == expected
        await reading.reader.close()

    run(story)


def a_transactional_log(tmp_path: Path) -> PartitionLog:
    log = a_log(a_context(RealFileSystem()), log_dir=str(tmp_path / "log"), segment_bytes=1000, index_interval_bytes=200)
    for at in range(40):
        producer = at % 3
        append(log, a_batch(1, producer_id=producer, base_sequence=at // 3, transactional=True, value_bytes=50))
        if at % 10 == 9:
            for ended in range(3):
                marker = EndTransactionMarker(ControlRecordType.ABORT if ended else ControlRecordType.COMMIT, 0)
                batch = build_end_transaction_marker(marker, producer_id=ended, producer_epoch=0, timestamp=1, base_offset=0)
                append(log, bytearray(batch), origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)
    return log


def test_aborted_transactions_are_those_of_the_local_log(tmp_path: Path) -> None:
    log = a_transactional_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log)
        assert len(entries) >= 5
        for at, first in enumerate(entries[:-1]):
            for start in range(first.start_offset, first.end_offset + 1):
                for end in range(start + 1, first.end_offset + 2):
                    found = []
                    for entry in entries[at:]:
                        some, is_complete = await when_here(reading.reader.aborted_transactions, entry, start, end, None)
                        found += some
                        if is_complete:
                            break
                    expected = [each for each in aborted_transactions(log, start, end) if each.last_offset <= entries[-1].end_offset]
                    assert set(found) == set(expected)
        await reading.reader.close()

    run(story)


def test_a_sequential_reader_has_more_and_more_read_ahead(tmp_path: Path) -> None:
    log = a_local_log(tmp_path, batches=400, segment_bytes=30_000)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, chunk_bytes=1000)
        offset, seen = 0, []
        for _ in range(5):
            found = await when_here(reading.reader.read, entries[0], offset, 400, True, True)
            assert found.region is not None
            reading.reader.read_ahead(entries[0], offset, found, "reader", entries[1])
            await quiet()
            seen.append((max(end for _, _, end in reading.store.fetches) - found.region.position - found.region.length) // 1000)
            offset = found.next_offset
        assert seen == sorted(seen)
        assert 0 < seen[0] <= 2
        assert 7 <= seen[-1] <= 8
        await reading.reader.close()

    run(story)


def test_random_reads_are_not_read_ahead(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, chunk_bytes=1000)
        for offset in (3, 40, 20, 60, 1):
            entry = next(each for each in entries if each.end_offset >= offset)
            found = await when_here(reading.reader.read, entry, offset, 100, True, True)
            fetches = len(reading.store.fetches)
            reading.reader.read_ahead(entry, offset, found, "reader", None)
            await quiet()
            assert len(reading.store.fetches) == fetches
        await reading.reader.close()

    run(story)


def test_all_chunks_of_a_read_are_wanted_at_once(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, chunk_bytes=1000)
        reading.store.gate = asyncio.Event()
        asked = asyncio.ensure_future(when_here(reading.reader.read, entries[0], 0, 2500, True, True))
        await quiet()
        assert [start for _, start, _ in reading.store.fetches] == [0, 1000, 2000]
        reading.store.gate.set()
        found = await asked
        assert found.region is not None
        await reading.reader.close()

    run(story)


def test_a_segment_with_a_wrong_chunk_is_not_read_ahead_until_that_is_right(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, chunk_bytes=1 << 20)
        reading.store.change = lambda data: data[:-1] + bytes([data[-1] ^ 1])
        with pytest.raises(RemoteStoreError):
            await when_here(reading.reader.read, entries[0], 0, 2500, True, True)
        await quiet()
        assert reading.loads.wrong_segments == [entries[0].id]
        reading.loads.read_ahead(entries[0], 0, 0)
        assert not reading.loads.running
        reading.loads.read_ahead(entries[1], 0, 0)
        assert reading.loads.running == 1
        reading.store.change = lambda data: data
        await when_here(reading.reader.read, entries[0], 0, 2500, True, True)
        assert reading.loads.wrong_segments == []
        reading.chunks.remove(entries[0])
        await quiet()
        reading.loads.read_ahead(entries[0], 0, 0)
        assert reading.loads.running == 1
        await reading.reader.close()

    run(story)


def test_reading_ahead_goes_on_in_the_next_segment(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, chunk_bytes=1000)
        offset = 0
        while offset <= entries[0].end_offset:
            found = await when_here(reading.reader.read, entries[0], offset, 1000, True, True)
            reading.reader.read_ahead(entries[0], offset, found, "reader", entries[1])
            await quiet()
            offset = found.next_offset
        assert {start for start, _ in reading.store.indexes} == {0, entries[1].start_offset}
        assert any(start == entries[1].start_offset for start, _, _ in reading.store.fetches)
        await reading.reader.close()

    run(story)
