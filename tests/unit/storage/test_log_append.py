"""Appending: offsets, stamps, rolling, index entries, producers, and what is left when the disk refuses."""

import errno
import struct

import pytest

from ottla.protocol.records.batch import crc_is_valid, parse_header
from ottla.protocol.records.builder import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from ottla.storage.disk.file_names import file_name
from ottla.storage.errors import (
    CorruptRecord,
    InvalidProducerEpoch,
    LogDirFailure,
    OffsetsOutOfOrder,
    OutOfOrderSequence,
    RecordBatchTooLarge,
    TransactionCoordinatorFenced,
    UnexpectedAppendOffset,
)
from ottla.storage.log.context import LogContext
from ottla.storage.log.lookups import aborted_transactions
from ottla.storage.log.origins import AppendOrigin
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.segment.transaction_index import AbortedTransaction, TransactionIndex
from ottla.storage.validation.replicated import MOST_WORK
from tests.support.batches import FIRST_TIMESTAMP, a_batch, with_bytes
from tests.support.clocks import ManualClock
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.logs import LOG_DIR, ManualScheduler, a_context, a_log, append, follow, read_all


def _marker(producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    marker = EndTransactionMarker(ControlRecordType.COMMIT if commit else ControlRecordType.ABORT, coordinator_epoch)
    return build_end_transaction_marker(marker, timestamp=FIRST_TIMESTAMP, producer_id=producer_id, producer_epoch=epoch)


def _on_failing_disk(**config: int) -> tuple[PartitionLog, FaultyFileSystem]:
    faulty = FaultyFileSystem(MemoryFileSystem())
    context = LogContext(faulty, ManualClock(), ManualScheduler())
    return a_log(context, **config), faulty


def test_batches_get_offsets_one_after_the_other() -> None:
    log = a_log()
    first, second = append(log, a_batch(3)), append(log, a_batch(2))
    assert (first.first_offset, first.last_offset) == (0, 2)
    assert (second.first_offset, second.last_offset) == (3, 4)
    assert log.log_end_offset == 5
    assert not first.is_duplicate


def test_offset_and_leader_epoch_are_stamped_into_the_batch() -> None:
    log = a_log()
    append(log, a_batch(3), epoch=1)
    append(log, a_batch(2), epoch=7)
    data = read_all(log, 3)
    header = parse_header(data)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 7)
    assert crc_is_valid(data)
    assert log.latest_epoch == 7
    assert log.leader_epochs.entries == [(1, 0), (7, 3)]


def test_under_log_append_time_the_leader_says_when() -> None:
    log = a_log(message_timestamp_type="LogAppendTime")
    appended = append(log, a_batch(2), now_ms=1_800_000_000_000)
    data = read_all(log)
    assert appended.log_append_time_ms == 1_800_000_000_000
    assert parse_header(data).max_timestamp == 1_800_000_000_000
    assert crc_is_valid(data)


def test_under_create_time_there_is_no_log_append_time() -> None:
    assert append(a_log()).log_append_time_ms == -1


def test_a_segment_is_rolled_when_the_next_batch_does_not_fit() -> None:
    log = a_log(segment_bytes=300)
    batch = a_batch(1, value_bytes=30)
    for _ in range(7):
        append(log, a_batch(1, value_bytes=30))
    assert len(batch) * 3 > 300 > len(batch) * 2
    assert log.segments.bases == [0, 2, 4, 6]
    assert len(read_all(log)) == 7 * len(batch)


@pytest.mark.parametrize(("policy", "bases"), [("compact", [0, 2]), ("compact,delete", [0, 2]), ("delete", [0])])
def test_a_segment_of_a_compacted_topic_is_rolled_when_max_compaction_lag_ms_is_over(policy: str, bases: list[int]) -> None:
    log = a_log(segment_ms=100_000, max_compaction_lag_ms=1000, cleanup_policy=policy)
    for timestamp in (5000, 6000, 6001):
        append(log, a_batch(key=b"k", timestamps=[timestamp]))
    assert log.segments.bases == bases


def test_a_segment_is_rolled_when_its_first_batch_is_older_than_segment_ms() -> None:
    log = a_log(segment_ms=1000)
    append(log, a_batch(timestamps=[5000]))
    append(log, a_batch(timestamps=[6000]))
    append(log, a_batch(timestamps=[6001]))
    assert log.segments.bases == [0, 2]


