"""Lookups in old segments refuse to wait for the disk when they are asked to, and find the same once a thread has read."""

import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from ottla.protocol.records.builder import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.errors import InvalidRecord
from ottla.storage.log.lookups import aborted_transactions, begins_up_to, offset_for_timestamp, offset_of_max_timestamp
from ottla.storage.log.origins import AppendOrigin
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.reads import MAX_UNKNOWN
from ottla.storage.segment import record_search
from ottla.storage.segment.cold_lookups import ColdRead
from ottla.storage.segment.record_search import INLINE_BYTES, INLINE_PLAIN_BYTES, INLINE_RECORDS, FoundRecords
from ottla.storage.validation.record_errors import UnreadableRecords
from tests.support.batches import FIRST_TIMESTAMP, a_batch, a_record
from tests.support.cold_files import ColdFileSystem
from tests.support.logs import a_context, a_log, append, follow, read_all
from tests.support.odd_batches import TIME, a_body, framed

Found = TypeVar("Found")


def a_cold_log(*, is_reopened: bool) -> PartitionLog:
    filesystem = ColdFileSystem()
    context = a_context(filesystem)
    log = a_log(context, segment_bytes=2000, index_interval_bytes=200)
    for at in range(60):
        append(log, a_batch(2, value_bytes=60, timestamps=[1000 + at * 10, 1005 + at * 10]))
    log.update_high_watermark(log.log_end_offset)
    if is_reopened:
        log.flush()
        log.close()
        log = a_log(context, segment_bytes=2000, index_interval_bytes=200)
    assert len(log.segments) > 4
    for segment in log.segments:
        segment.write_out_indexes()
        segment.release()
    log.reader.hints.clear()
    filesystem.cached = {}
    return log


def when_cached(ask: Callable[[], Found]) -> tuple[Found, int]:
    """The answer, and how many rounds it took."""
    for rounds in range(100):
        try:
            return ask(), rounds
        except ColdRead as cold:
            cold.warm()
    raise AssertionError("it never gets there")


@pytest.mark.slow
@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("max_bytes", [1, 300, 700, 100_000])
def test_a_read_of_an_old_segment_does_not_wait_and_finds_the_same(max_bytes: int, is_reopened: bool) -> None:
    log, other = a_cold_log(is_reopened=is_reopened), a_cold_log(is_reopened=is_reopened)
    end_offset = log.log_end_offset
    for offset in range(0, end_offset, 7):
        found, _ = when_cached(partial(log.read, offset, max_bytes, end_offset, True, False))
        expected = other.read(offset, max_bytes, end_offset, True)
        assert found.region is not None
        assert expected.region is not None
        assert (found.next_offset, found.region.read()) == (expected.next_offset, expected.region.read())


def test_what_is_cold_is_looked_up_in_rounds() -> None:
    log = a_cold_log(is_reopened=False)
    _, rounds = when_cached(lambda: log.read(11, 300, log.log_end_offset, True, False))
    assert rounds > 0
    log.reader.hints.clear()
    assert when_cached(lambda: log.read(11, 300, log.log_end_offset, True, False))[1] == 0


def test_a_reader_at_the_tail_is_never_asked_to_come_back() -> None:
    log = a_cold_log(is_reopened=False)
    begin = log.segments.active.base_offset
    for offset in range(begin, log.log_end_offset):
        log.read(offset, 100, log.log_end_offset, True, False)


@pytest.mark.slow
@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_search_by_time_does_not_wait_and_finds_the_same(is_reopened: bool) -> None:
    log, other = a_cold_log(is_reopened=is_reopened), a_cold_log(is_reopened=is_reopened)
    _, rounds = when_cached(lambda: offset_for_timestamp(log, 1105, False))
    assert rounds > 0
    for timestamp in range(990, 1700, 45):
        found, _ = when_cached(partial(offset_for_timestamp, log, timestamp, False))
        assert found == offset_for_timestamp(other, timestamp)
    assert when_cached(lambda: offset_of_max_timestamp(log, False))[0] == offset_of_max_timestamp(other)


