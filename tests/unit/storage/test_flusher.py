"""When a log is brought to the disk while the broker runs, and what its recovery point says then."""

import errno

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.log.flushes import SEGMENTS_AT_ONCE
from ottla.storage.upkeep import producer_expirations
from tests.support.batches import a_batch
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, topic
from tests.support.logs import append
from tests.support.pauses import turns_by_hand

T0 = TopicPartition("topic", 0)


def disks_with(**config: str | int) -> Disks:
    disks = Disks()
    disks.topics["topic"] = dict(topic(**config))
    return disks


def test_flush_messages_brings_everything_to_the_disk() -> None:
    disks = disks_with(flush_messages=3)
    log = disks.start().get_or_create(T0, is_new=True)
    append(log, a_batch(2))
    disks.settle()
    assert log.recovery_point == 0
    append(log, a_batch(2))
    assert log.recovery_point == 0
    disks.settle()
    assert log.recovery_point == 4


def test_an_append_during_a_flush_waits_for_the_next_one() -> None:
    disks = disks_with(flush_messages=1)
    log = disks.start().get_or_create(T0, is_new=True)
    append(log)
    append(log)
    (flush,) = [work for work in disks.background.work if work[0] == "flush-log /data"]
    disks.background.work.remove(flush)
    flush[1]()
    flush[2](None)
    assert log.recovery_point == 1
    disks.settle()
    assert log.recovery_point == 2


def test_a_roll_brings_the_segments_that_are_complete_to_the_disk() -> None:
    disks = disks_with(segment_bytes=len(a_batch(2)))
    log = disks.start().get_or_create(T0, is_new=True)
    for _ in range(3):
        append(log, a_batch(2))
    disks.settle()
    assert (log.recovery_point, log.log_end_offset) == (4, 6)


def test_of_many_segments_that_are_complete_a_flush_takes_some_and_the_next_ones_follow() -> None:
    disks = disks_with(segment_bytes=len(a_batch(2)))
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True)
    for _ in range(3 * SEGMENTS_AT_ONCE):
        append(log, a_batch(2))
    log.rolls.finish()
    manager.flusher.flush(log)
    (plan,) = log.flushes.plans
    assert plan.recovery_point == 2 * SEGMENTS_AT_ONCE
    disks.settle()
    assert log.recovery_point == log.log_end_offset - 2


def test_a_flush_of_complete_segments_waits_for_no_roll() -> None:
    disks = disks_with(segment_bytes=len(a_batch(2)))
    log = disks.start().get_or_create(T0, is_new=True)
    for _ in range(5):
        append(log, a_batch(2))
    assert len(log.rolls.unfinished) == 4
    log.rolls.complete()
    assert len(log.rolls.unfinished) == 3
    disks.settle()
    assert (log.recovery_point, log.rolls.unfinished) == (8, [])


def test_flush_ms_counts_from_the_last_flush() -> None:
    disks = disks_with(flush_ms=5000)
    manager = disks.start(log_flush_scheduler_interval_ms=1000)
    log = manager.get_or_create(T0, is_new=True)
    disks.background.advance(30_000)
    append(log)
    disks.background.advance(4000)
    assert log.recovery_point == 0
    disks.background.advance(1500)
    assert log.recovery_point == 1
    manager.delete(T0)
    disks.background.advance(10_000)


def test_logs_are_looked_at_in_slices() -> None:
    disks = disks_with(flush_ms=5000)
    manager = disks.start()
    logs = [manager.get_or_create(TopicPartition("topic", index), is_new=True) for index in range(4)]
    others = [manager.get_or_create(TopicPartition("other", index), is_new=True) for index in range(8)]
    disks.background.advance(60_000)
    for log in (*logs, *others):
        append(log)
    disks.background.timers.clear()
    with turns_by_hand():
        manager.flush_dirty_logs()
        assert [name for name, *_ in disks.background.work] == ["flush-log /data"]
        turns = 0
        while disks.background.turn():
            turns += 1
        assert turns >= len((*logs, *others))
    disks.settle()
    assert [log.recovery_point for log in (*logs, *others)] == [1] * 4 + [0] * 8


def test_without_flush_ms_the_operating_system_decides() -> None:
    disks = Disks()
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True)
    append(log)
    disks.background.advance(10_000_000)
    manager.flush_dirty_logs()
    disks.settle()
    assert log.recovery_point == 0


def test_a_truncation_during_a_flush_keeps_the_recovery_point_within_the_log() -> None:
    disks = disks_with(flush_messages=3)
    log = disks.start().get_or_create(T0, is_new=True)
    append(log, a_batch(1))
    append(log, a_batch(2))
    log.truncations.truncate_to(1)
    disks.settle()
    assert (log.recovery_point, log.log_end_offset) == (1, 1)


def test_after_a_truncation_no_append_waits_for_a_flush_that_is_not_due() -> None:
    disks = disks_with(flush_messages=3)
    log = disks.start().get_or_create(T0, is_new=True)
    for _ in range(3):
        append(log)
    disks.settle()
    assert (log.recovery_point, log.flushes.due_offset) == (3, 3)
    log.truncations.truncate_to(1)
    append(log)
    assert (log.recovery_point, log.flushes.due_offset) == (1, 1)