def test_a_segment_without_timestamps_is_rolled_by_the_clock() -> None:
    clock = ManualClock()
    log = a_log(a_context(clock=clock), segment_ms=1000)
    append(log, a_batch(timestamps=[-1]))
    clock.move(1000)
    append(log, a_batch(timestamps=[-1]))
    clock.move(1)
    append(log, a_batch(timestamps=[-1]))
    assert log.segments.bases == [0, 2]


def test_the_jitter_shortens_the_life_of_a_segment() -> None:
    context = a_context()
    context.random = lambda: 0.5
    log = a_log(context, segment_ms=1000, segment_jitter_ms=200)
    append(log, a_batch(timestamps=[5000]))
    log.roll()
    append(log, a_batch(timestamps=[5000]))
    append(log, a_batch(timestamps=[5900]))
    append(log, a_batch(timestamps=[5901]))
    assert log.segments.bases == [0, 1, 3]


def test_a_segment_is_rolled_before_its_relative_offsets_overflow() -> None:
    log = a_log()
    for base_offset in (0, 2**31 - 1, 2**31):  # the furthest that four bytes can say, and one more
        follow(log, a_batch(1, base_offset=base_offset, leader_epoch=0), 0)
    assert log.segments.bases == [0, 2**31]
    follow(log, a_batch(3, base_offset=2**32 - 2, leader_epoch=0), 0)
    assert log.segments.bases == [0, 2**31, 2**32 - 2]
    content = read_all(log)
    log = a_log(log.context, clean=False)
    assert log.log_end_offset == 2**32 + 1
    assert read_all(log) == content


def test_a_segment_is_rolled_when_an_index_is_full() -> None:
    log = a_log(index_interval_bytes=0, segment_index_bytes=36)
    for n in range(8):
        append(log, a_batch(timestamps=[1000 + n]))
    # The time index has three slots of which it keeps one for its last entry, and the first batch has no entry.
    assert log.segments.bases == [0, 3, 6]


def test_index_entries_stand_an_interval_apart_and_name_the_last_offset_of_a_batch() -> None:
    log = a_log(index_interval_bytes=150)
    size = len(a_batch(2, value_bytes=20))
    for n in range(6):
        append(log, a_batch(2, value_bytes=20, timestamps=[1000 + n, 1001 + n]))
    entries = log.segments.active.offset_index.all_entries()
    assert size * 2 > 150
    assert entries == [(5, size * 2), (9, size * 4)]
    assert log.segments.active.time_index.all_entries() == [(1003, 5), (1005, 9)]


def test_a_preallocated_segment_is_as_long_as_it_may_become_until_it_is_closed() -> None:
    context = a_context()
    log = a_log(context, preallocate="true", segment_bytes=1000)
    append(log)
    path = log.segments.active.path
    assert context.filesystem.size(path) == 1000
    assert log.size_bytes == len(a_batch())
    log.roll()
    assert context.filesystem.size(path) == len(a_batch())
    append(log)
    log.close()
    assert context.filesystem.size([*log.segments][-1].path) == len(a_batch())


def test_an_append_larger_than_a_segment_is_refused_and_changes_nothing() -> None:
    log = a_log(segment_bytes=200, max_message_bytes=10_000)
    with pytest.raises(RecordBatchTooLarge) as caught:
        append(log, a_batch(1, value_bytes=500))
    assert caught.value.limit_bytes == 200
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


# ---- producers


def test_a_batch_that_was_sent_before_is_answered_and_not_written_again() -> None:
    log = a_log()
    append(log, a_batch(3, producer_id=5))
    again = append(log, a_batch(3, producer_id=5))
    assert again.is_duplicate
    assert (again.first_offset, again.last_offset) == (0, 2)
    assert log.log_end_offset == 3


def test_a_gap_in_the_sequence_is_refused_and_changes_nothing() -> None:
    log = a_log()
    append(log, a_batch(3, producer_id=5))
    with pytest.raises(OutOfOrderSequence):
        append(log, a_batch(1, producer_id=5, base_sequence=4))
    assert log.log_end_offset == 3
    append(log, a_batch(1, producer_id=5, base_sequence=3))


def test_an_older_epoch_of_a_producer_is_refused() -> None:
    log = a_log()
    append(log, a_batch(producer_id=5, producer_epoch=2))
    with pytest.raises(InvalidProducerEpoch):
        append(log, a_batch(producer_id=5, producer_epoch=1))


def test_the_last_stable_offset_waits_for_the_end_of_a_transaction() -> None:
    log = a_log()
    append(log)
    append(log, a_batch(2, producer_id=5, transactional=True))
    append(log)
    log.update_high_watermark(log.log_end_offset)
    assert (log.high_watermark, log.last_stable_offset) == (4, 1)
    append(log, _marker(5, commit=True), origin=AppendOrigin.COORDINATOR)
    assert log.last_stable_offset == 1
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 5