@pytest.mark.slow
@pytest.mark.parametrize("is_reopened", [False, True])
def test_the_segments_up_to_a_time_are_found_without_a_wait(is_reopened: bool) -> None:
    log, other = a_cold_log(is_reopened=is_reopened), a_cold_log(is_reopened=is_reopened)
    begins, rounds = when_cached(lambda: begins_up_to(log, 1300, False))
    assert begins == begins_up_to(other, 1300)
    assert begins == log.segments.bases[: len(begins)]
    assert 1 < len(begins) < len(log.segments)
    assert (rounds > 0) == is_reopened


def a_log_with_empty_segments() -> PartitionLog:
    """A reopened cold log of many segments, of which the cleaner has left every other one empty."""
    filesystem = ColdFileSystem()
    context = a_context(filesystem)
    log = a_log(context, segment_bytes=100)
    for at in range(3 * MAX_UNKNOWN):
        append(log, a_batch(1, timestamps=[1000 + at * 10]))
    log.update_high_watermark(log.log_end_offset)
    for segment in list(log.segments)[:-1:2]:
        segment.truncate_to(segment.base_offset, 0)
        segment.become_inactive()
    log.flush()
    log.close()
    log = a_log(context, segment_bytes=100)
    assert sum(not segment.size for segment in log.segments) > MAX_UNKNOWN
    filesystem.cached = {}
    return log


@pytest.mark.slow
def test_empty_segments_are_passed_over_without_a_wait() -> None:
    log, other = a_log_with_empty_segments(), a_log_with_empty_segments()
    for timestamp in (0, 1100, 1300, 10_000):
        found, _ = when_cached(partial(offset_for_timestamp, log, timestamp, False))
        assert found == offset_for_timestamp(other, timestamp)
    assert not any(segment.knows_max_timestamp for segment in log.segments if not segment.size)
    assert when_cached(lambda: offset_of_max_timestamp(log, False))[0] == offset_of_max_timestamp(other)
    log, other = a_log_with_empty_segments(), a_log_with_empty_segments()
    assert when_cached(lambda: begins_up_to(log, 1300, False))[0] == begins_up_to(other, 1300)


LARGE = {
    "many records": a_batch(INLINE_RECORDS + 1, timestamps=[1000 + at for at in range(INLINE_RECORDS + 1)]),
    "many bytes": a_batch([a_record(at, 1000 + at, value=bytes(INLINE_BYTES)) for at in range(9)], "gzip"),
}


@pytest.mark.parametrize("batch", LARGE.values(), ids=LARGE)
def test_a_thread_searches_a_large_batch(batch: bytearray) -> None:
    log = a_log()
    append(log, batch.copy())
    found: FoundRecords = {}
    assert when_cached(lambda: offset_for_timestamp(log, 1005, False, found)) == ((5, 1005, 0), 1)
    assert when_cached(lambda: offset_for_timestamp(log, 1005, False, found)) == ((5, 1005, 0), 0)
    assert when_cached(lambda: offset_of_max_timestamp(log, False, found)) == (
        offset_of_max_timestamp(log),
        1,
    )


