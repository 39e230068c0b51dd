"""A roll in two parts: what the append waits for, and what follows for one log per turn of the event loop."""

from contextlib import suppress
from random import Random

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.filesystem import File
from ottla.storage.log.context import LogContext
from ottla.storage.log.lookups import offset_for_timestamp, offset_of_max_timestamp
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.rolls import MOST_UNFINISHED, Rolls
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.producers.snapshot import decode_snapshot
from tests.support.batches import FIRST_TIMESTAMP, a_batch
from tests.support.clocks import ManualClock
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, topic
from tests.support.logs import ManualScheduler, a_log, append, read_all

CHANGES = ("open", "write", "pwrite", "truncate", "sync", "rename", "unlink", "link")
MANY = 50
CLOSED_INDEX_BYTES = 8


def started(count: int = 1, **config: str | int) -> tuple[Disks, LogManager, list[PartitionLog]]:
    """Logs with a segment each, of which nothing is flushed."""
    disks = Disks(FaultyFileSystem(MemoryFileSystem()))
    disks.topics["topic"] = dict(topic(**config))
    manager = disks.start()
    logs = [manager.get_or_create(TopicPartition("topic", index), is_new=True) for index in range(count)]
    for log in logs:
        for _ in range(3):
            append(log, a_batch(2, producer_id=5 + log.log_end_offset, base_sequence=0))
    disks.settle()
    return disks, manager, logs


def restarted(disks: Disks, manager: LogManager) -> PartitionLog:
    """The log after a kill."""
    manager.directories.unlock()
    found = Disks(disks.filesystem).start().get(TopicPartition("topic", 0))
    assert found is not None
    return found


def test_an_append_that_rolls_changes_nothing_but_the_log_file_that_it_goes_to() -> None:
    disks, _, (log,) = started(segment_ms=1000)
    calls = disks.watch(*CHANGES)
    disks.clock.move(1_000_000)
    append(log, a_batch(timestamps=[disks.clock.now_ms()]))
    assert log.segments.active.base_offset == 6
    assert set(calls) == {f"{log.directory}/00000000000000000006.log"}


def test_a_log_that_rolls_with_every_append_holds_no_more_files_than_it_may() -> None:
    disks, _, (log,) = started(segment_bytes=100)
    settled = list(log.segments)
    for _ in range(3 * MOST_UNFINISHED):
        append(log)
    assert len(log.segments) == len(settled) + 3 * MOST_UNFINISHED
    assert len(log.rolls.unfinished) == MOST_UNFINISHED
    data = read_all(log)
    disks.settle()
    assert not log.rolls.unfinished
    assert {segment.offset_index.length for segment in list(log.segments)[:-1]} <= {0, CLOSED_INDEX_BYTES}
    assert read_all(log) == data


def test_of_many_logs_that_roll_in_one_turn_one_is_completed_in_each_turn_that_follows() -> None:
    disks, _, logs = started(MANY)
    for log in logs:
        log.roll()
    disks.background.run_work()
    calls = disks.watch(*CHANGES)
    for log in logs:
        calls.clear()
        disks.background.turn()
        assert {path.rpartition("/")[0] for path in calls} == {log.directory}
        assert not log.rolls.unfinished
        disks.background.run_work()
    disks.settle()
    assert {log.recovery_point for log in logs} == {6}


def test_many_logs_that_roll_make_one_file_each_when_no_spare_one_is_left() -> None:
    disks, _, logs = started(MANY)
    calls = disks.watch("open")
    for log in logs:
        log.roll()
    assert 0 < len(calls) < MANY
    assert all(path.endswith("6.log") for path in calls)


def test_a_roll_is_completed_with_files_that_a_thread_has_made() -> None:
    disks, _, logs = started(MANY)
    for log in logs:
        log.roll()
    calls = disks.watch(*CHANGES)
    for _ in range(10):
        assert disks.background.turn()
        disks.clock.move(1)
    assert not calls
    disks.settle()
    assert {log.recovery_point for log in logs} == {6}


def test_an_error_of_one_roll_delays_the_others_and_it_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    disks, manager, logs = started(3)
    take = manager.context.take_spare_file

    def take_or_fail(log_dir: str, path: str) -> File | None:
        if "failed" not in caplog.text and not path.endswith(".log"):
            raise MemoryError
        return take(log_dir, path)

    manager.context.take_spare_file = take_or_fail
    for log in logs:
        log.roll()
    disks.settle()
    disks.background.advance(1000)
    assert {log.recovery_point for log in logs} == {6}
    assert "topic-0: completing a roll failed" in caplog.text


