"""Truncating, deleting, flushing and closing a log."""

import logging
import struct

import pytest

from ottla.protocol.records.builder import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.errors import LogClosed, LogDirFailure, OffsetOutOfRange
from ottla.storage.log.context import LogContext
from ottla.storage.log.lookups import aborted_transactions
from ottla.storage.log.origins import AppendOrigin
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.segment.segment import Segment
from tests.support.batches import FIRST_TIMESTAMP, a_batch
from tests.support.clocks import ManualClock
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.logs import ManualScheduler, a_config, a_context, a_log, append, follow, read_all


def _log(batches: int = 6, context: LogContext | None = None, **config: int) -> PartitionLog:
    """Batches of two records, two in a segment."""
    log = a_log(context, **{"segment_bytes": 2 * len(a_batch(2)), **config})
    for n in range(batches):
        append(log, a_batch(2, timestamps=[1000 + n, 1000 + n]), epoch=n // 2)
    log.update_high_watermark(log.log_end_offset)
    return log


def _names(log: PartitionLog) -> list[str]:
    return log.context.filesystem.list_directory(log.directory)


def _run_scheduled(log: PartitionLog) -> None:
    assert isinstance(log.context.scheduler, ManualScheduler)
    log.context.scheduler.run_all()


# ---- truncation


def test_truncation_within_a_segment_cuts_batches_indexes_and_epochs() -> None:
    log = _log(segment_bytes=10_000, index_interval_bytes=1)
    assert log.truncations.truncate_to(6)
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (6, 6, 0)
    assert log.leader_epochs.entries == [(0, 0), (1, 4)]
    assert log.latest_epoch == 1
    assert [offset for offset, _ in log.segments.active.offset_index.all_entries()] == [3, 5]
    assert log.segments.active.max_timestamp == (1002, 5)
    assert append(log, epoch=7).first_offset == 6


def test_truncation_deletes_the_segments_behind_it() -> None:
    log = _log()
    assert log.truncations.truncate_to(2)
    assert log.segments.bases == [0]
    assert log.segments.active is log.segments.first
    assert sorted(name for name in _names(log) if ".log" in name) == [f"{0:020d}.log", f"{4:020d}.log.deleted", f"{8:020d}.log.deleted"]
    _run_scheduled(log)
    assert not any("deleted" in name for name in _names(log))


def test_truncation_at_or_beyond_the_end_only_removes_epochs_that_never_wrote() -> None:
    log = _log(2)
    log.on_new_leader_epoch(9)
    assert log.leader_epochs.entries == [(0, 0), (9, 4)]
    assert not log.truncations.truncate_to(4)
    assert log.leader_epochs.entries == [(0, 0)]
    assert log.latest_epoch == 0
    assert not log.truncations.truncate_to(99)
    assert log.log_end_offset == 4
    with pytest.raises(ValueError, match="-1"):
        log.truncations.truncate_to(-1)


def test_truncation_below_the_first_segment_empties_the_log() -> None:
    log = _log()
    log.delete_old_segments(lambda segment, _: segment.base_offset < 8, "test")
    assert log.log_start_offset == 8
    assert log.truncations.truncate_to(3)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (3, 3, 3)
    assert log.segments.bases == [3]


def test_a_log_that_starts_anew_has_one_empty_segment_and_knows_nobody() -> None:
    log = _log()
    append(log, a_batch(producer_id=7))
    log.truncations.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.size_bytes) == (100, 100, 100, 0)
    assert log.leader_epochs.entries == []
    assert log.latest_epoch is None
    assert log.active_producers() == []
    assert append(log).first_offset == 100
    log = a_log(log.context, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 101)


def test_a_log_may_start_anew_where_its_active_segment_begins() -> None:
    log = _log()
    log.truncations.truncate_fully_and_start_at(8)
    assert log.segments.bases == [8]
    assert read_all(log) == b""
    assert append(log).first_offset == 8
    _run_scheduled(log)
    assert len(read_all(log)) == len(a_batch())


def test_truncation_takes_producers_back() -> None:
    log = a_log()
    append(log, a_batch(2, producer_id=5))
    append(log, a_batch(2, producer_id=5, base_sequence=2))
    append(log, a_batch(1, producer_id=6, transactional=True))
    log.truncations.truncate_to(2)
    assert {entry.producer_id: entry.last_sequence for entry in log.active_producers()} == {5: 1}
    assert log.last_stable_offset == log.high_watermark
    assert append(log, a_batch(2, producer_id=5, base_sequence=2)).first_offset == 2


def test_truncation_forgets_aborted_transactions_behind_it() -> None:
    log = a_log()
    for n in range(2):
        append(log, a_batch(1, producer_id=5, transactional=True, base_sequence=n))
        marker = EndTransactionMarker(ControlRecordType.ABORT, 0)
        batch = build_end_transaction_marker(marker, timestamp=FIRST_TIMESTAMP, producer_id=5, producer_epoch=0)
        append(log, batch, origin=AppendOrigin.COORDINATOR)
    assert len(aborted_transactions(log, 0, 4)) == 2
    log.truncations.truncate_to(3)
    assert [each.last_offset for each in aborted_transactions(log, 0, 4)] == [1]
    log.truncations.truncate_to(1)
    assert aborted_transactions(log, 0, 4) == []


