"""Reading: which bytes a fetch gets, where it is refused, and what sequential readers spare."""

import random
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.records.batch import iter_batches
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.errors import CorruptRecord, LogDirFailure, OffsetOutOfRange
from ottla.storage.log.context import LogContext
from ottla.storage.log.lookups import offset_for_timestamp, offset_of_max_timestamp
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.reads import MAX_HINTS, FetchSlice
from ottla.storage.segment.batch_finder import PACKET_BYTES, PAGE_BYTES
from ottla.storage.segment.file_region import FileRegion
from tests.support.batches import a_batch
from tests.support.clocks import ManualClock
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.logs import ManualScheduler, a_context, a_log, append, follow, read_all

SIZE = len(a_batch(2, value_bytes=40))


def _log(batches: int = 10, **config: Any) -> PartitionLog:
    """Batches of two records, `SIZE` bytes each."""
    log = a_log(**{"index_interval_bytes": 300, **config})
    for n in range(batches):
        append(log, a_batch(2, value_bytes=40, timestamps=[1000 + 2 * n, 1001 + 2 * n]))
    log.update_high_watermark(log.log_end_offset)
    return log


def _offsets(found: FetchSlice) -> list[int]:
    """Base offsets of the batches in a slice, which must be whole."""
    if found.region is None:
        return []
    data = found.region.read()
    batches = list(iter_batches(data))
    assert sum(header.size for _, header in batches) == len(data) == len(found.region)
    return [header.base_offset for _, header in batches]


def test_a_fetch_gets_whole_batches_from_the_one_that_holds_its_offset() -> None:
    log = _log()
    assert _offsets(log.read(6, 1 << 20, 20, False)) == [6, 8, 10, 12, 14, 16, 18]
    assert _offsets(log.read(7, 1 << 20, 20, False)) == [6, 8, 10, 12, 14, 16, 18]


def test_a_fetch_sees_nothing_at_or_beyond_its_end() -> None:
    log = _log()
    assert _offsets(log.read(6, 1 << 20, 12, False)) == [6, 8, 10]
    assert _offsets(log.read(6, 1 << 20, 11, False)) == [6, 8]
    assert _offsets(log.read(6, 1 << 20, 6, True)) == []
    assert log.read(6, 1 << 20, 12, False).next_offset == 12


def test_a_fetch_beyond_its_end_but_within_the_log_is_empty() -> None:
    log = _log()
    assert log.read(15, 100, 10, True).region is None
    assert log.read(20, 100, 20, True).region is None
    assert log.read(20, 100, 25, True).region is None


@pytest.mark.parametrize("offset", [-1, 5, 21])
def test_an_offset_outside_of_the_log_is_refused(offset: int) -> None:
    log = _log()
    log.increment_log_start_offset(6, "test")
    with pytest.raises(OffsetOutOfRange) as caught:
        log.read(offset, 100, 20, True)
    assert (caught.value.offset, caught.value.start, caught.value.end) == (offset, 6, 20)