def test_the_files_are_those_of_a_roll_that_is_completed_at_once() -> None:
    found: list[tuple[list[object], dict[str, bytes]]] = []
    for is_at_once in (True, False):
        random, answers = Random(7), []
        disks, manager, (log,) = started(segment_bytes=4000, index_interval_bytes=100)
        if is_at_once:
            manager.context.complete_roll_later = Rolls.complete
        for step in range(200):
            times = [FIRST_TIMESTAMP + random.randint(1, 10**6) for _ in range(random.randint(1, 9))]
            append(log, a_batch(len(times), timestamps=times), epoch=step)
            log.update_high_watermark(log.log_end_offset)
            if random.random() < 0.1:
                disks.settle()
            answers.append(
                (
                    offset_for_timestamp(log, FIRST_TIMESTAMP + random.randint(1, 10**6)),
                    offset_of_max_timestamp(log),
                )
            )
        disks.settle()
        names = disks.filesystem.list_directory(log.directory)
        found.append((answers, {name: disks.filesystem.read_file(f"{log.directory}/{name}") for name in names}))
    assert len(found[0][1]) > 20
    assert found[0] == found[1]


def test_the_snapshot_has_the_producers_as_they_were() -> None:
    disks, _, (log,) = started()
    log.roll()
    append(log, a_batch(2, producer_id=5, base_sequence=2))
    disks.settle()
    path = log.producer_state.snapshot_path(6)
    entries = decode_snapshot(disks.filesystem.read_file(path), path)
    assert {entry.producer_id: entry.last_sequence for entry in entries} == {5: 1, 7: 1, 9: 1}


@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("rolls", [1, 2])
def test_a_kill_in_between_loses_nothing(is_flushed: bool, rolls: int) -> None:
    disks, manager, (log,) = started()
    if is_flushed:
        log.flush()
        manager.checkpoint_recovery_points()
        disks.settle()
    for _ in range(rolls):
        log.roll()
        append(log, a_batch())
    written = read_all(log)
    found = restarted(disks, manager)
    assert read_all(found) == written
    assert [entry.producer_id for entry in found.active_producers()] == [5, 7, 9]
    assert found.segments.bases == log.segments.bases


def test_a_segment_that_recovery_would_not_look_at_is_closed_at_once() -> None:
    disks, _, (log,) = started(index_interval_bytes=0)
    log.flush()
    index = f"{log.directory}/00000000000000000000.index"
    assert disks.filesystem.size(index) == 1024
    log.roll()
    assert disks.filesystem.size(index) == 2 * CLOSED_INDEX_BYTES


@pytest.mark.parametrize("what", ["flush", "truncate_to", "delete_old_segments", "shutdown"])
def test_who_needs_the_files_completes_them(what: str) -> None:
    disks, manager, (log,) = started()
    log.roll()
    append(log, a_batch())
    log.update_high_watermark(log.log_end_offset)
    if what == "flush":
        log.flush()
        assert log.recovery_point == 7
    elif what == "truncate_to":
        log.truncations.truncate_to(4)
        assert log.log_end_offset == 4
    elif what == "delete_old_segments":
        assert log.delete_old_segments(lambda *_: True, "test") == 2
    else:
        manager.shutdown()
    assert not log.rolls.unfinished
    disks.settle()
    if what != "shutdown":
        manager.shutdown()
    assert disks.filesystem.exists("/data/.kafka_cleanshutdown")
    ends = {"truncate_to": (0, 4), "delete_old_segments": (7, 7)}
    found = disks.start().get(log.topic_partition)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == ends.get(what, (0, 7))


def test_a_log_that_is_deleted_before_is_left_alone() -> None:
    disks, manager, (log,) = started()
    log.roll()
    manager.delete(log.topic_partition)
    calls = disks.watch(*CHANGES)
    disks.settle()
    assert not [path for path in calls if "topic-0" in path and "checkpoint" not in path]
    assert not manager.offline_log_dirs


def test_a_disk_that_refuses_takes_the_directory_offline() -> None:
    disks, manager, (log,) = started()
    log.roll()
    assert isinstance(disks.filesystem, FaultyFileSystem)
    disks.filesystem.fails_if = lambda name, path: name == "truncate" and path.endswith(".index")
    disks.settle()
    assert manager.offline_log_dirs == ["/data"]
    assert log.is_closed


@pytest.mark.parametrize("nth", range(1, 9))
def test_what_a_disk_refused_of_a_roll_is_done_by_who_needs_it(nth: int) -> None:
    disk = FaultyFileSystem(MemoryFileSystem())
    log = a_log(LogContext(disk, ManualClock(), ManualScheduler()))
    append(log, a_batch(2, producer_id=5, base_sequence=0))
    for _ in range(2):
        disk.fail_at = disk.calls + nth
        with suppress(OSError):
            log.roll()
    disk.fail_at = None
    append(log, a_batch(2, producer_id=6, base_sequence=0))
    log.truncations.truncate_to(2)
    assert set(log.producer_state.state.producers) == {5}
    append(log, a_batch(2, producer_id=7, base_sequence=0))
    begins = [segment.base_offset for segment in log.segments]
    log.close()
    assert all(disk.exists(f"{log.directory}/{begin:020}{suffix}") for begin in begins for suffix in (".log", ".index", ".timeindex"))