# ---- the log start offset, and deletion


def test_the_log_start_offset_moves_forward_up_to_the_high_watermark() -> None:
    log = _log()
    log.truncations.truncate_to(12)
    assert log.increment_log_start_offset(5, "DeleteRecords")
    assert not log.increment_log_start_offset(5, "DeleteRecords")
    assert not log.increment_log_start_offset(3, "DeleteRecords")
    assert (log.log_start_offset, log.recovery_point) == (5, 0)
    assert log.leader_epochs.entries == [(1, 5), (2, 8)]
    with pytest.raises(OffsetOutOfRange):
        log.increment_log_start_offset(13, "DeleteRecords")


def test_segments_are_deleted_from_the_oldest_on_while_asked_to() -> None:
    log = _log(10)
    assert log.delete_old_segments(lambda segment, following: segment.base_offset != 8, "test") == 2
    assert log.segments.bases == [8, 12, 16]
    assert log.log_start_offset == 8
    _run_scheduled(log)
    assert not any(name.startswith((f"{0:020d}", f"{4:020d}")) for name in _names(log))


def test_segments_above_the_high_watermark_stay() -> None:
    log = _log(6)
    log.high_watermark = 7
    assert log.delete_old_segments(lambda *_: True, "test") == 1
    assert log.segments.bases == [4, 8]


def test_deleting_all_leaves_an_empty_segment_at_the_end() -> None:
    log = _log(6)
    assert log.delete_old_segments(lambda *_: True, "test") == 3
    assert log.segments.bases == [12]
    assert (log.log_start_offset, log.log_end_offset) == (12, 12)
    assert log.delete_old_segments(lambda *_: True, "test") == 0
    assert append(log).first_offset == 12


def test_the_snapshot_beside_a_deleted_segment_goes_with_it() -> None:
    log = _log(6)
    assert f"{4:020d}.snapshot" in _names(log)
    log.delete_old_segments(lambda segment, _: segment.base_offset < 8, "test")
    assert f"{4:020d}.snapshot" not in _names(log)
    assert f"{8:020d}.snapshot" in _names(log)
    _run_scheduled(log)
    assert f"{4:020d}.snapshot.deleted" not in _names(log)