def test_an_abort_marker_writes_the_transaction_index() -> None:
    log = a_log()
    append(log, a_batch(2, producer_id=5, transactional=True))
    append(log, a_batch(2, producer_id=6, transactional=True))
    append(log, _marker(5, commit=False), origin=AppendOrigin.COORDINATOR)
    assert aborted_transactions(log, 0, 5) == [(5, 0, 4, 2)]
    assert aborted_transactions(log, 0, 5)[0].producer_id == 5
    append(log, _marker(6, commit=True), origin=AppendOrigin.COORDINATOR)
    assert len(aborted_transactions(log, 0, 6)) == 1


def test_a_follower_writes_all_aborted_transactions_of_a_run_at_once() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    leader, follower = a_log(), a_log(a_context(filesystem))
    for producer_id in range(5, 9):
        append(leader, a_batch(2, producer_id=producer_id, transactional=True))
        append(leader, _marker(producer_id, commit=False), origin=AppendOrigin.COORDINATOR)
    written: list[str] = []

    def note(name: str, path: str) -> bool:
        if name == "pwrite" and path.endswith(".txnindex"):
            written.append(path)
        return False

    filesystem.fails_if = note
    follow(follower, read_all(leader), 0)
    assert len(written) == 1
    follower.segments.active.release()
    assert aborted_transactions(follower, 0, 12) == aborted_transactions(leader, 0, 12)
    assert len(aborted_transactions(leader, 0, 12)) == 4


def test_segments_without_aborted_transactions_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(segment_bytes=len(a_batch(2)))
    append(log, a_batch(1, producer_id=5, transactional=True))
    for _ in range(10):
        append(log, a_batch(2))
    append(log, _marker(5, commit=False), origin=AppendOrigin.COORDINATOR)
    for _ in range(10):
        append(log, a_batch(2))
    asked: list[int] = []
    collect = TransactionIndex.collect

    def count(index: TransactionIndex, *asked_for: int) -> tuple[list[AbortedTransaction], bool]:
        asked.append(index.start_offset)
        return collect(index, *asked_for)

    monkeypatch.setattr(TransactionIndex, "collect", count)
    assert aborted_transactions(log, 0, 1) == [(5, 0, 21, 22)]
    assert asked == [21]
    assert aborted_transactions(log, 22, log.log_end_offset) == []
    assert asked == [21]


def test_a_marker_of_an_older_coordinator_is_refused() -> None:
    log = a_log()
    append(log, _marker(5, commit=True, coordinator_epoch=4), origin=AppendOrigin.COORDINATOR)
    with pytest.raises(TransactionCoordinatorFenced):
        append(log, _marker(5, commit=True, coordinator_epoch=3), origin=AppendOrigin.COORDINATOR)
    assert log.log_end_offset == 1


# ---- followers