def test_a_log_that_is_deleted_during_its_flush_is_nobodys_failure() -> None:
    disks = disks_with(flush_messages=1)
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True)
    append(log)
    append(log)
    manager.delete(T0)
    disks.background.advance(1_000_000)
    assert manager.offline_log_dirs == []
    assert log.is_closed


def test_a_disk_that_refuses_a_flush_takes_its_directory_offline(caplog: pytest.LogCaptureFixture) -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    disks = Disks(filesystem, log_dirs="/a,/b")
    disks.topics["topic"] = dict(topic(flush_messages=1))
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True)
    disks.settle()
    filesystem.fails_if = lambda name, path: name == "sync" and path.endswith(".log")
    append(log)
    disks.settle()
    assert manager.offline_log_dirs == ["/a"]
    assert manager.get(T0) is None
    assert "log directory /a is offline" in caplog.text


def test_of_the_flushes_of_many_logs_some_have_their_files_open_and_the_others_follow() -> None:
    disks = disks_with(flush_messages=1)
    manager = disks.start()
    logs = [manager.get_or_create(TopicPartition("topic", number), is_new=True) for number in range(100)]
    for log in logs:
        append(log)
    assert sum(len(log.flushes.plans) for log in logs) < 20
    manager.delete(logs[50].topic_partition)
    disks.settle()
    disks.background.advance(1)
    assert {log.recovery_point for log in logs if log is not logs[50]} == {1}


def test_a_flush_for_which_no_descriptor_is_free_is_tried_again() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    filesystem.error_number = errno.EMFILE
    disks = Disks(filesystem)
    disks.topics["topic"] = dict(topic(flush_messages=1))
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True)
    disks.settle()
    filesystem.fails_if = lambda name, path: name == "sync" and path.endswith(".log")
    append(log)
    disks.settle()
    assert (log.recovery_point, manager.offline_log_dirs) == (0, [])
    filesystem.fails_if = None
    disks.background.advance(1000)
    assert (log.recovery_point, manager.offline_log_dirs) == (1, [])


def test_a_flush_that_fails_for_another_reason_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    disks = disks_with(flush_messages=1)
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True)
    append(log)
    (flush,) = [work for work in disks.background.work if work[0] == "flush-log /data"]
    disks.background.work.remove(flush)
    flush[2](MemoryError())
    assert log.flushes.plans == []
    assert "flushing topic-0 failed" in caplog.text
    disks.background.advance(900)
    assert log.recovery_point == 0
    disks.background.advance(200)
    assert (log.recovery_point, manager.offline_log_dirs) == (1, [])


def test_producers_that_were_idle_too_long_are_forgotten() -> None:
    disks = Disks()
    manager = disks.start(producer_id_expiration_ms=1000, producer_id_expiration_check_interval_ms=500)
    log = manager.get_or_create(T0, is_new=True)
    append(log, a_batch(producer_id=7))
    assert [entry.producer_id for entry in log.active_producers()] == [7]
    disks.background.advance(31_000)
    assert log.active_producers() == []


def test_producers_are_looked_at_first_when_they_had_time_to_send_again_what_a_restart_interrupted() -> None:
    disks = Disks()
    manager = disks.start(producer_id_expiration_ms=1000)
    log = manager.get_or_create(T0, is_new=True)
    append(log, a_batch(producer_id=7))
    disks.background.advance(599_000)
    assert [entry.producer_id for entry in log.active_producers()] == [7]
    disks.background.advance(2_000)
    assert log.active_producers() == []


def test_producers_of_many_logs_are_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_expirations, "_TOGETHER", 4)
    disks = Disks()
    manager = disks.start(producer_id_expiration_ms=1000)
    logs = [manager.get_or_create(TopicPartition("topic", index), is_new=True) for index in range(3)]
    for log in logs:
        for producer_id in range(6):
            append(log, a_batch(producer_id=producer_id))
    disks.clock.move(1 << 45)
    append(logs[2], a_batch(producer_id=9, timestamps=[disks.clock.now_ms()]))
    with turns_by_hand():
        manager.remove_expired_producers()
        assert [len(log.active_producers()) for log in logs] == [2, 6, 7]
        append(logs[0], a_batch(producer_id=5, base_sequence=1, timestamps=[disks.clock.now_ms()]))
        manager.delete(logs[1].topic_partition)
        manager.remove_expired_producers()  # the round goes on, and is no other
        disks.settle()
    assert [[entry.producer_id for entry in log.active_producers()] for log in (logs[0], logs[2])] == [[5], [9]]


def test_no_producer_is_removed_once_the_background_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_expirations, "_TOGETHER", 4)
    disks = Disks()
    manager = disks.start(producer_id_expiration_ms=1000)
    log = manager.get_or_create(T0, is_new=True)
    for producer_id in range(6):
        append(log, a_batch(producer_id=producer_id))
    disks.clock.move(1 << 45)
    with turns_by_hand() as loop:
        manager.remove_expired_producers()
        disks.background.is_closed = True  # a thread writes the snapshots of producers from here on
        while loop.turn():
            pass
    assert len(log.active_producers()) == 2