def test_a_thread_searches_a_large_batch_that_is_not_compressed() -> None:
    log = a_log(max_message_bytes=2 * INLINE_PLAIN_BYTES)
    append(log, a_batch([a_record(at, 1000 + at, value=bytes(INLINE_PLAIN_BYTES // 4)) for at in range(5)]))
    found: FoundRecords = {}
    assert when_cached(lambda: offset_for_timestamp(log, 1003, False, found)) == ((3, 1003, 0), 1)


def test_a_record_of_very_many_headers_takes_little_memory() -> None:
    """A batch of 1 MiB may have 64 million empty ones."""
    log = a_log()
    append(log, a_batch([a_record(timestamp=1000, headers=[(b"", None)] * 200_000)], "zstd"))
    found: FoundRecords = {}
    tracemalloc.start()
    try:
        assert when_cached(lambda: offset_for_timestamp(log, 1000, False, found)) == ((0, 1000, 0), 1)
        assert offset_of_max_timestamp(log) == (0, 1000, 0)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000, "the headers have 400 KB, and take 12 MB as objects"
    finally:
        tracemalloc.stop()


def test_a_large_batch_that_is_damaged_is_told_after_the_thread_has_found_out() -> None:
    log = a_log()
    append(log, LARGE["many bytes"].copy())
    log.segments.active.file.pwrite(bytes(8), log.size_bytes - 8)  # the checksum that ends a gzip stream
    found: FoundRecords = {}
    with pytest.raises(UnreadableRecords):
        when_cached(lambda: offset_for_timestamp(log, 1005, False, found))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("body", "codec", "kind"),
    [(b"\0" + a_body(9), 0, InvalidRecord), (b"", 1, UnreadableRecords), (b"", 3, UnreadableRecords), (b"", 4, InvalidRecord)],
    ids=["a record of no bytes", "no gzip", "no lz4", "no zstd"],
)
def test_malformed_records_have_the_errors_of_produced_ones(body: bytes, codec: int, kind: type[Exception]) -> None:
    """Apache Kafka answers INVALID_RECORD and UNKNOWN_SERVER_ERROR; clients would repeat the request after CORRUPT_MESSAGE."""
    log = a_log()
    follow(log, framed(body, codec, leader_epoch=0), 0)
    with pytest.raises(kind):
        offset_for_timestamp(log, TIME)
    with pytest.raises(kind):
        offset_of_max_timestamp(log)
    assert offset_for_timestamp(log, TIME + 1) is None


def test_a_small_batch_is_searched_at_once() -> None:
    log = a_log()
    append(log, a_batch(5, "zstd", timestamps=[1000, 1001, 1002, 1003, 1004]))
    assert offset_for_timestamp(log, 1003, False, {}) == (3, 1003, 0)


@pytest.mark.parametrize("is_cold", [False, True])
def test_very_many_batches_are_passed_over_in_several_turns_of_the_loop(is_cold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeleteRecords has hidden the record for which the time index has an entry, so that no other entry helps."""
    monkeypatch.setattr(record_search, "INLINE_BATCHES", 20)
    filesystem = ColdFileSystem()
    log = a_log(a_context(filesystem), index_interval_bytes=200)
    for timestamp in (9000, *range(1000, 1200), 5000):
        append(log, a_batch(timestamps=[timestamp]))
    log.update_high_watermark(log.log_end_offset)
    log.increment_log_start_offset(1, "records were deleted by a client")
    if is_cold:
        log.roll()
        log.flush()
        for segment in log.segments:
            segment.release()
        filesystem.cached = {}
    for timestamp, expected in ((4000, (201, 5000, 0)), (6000, None)):
        found: FoundRecords = {}
        answer, rounds = when_cached(partial(offset_for_timestamp, log, timestamp, False, found))
        assert answer == expected
        assert 10 <= rounds <= 30
        assert offset_for_timestamp(log, timestamp) == expected


def test_a_real_file_tells_what_is_cached(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    file = RealFileSystem().open(str(tmp_path / "file"))
    assert file.pread_cached(4, 2) == b"2345"
    assert file.pread_cached(40, 5) == b"56789"
    assert file.pread_cached(4, 10) == b""


def test_a_waiting_read_after_a_refused_one_is_the_same_log() -> None:
    log = a_cold_log(is_reopened=True)
    with pytest.raises(ColdRead, match="not in the page cache"):
        log.read(11, 300, log.log_end_offset, True, False)
    assert len(read_all(log)) == log.size_bytes


def test_aborted_transactions_of_an_old_segment_are_not_waited_for() -> None:
    filesystem = ColdFileSystem()
    log = a_log(a_context(filesystem), segment_bytes=700)
    for at in range(12):
        append(log, a_batch(3, producer_id=5, transactional=True, base_sequence=3 * at))
        marker = EndTransactionMarker(ControlRecordType.ABORT, 0)
        ending = build_end_transaction_marker(marker, timestamp=FIRST_TIMESTAMP, producer_id=5, producer_epoch=0)
        append(log, ending, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)
    assert len(log.segments) > 3
    expected = aborted_transactions(log, 0, log.log_end_offset)
    assert [each.last_offset for each in expected] == [4 * at + 3 for at in range(12)]
    for segment in log.segments:
        segment.release()
    filesystem.cached = {}
    rounds = 0
    while True:
        try:
            found = aborted_transactions(log, 0, log.log_end_offset, False)
            break
        except ColdRead as cold:
            rounds += 1
            cold.warm()
    assert found == expected
    assert rounds == len(log.segments)
    filesystem.cached = {}
    assert aborted_transactions(log, 0, log.log_end_offset, False) == expected, "kept in memory"