def test_files_that_cannot_be_removed_are_left_for_the_next_start(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryFileSystem()
    faulty = FaultyFileSystem(memory)
    log = _log(6, LogContext(faulty, ManualClock(), ManualScheduler()))
    log.delete_old_segments(lambda *_: True, "test")
    faulty.fails_if = lambda name, path: name == "unlink"
    with caplog.at_level(logging.WARNING, "ottla.storage"):
        _run_scheduled(log)
    assert ".log.deleted cannot be deleted: " in caplog.text
    assert any(name.endswith(".deleted") for name in _names(log))
    log = a_log(a_context(memory), log_start_offset=12)
    assert not any(name.endswith(".deleted") for name in _names(log))
    assert log.log_end_offset == 12


def test_deleting_a_log_removes_its_directory() -> None:
    log = _log()
    log.move_to("/data/topic-0.0123456789abcdef-delete")
    assert read_all(log)
    log.close_without_writing()
    log.files.delete()
    assert log.context.filesystem.list_directory("/data") == []


def test_a_log_goes_on_in_a_renamed_directory() -> None:
    log = _log()
    data = read_all(log)
    log.move_to("/data/other-0")
    append(log, epoch=9)
    log.flush()
    log.close()
    assert log.context.filesystem.list_directory("/data") == ["other-0"]
    log.context.filesystem.rename("/data/other-0", "/data/topic-0")
    assert read_all(a_log(log.context)).startswith(data)


def test_cleaned_segments_take_the_place_of_old_ones() -> None:
    log = _log(8)
    old = list(log.segments)[:2]
    new = Segment.create(log.context.filesystem, log.directory, 0, log.segments.settings, now_ms=0, suffix=".cleaned")
    new.append(a_batch(1, base_offset=3), len(a_batch(1)), 3, 1000, 3)
    new.become_inactive()
    new.sync()
    log.replace_segments(0, old)
    assert log.segments.bases == [0, 8, 12]
    assert [struct.unpack_from(">q", read_all(log, start))[0] for start in (0, 3, 4)] == [3, 3, 8]
    _run_scheduled(log)
    assert not any(name.endswith((".deleted", ".swap", ".cleaned")) for name in _names(log))
    assert f"{4:020d}.snapshot" not in _names(log)
    assert a_log(log.context, log_start_offset=0).segments.bases == [0, 8, 12]


# ---- flushing and closing


def test_a_flush_makes_everything_durable_and_moves_the_recovery_point() -> None:
    filesystem = MemoryFileSystem()
    log = _log(6, a_context(filesystem))
    log.flush()
    assert log.recovery_point == 12
    assert all(
        node.durable == bytes(node.data) for path, node in filesystem.nodes.items() if path.endswith((".log", ".index", ".timeindex"))
    )


def test_a_flush_covers_what_was_there_when_it_was_prepared() -> None:
    log = _log(6)
    plan = log.flushes.prepare(log.log_end_offset)
    assert plan is not None
    append(log)
    plan.run()
    log.flushes.finish(plan)
    assert log.recovery_point == 12
    assert log.flushes.prepare(12) is None


def test_a_flush_up_to_the_active_segment_leaves_that_one_alone() -> None:
    filesystem = MemoryFileSystem()
    log = _log(6, a_context(filesystem))
    plan = log.flushes.prepare(log.segments.active.base_offset)
    assert plan is not None
    plan.run()
    log.flushes.finish(plan)
    assert log.recovery_point == 8
    assert filesystem.nodes[f"{log.directory}/{8:020d}.log"].durable == b""
    assert filesystem.nodes[f"{log.directory}/{4:020d}.log"].durable


def test_a_flush_that_a_truncation_overtook_moves_the_recovery_point_no_further() -> None:
    log = _log(6)
    plan = log.flushes.prepare(log.log_end_offset)
    assert plan is not None
    log.truncations.truncate_to(4)
    for _ in range(6):
        append(log, a_batch(2), epoch=5)
    plan.run()
    log.flushes.finish(plan)
    assert log.recovery_point == 4


def test_a_segment_that_goes_while_it_is_flushed_does_not_matter() -> None:
    log = _log(6)
    plan = log.flushes.prepare(log.log_end_offset)
    assert plan is not None
    log.delete_old_segments(lambda segment, _: segment.base_offset < 8, "test")
    _run_scheduled(log)
    plan.run()
    log.flushes.finish(plan)
    assert log.recovery_point == 12


def test_who_flushes_hears_of_a_roll_and_of_flush_messages() -> None:
    heard: list[int] = []
    context = a_context()
    context.on_flush_due = lambda log: heard.append(log.log_end_offset)
    log = a_log(context, flush_messages=5)
    for _ in range(4):
        append(log, a_batch(2))
    assert heard == [6]
    log.flush()
    append(log, a_batch(4))
    append(log, a_batch(1))
    assert heard == [6, 13]
    log.roll()
    assert heard == [6, 13, 13]


def test_a_disk_that_refuses_a_flush_takes_its_log_directory_down() -> None:
    faulty = FaultyFileSystem(MemoryFileSystem())
    log = _log(2, LogContext(faulty, ManualClock(), ManualScheduler()))
    faulty.fails_if = lambda name, path: name == "sync"
    with pytest.raises(LogDirFailure):
        log.flush()
    assert log.recovery_point == 0
    with pytest.raises(LogDirFailure):
        log.close()


def test_closing_twice_is_harmless_and_closing_completes_the_time_index() -> None:
    log = _log(1)
    log.close()
    log.close()
    entry = log.context.filesystem.read_file(f"{log.directory}/{0:020d}.timeindex")
    assert entry == struct.pack(">qi", 1000, 1)
    assert log.flushes.prepare(log.log_end_offset) is None


def test_a_closed_log_takes_no_append_and_blames_no_disk() -> None:
    log = _log(2)
    log.close()
    with pytest.raises(LogClosed):
        append(log)
    with pytest.raises(LogClosed):
        follow(log, a_batch(base_offset=99), 9)
    deleted = _log(2)
    deleted.close_without_writing()
    deleted.files.delete()
    with pytest.raises(LogClosed):
        append(deleted)
    with pytest.raises(LogClosed):
        deleted.read(0, 100, 4, True)


def test_a_changed_configuration_holds_from_the_next_append_on() -> None:
    log = a_log()
    append(log)
    log.update_config(a_config(segment_bytes=len(a_batch()), max_message_bytes=77))
    append(log)
    assert log.segments.bases == [0, 1]
    assert log.rules.max_message_bytes == 77


def test_the_end_of_an_epoch_is_told_as_the_leader_knows_it() -> None:
    log = _log(6)
    assert log.end_offset_for_epoch(0) == (0, 4)
    assert log.end_offset_for_epoch(1) == (1, 8)
    assert log.end_offset_for_epoch(2) == (2, 12)
    assert log.end_offset_for_epoch(3) == (-1, -1)


def test_the_high_watermark_stays_within_the_log() -> None:
    log = _log(3)
    assert not log.update_high_watermark(99)
    assert log.update_high_watermark(2)
    assert log.high_watermark == 2
    log.increment_log_start_offset(2, "test")
    assert not log.update_high_watermark(0)
    assert log.high_watermark == 2
    assert log.topic_partition == TopicPartition("topic", 0)


def test_producers_are_what_is_left_of_them_after_a_cut_to_where_the_log_once_ended() -> None:
    filesystem = MemoryFileSystem()
    log = a_log(a_context(filesystem))
    append(log, a_batch(2, producer_id=5))
    log.close()
    log = a_log(a_context(filesystem))
    append(log, a_batch(2, producer_id=5, base_sequence=2))
    log.truncations.truncate_to(2)
    assert [entry.last_sequence for entry in log.active_producers()] == [1]