def test_a_follower_keeps_the_bytes_of_its_leader() -> None:
    leader, follower = a_log(segment_bytes=300), a_log(segment_bytes=1000)
    for n in range(6):
        append(leader, a_batch(2), epoch=n // 2)
    data = read_all(leader)
    follow(follower, data, 5)
    assert read_all(follower) == data
    assert follower.log_end_offset == 12
    assert follower.leader_epochs.entries == leader.leader_epochs.entries == [(0, 0), (1, 4), (2, 8)]


def test_a_follower_takes_very_many_small_batches_in_parts() -> None:
    markers = [with_bytes(_marker(5, commit=True), 0, struct.pack(">q", offset)) for offset in range(1000)]
    data = b"".join(markers)
    log = a_log()
    first = follow(log, data, 0)
    assert first.work >= MOST_WORK
    assert 900 < log.log_end_offset == first.last_offset + 1 < 1000
    assert follow(log, data[first.size :], 0).last_offset == 999
    assert read_all(log) == data


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    data = bytes(a_batch(2) + a_batch(3, base_offset=2))
    log = a_log()
    appended = follow(log, memoryview(data)[:-1], 0)
    assert (appended.first_offset, appended.last_offset) == (0, 1)
    nothing = follow(log, memoryview(data)[:30], 0)
    assert (nothing.first_offset, nothing.last_offset) == (2, 1)


def test_offsets_below_the_log_end_are_refused() -> None:
    log = a_log()
    follow(log, a_batch(3), 0)
    with pytest.raises(UnexpectedAppendOffset) as caught:
        follow(log, a_batch(3, base_offset=1), 0)
    assert (caught.value.first_offset, caught.value.last_offset, caught.value.log_end_offset) == (1, 3, 3)


def test_offsets_that_go_back_are_refused() -> None:
    with pytest.raises(OffsetsOutOfOrder):
        follow(a_log(), a_batch(3, base_offset=5) + a_batch(1, base_offset=5), 0)


def test_offsets_may_leave_gaps_as_compaction_does() -> None:
    log = a_log()
    follow(log, a_batch(1, base_offset=5) + a_batch(1, base_offset=50), 0)
    assert log.log_end_offset == 51
    assert parse_header(read_all(log, 6)).base_offset == 50


def test_a_follower_refuses_a_damaged_batch_and_keeps_nothing_of_the_append() -> None:
    good, bad = a_batch(1), with_bytes(a_batch(1, base_offset=1), 70, b"!")
    bad[70] ^= 1
    log = a_log()
    with pytest.raises(CorruptRecord, match="offset 1"):
        follow(log, good + bad, 0)
    assert log.log_end_offset == 0
    with pytest.raises(CorruptRecord):
        follow(log, with_bytes(good, 16, b"\x09"), 0)


def test_batches_of_a_later_leader_epoch_are_left_out() -> None:
    log = a_log()
    data = a_batch(1, leader_epoch=3) + a_batch(1, base_offset=1, leader_epoch=4)
    assert follow(log, data, 3).last_offset == 0
    assert log.log_end_offset == 1


def test_a_follower_takes_producers_and_markers_from_the_log() -> None:
    leader, follower = a_log(), a_log()
    append(leader, a_batch(2, producer_id=5, transactional=True))
    append(leader, _marker(5, commit=False), origin=AppendOrigin.COORDINATOR)
    follow(follower, read_all(leader), 0)
    assert aborted_transactions(follower, 0, 3) == aborted_transactions(leader, 0, 3)
    assert [entry.producer_id for entry in follower.active_producers()] == [5]


# ---- when the disk refuses


def test_a_torn_write_is_cut_before_anybody_hears_of_it() -> None:
    log, faulty = _on_failing_disk()
    append(log, a_batch(3))
    size = log.size_bytes
    faulty.error_number = errno.ENOSPC
    faulty.fails_for_ever = False
    faulty.fail_at = faulty.calls + 1
    with pytest.raises(LogDirFailure) as caught:
        append(log, a_batch(3))
    assert caught.value.log_dir == LOG_DIR
    assert caught.value.path.endswith("topic-0/" + file_name(0, ".log"))
    assert "No space left" in caught.value.reason
    assert faulty.size(log.segments.active.path) == size == log.size_bytes
    assert log.log_end_offset == 3
    assert append(log, a_batch(1)).first_offset == 3


def test_torn_bytes_that_cannot_be_cut_are_overwritten_by_the_next_append() -> None:
    log, faulty = _on_failing_disk()
    append(log, a_batch(3))
    faulty.fail_at = faulty.calls + 1
    with pytest.raises(LogDirFailure):
        append(log, a_batch(50))
    assert faulty.size(log.segments.active.path) > log.size_bytes
    faulty.fail_at = None
    append(log, a_batch(1))
    log.close()
    assert faulty.size([*log.segments][-1].path) == log.size_bytes
    assert a_log(log.context).log_end_offset == 4


def test_whatever_call_fails_an_append_the_log_is_as_before_or_has_the_batch() -> None:
    for failing in range(1, 200):
        log, faulty = _on_failing_disk(segment_bytes=400, index_interval_bytes=100)
        for _ in range(3):
            append(log, a_batch(2, producer_id=9, base_sequence=log.log_end_offset, transactional=True))
        faulty.fails_for_ever = False
        faulty.fail_at = faulty.calls + failing
        appended = 3
        try:
            for _ in range(6):
                append(log, a_batch(2, producer_id=9, base_sequence=log.log_end_offset, transactional=True))
                appended += 1
            append(log, _marker(9, commit=False), origin=AppendOrigin.COORDINATOR)
        except LogDirFailure:
            pass
        if faulty.calls < faulty.fail_at:
            break
        assert log.log_end_offset in (appended * 2, appended * 2 + 1)
        faulty.fail_at = None
        again = a_log(log.context, clean=False, segment_bytes=400)
        assert again.log_end_offset >= appended * 2
        data = read_all(again)
        assert struct.unpack_from(">q", data)[0] == 0
    else:
        raise AssertionError("the failing call was never reached")