def test_at_most_as_many_bytes_as_asked_for() -> None:
    log = _log()
    found = log.read(2, 3 * SIZE + SIZE // 2, 20, True)
    assert found.region is not None
    assert len(found.region) == 3 * SIZE
    assert found.next_offset == 2 + len(found.region) // SIZE * 2


def test_the_first_batch_comes_even_when_it_is_larger_if_one_must() -> None:
    log = _log()
    found = log.read(4, 10, 20, True)
    assert _offsets(found) == [4]
    assert found.next_offset == 6
    refused = log.read(4, 10, 20, False)
    assert (refused.region, refused.next_offset) == (None, 4)


def test_a_first_batch_that_is_not_below_the_end_does_not_come_even_if_one_must() -> None:
    assert _log().read(4, 10, 5, True).region is None


def test_a_fetch_ends_with_its_segment_and_the_next_one_goes_on() -> None:
    log = _log(segment_bytes=3 * SIZE)
    assert log.segments.bases == [0, 6, 12, 18]
    found = log.read(2, 1 << 20, 20, True)
    assert _offsets(found) == [2, 4]
    assert found.next_offset == 6
    assert _offsets(log.read(6, 1 << 20, 9, True)) == [6]
    assert _offsets(log.read(18, 1 << 20, 20, True)) == [18]


def test_an_offset_in_a_gap_leads_to_the_next_batch() -> None:
    log = a_log(segment_bytes=400)
    for base in (0, 50, 100, 200):
        follow(log, a_batch(1, base_offset=base, value_bytes=100), 0)
    assert log.segments.bases == [0, 100]
    for offset, found in ((1, 50), (51, 100), (100, 100), (101, 200)):
        assert _offsets(log.read(offset, 1, 201, True)) == [found]
    assert read_all(log, 51) == read_all(log, 100)


def test_a_sequential_reader_finds_its_place_without_touching_the_disk() -> None:
    faulty = FaultyFileSystem(MemoryFileSystem())
    log = a_log(LogContext(faulty, ManualClock(), ManualScheduler()))
    append(log)
    position = log.read(0, 1 << 20, 1, True).next_offset
    reads: list[str] = []
    log.segments.active.file.pread = lambda length, at: reads.append("read") or b""
    for _ in range(20):
        append(log)
        log.update_high_watermark(log.log_end_offset)
        found = log.read(position, 1 << 20, log.high_watermark, True)
        assert found.region is not None
        assert found.region.length == len(a_batch())
        position = found.next_offset
    assert not reads


def test_no_more_places_are_remembered_than_is_worth() -> None:
    log = _log(3 * MAX_HINTS)
    for offset in range(0, 6 * MAX_HINTS, 2):
        log.read(offset, 1, log.log_end_offset, True)
    assert len(log.reader.hints) <= MAX_HINTS


def test_places_are_forgotten_when_the_log_is_cut() -> None:
    log = _log()
    read_all(log)
    log.truncations.truncate_to(6)
    append(log, a_batch(5, value_bytes=7))
    append(log, a_batch(1, value_bytes=7))
    assert [_offsets(log.read(offset, 1, 12, True)) for offset in (5, 6, 8, 10, 11)] == [[4], [6], [6], [6], [11]]


def test_a_slice_stays_readable_after_its_segment_is_deleted() -> None:
    context = a_context()
    log = a_log(context)
    append(log)
    region = log.read(0, 100, 1, True).region
    log.truncations.truncate_fully_and_start_at(10)
    assert isinstance(context.scheduler, ManualScheduler)
    context.scheduler.run_all()
    assert region is not None
    assert len(region.read()) == len(a_batch())
    assert not any(name.endswith(".deleted") for name in context.filesystem.list_directory(log.directory))


def test_bytes_that_are_no_batch_any_more_are_an_error_of_the_record_not_of_the_disk() -> None:
    log = _log(3)
    log.segments.active.file.pwrite(b"\x63", SIZE + 16)
    with pytest.raises(CorruptRecord, match="at offset 2"):
        log.read(2, 100, 6, True)
    assert append(log).first_offset == 6


def test_a_disk_that_cannot_be_read_takes_its_log_directory_down() -> None:
    log = _log(3)
    log.segments.active.file.pread = _refuse
    with pytest.raises(LogDirFailure, match="Input/output error"):
        log.read(2, 100, 6, True)
    with pytest.raises(LogDirFailure):
        offset_for_timestamp(log, 1003)


def _refuse(length: int, at: int) -> bytes:
    raise OSError(5, "Input/output error")


# ---- timestamps


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_a_search_by_timestamp_looks_into_the_batch(codec: str) -> None:
    log = a_log()
    append(log, a_batch(3, codec, timestamps=[100, 300, 200]))
    append(log, a_batch(2, codec, timestamps=[250, 400]))
    assert offset_for_timestamp(log, 0) == (0, 100, 0)
    assert offset_for_timestamp(log, 101) == (1, 300, 0)
    assert offset_for_timestamp(log, 301) == (4, 400, 0)
    assert offset_for_timestamp(log, 401) is None
    assert offset_of_max_timestamp(log) == (4, 400, 0)


def test_a_search_by_timestamp_does_not_look_below_the_log_start() -> None:
    log = _log()
    log.increment_log_start_offset(5, "test")
    found = offset_for_timestamp(log, 0)
    assert found is not None
    assert (found.offset, found.timestamp) == (5, 1005)


def test_the_record_with_the_largest_timestamp_may_stand_anywhere() -> None:
    log = a_log(segment_bytes=150)
    for timestamp in (5, 9, 7, 9, 3):
        append(log, a_batch(timestamps=[timestamp]))
    found = offset_of_max_timestamp(log)
    assert found is not None
    assert (found.offset, found.timestamp) == (1, 9)
    assert offset_of_max_timestamp(a_log()) is None


# ---- regions on a real disk


def test_a_region_reads_warms_and_tells_whether_it_is_cached(tmp_path: Path) -> None:
    file = RealFileSystem().open(f"{tmp_path}/file", create=True)
    file.write(bytes(range(256)) * 4096)
    region = FileRegion(file, 256, 1_000_000)
    region.warm()
    assert region.is_cached()
    assert region.read() == (bytes(range(256)) * 4096)[256:1_000_256]
    assert len(region) == 1_000_000


def _varied_log(index_interval_bytes: int, is_written: bool, is_spoiled: bool) -> PartitionLog:
    """Sixty batches of different sizes; `is_written`: the index is in its file; `is_spoiled`: one entry leads to no batch."""
    chosen = random.Random(7)
    log = a_log(index_interval_bytes=index_interval_bytes)
    for _ in range(60):
        append(log, a_batch(chosen.randrange(1, 5), value_bytes=chosen.randrange(1, 900)))
    index = log.segments.active.offset_index
    if is_spoiled:
        entries = [index.entry(slot) for slot in range(index.entries)]
        index.reset()
        for slot, (offset, position) in enumerate(entries):
            index.append(offset, position + (slot == len(entries) // 2))
    if is_written:
        index.write_out()
    return log


@pytest.mark.slow
@pytest.mark.parametrize("is_spoiled", [False, True])
@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("index_interval_bytes", [1, 3000])
def test_any_offset_and_any_size_give_the_batches_that_are_there(index_interval_bytes: int, is_written: bool, is_spoiled: bool) -> None:
    log = _varied_log(index_interval_bytes, is_written, is_spoiled)
    content = log.segments.active.file.pread(log.size_bytes, 0)
    batches = list(iter_batches(content))
    end_offset = log.log_end_offset
    for offset in range(end_offset):
        first = next(at for at, (_, header) in enumerate(batches) if header.last_offset >= offset)
        start, header = batches[first]
        for bound in (end_offset, offset + 1, end_offset - 3):
            fitting = [(at, each) for at, each in batches[first:] if each.next_offset <= bound]
            for max_bytes in (-1, 0, 1, 700, 5000, 12_000, 17_000, 1 << 20):
                log.reader.hints.clear()
                found = log.read(offset, max_bytes, bound, True)
                region, next_offset = found.region, found.next_offset
                if max_bytes < 0 or not fitting:
                    assert (region, next_offset) == (None, offset)
                    continue
                assert region is not None
                assert offset < next_offset <= bound
                assert region.position == start
                end = region.position + region.length
                if next_offset != bound:  # which may be inside of a batch
                    assert end == next(at for at, each in batches if each.base_offset == next_offset)
                assert region.read() == region.file.pread(region.length, region.position)
                assert region.begun is None or region.begun == content[start : start + len(region.begun)]
                if header.size >= max_bytes:
                    assert region.length == header.size
                    continue
                assert region.length <= max_bytes
                whole = [at + each.size for at, each in fitting if at + each.size - start <= max_bytes]
                assert end == whole[-1] or max_bytes - region.length <= max_bytes // 4


def test_a_small_read_is_one_read_of_the_file() -> None:
    log = _varied_log(3000, True, False)
    reads: list[int] = []
    file = log.segments.active.file
    pread = file.pread
    log.segments.active.file.pread = lambda length, at: (reads.append(length), pread(length, at))[1]
    for offset in range(0, log.log_end_offset - 40, 7):
        for max_bytes in (4000, 8000, 16 * 1024):
            log.reader.hints.clear()
            reads.clear()
            region = log.read(offset, max_bytes, log.log_end_offset, True).region
            assert region is not None
            assert len(reads) <= 1
            assert region.begun is not None
            assert len(region.begun) == region.length


def test_a_large_read_looks_at_both_ends() -> None:
    log = a_log(index_interval_bytes=3000)
    for _ in range(300):
        append(log, a_batch(1, value_bytes=1000))
    reads: list[int] = []
    pread = log.segments.active.file.pread
    log.segments.active.file.pread = lambda length, at: (reads.append(length), pread(length, at))[1]
    for offset in range(0, 150, 7):
        log.reader.hints.clear()
        reads.clear()
        region = log.read(offset, 100_000, log.log_end_offset, True).region
        assert region is not None
        assert region.length > 98_000
        assert region.end_is_cached
        assert len(reads) <= 2
        assert sum(reads) <= 16 * 1024


def test_of_a_region_of_one_packet_the_bytes_before_its_first_page_are_read_once() -> None:
    log = a_log(index_interval_bytes=3000)
    for _ in range(300):
        append(log, a_batch(1, value_bytes=1000))
    for offset in range(0, 150, 7):
        log.reader.hints.clear()
        region = log.read(offset, PACKET_BYTES, log.log_end_offset, True).region
        assert region is not None
        before_page = -region.position % PAGE_BYTES
        assert bytes(region.begun or b"") == log.segments.active.file.pread(before_page, region.position)


def test_a_read_holds_none_of_the_last_files() -> None:
    """Its answer may wait for its client for long, and connections and other reads need files meanwhile."""
    filesystem = MemoryFileSystem()
    log = a_log(a_context(filesystem))
    batches = [a_batch(1, value_bytes=size) for size in (40_000, 40_000, 40_000, 90_000)]
    for batch in batches:
        append(log, batch)
    whole = read_all(log)
    filesystem.has_few_files = True
    position = 0
    for offset, batch in enumerate(batches):
        region = log.read(offset, 1 << 20, 4, True).region
        assert region is not None
        assert region.holds_all()
        assert region.read() == whole[position : position + len(batch)]
        assert region.file is not log.segments.active.file
        assert region.cut(70).holds_all()
        assert log.read(offset, 1 << 20, 4, False).region is None
        position += len(batch)
