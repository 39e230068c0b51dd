"""Cutting a log in a thread: what the event loop does of it, what others see meanwhile, and what a crash leaves at any step."""

import contextlib
import os
import random
from collections.abc import Callable
from functools import cache

import pytest

from ottla.protocol.records.batch import crc_is_valid
from ottla.protocol.records.builder import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.checkpoint import RECOVERY_POINT_CHECKPOINT, OffsetCheckpoint
from ottla.storage.errors import LogBeingTruncated, LogClosed, LogDirFailure
from ottla.storage.log import producer_replay
from ottla.storage.log import truncation as log_truncation
from ottla.storage.log.lookups import aborted_transactions, offset_for_timestamp, offset_of_max_timestamp
from ottla.storage.log.origins import AppendOrigin
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.segment.batch_scan import whole_batches
from tests.support.background import carry_out
from tests.support.batches import FIRST_TIMESTAMP, a_batch
from tests.support.examples import number_of
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, topic
from tests.support.logs import append, follow, read_all

T0 = TopicPartition("topic", 0)
SLOW = ("truncate", "unlink", "sync", "sync_directory", "remove_directory")
"""Besides renaming: what may take long with large files, or many."""


@cache
def its_batches() -> tuple[bytes, ...]:
    return tuple(bytes(a_batch(2, producer_id=7, base_sequence=2 * n, timestamps=[1000 + n] * 2)) for n in range(12))


def a_broker(filesystem: MemoryFileSystem | FaultyFileSystem | None = None, **config: str | int) -> tuple[Disks, LogManager, PartitionLog]:
    """A log of twelve batches of a producer, two in a segment, under epochs 0 to 5."""
    disks = Disks(filesystem or MemoryFileSystem())
    disks.topics["topic"] = dict(topic(segment_bytes=2 * len(a_batch(2)), **config))
    manager = disks.start(transaction_partition_verification_enable="false")
    log = manager.get_or_create(T0, is_new=True)
    for n, batch in enumerate(its_batches()):
        append(log, bytearray(batch), epoch=n // 2)
    log.update_high_watermark(log.log_end_offset)
    disks.settle()
    return disks, manager, log


def cut(log: PartitionLog, offset: int) -> list[Exception | None]:
    """Begins; the list has what went wrong, or None, once it has ended."""
    ended: list[Exception | None] = []
    log.truncations.truncate_in_thread(offset, ended.append)
    return ended


def empty(log: PartitionLog, offset: int) -> list[Exception | None]:
    """The same for emptying it."""
    ended: list[Exception | None] = []
    log.truncations.truncate_fully_in_thread(offset, ended.append)
    return ended


def names(log: PartitionLog) -> list[str]:
    return log.context.filesystem.list_directory(log.directory)


@pytest.mark.parametrize("begin", [lambda log: cut(log, 9), lambda log: empty(log, 100), lambda log: cut(log, 0)])
def test_nothing_that_takes_long_happens_on_the_event_loop(begin: Callable[[PartitionLog], list[Exception | None]]) -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    disks, _, log = a_broker(filesystem)
    calls = disks.watch(*SLOW, "rename", "open", "pwrite")

    ended = begin(log)

    assert calls == []
    assert not ended
    (work,) = [work for name, work, _ in disks.background.work if name.startswith("truncate-log")]
    work()
    assert [path for path in calls if path.endswith(".log")]
    calls.clear()
    disks.settle()
    assert ended == [None]
    # What else was written is checkpoints and the file of leader epochs, by threads as well.
    assert not [path for path in calls if ".log" in path or "index" in path]
    disks.background.advance(120_000)
    assert not [name for name in names(log) if name.endswith(".deleted")]


def test_deleting_old_segments_and_rolling_sync_nothing_on_the_event_loop() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    disks, _, log = a_broker(filesystem)
    calls = disks.watch("sync", "sync_directory", "unlink")
    append(log, a_batch(2, producer_id=7, base_sequence=24), epoch=5)
    log.update_high_watermark(log.log_end_offset)
    log.delete_old_segments(lambda segment, _: segment.base_offset < 8, "test")
    assert calls == []


def test_a_log_says_at_once_that_it_is_shorter() -> None:
    disks, _, log = a_broker()
    ended = cut(log, 9)
    assert (log.log_end_offset, log.high_watermark) == (9, 9)
    assert log.recovery_point <= 9
    assert log.latest_epoch == 2
    assert log.end_offset_for_epoch(2) == (2, 9)
    disks.settle()
    assert ended == [None]
    assert (log.log_end_offset, log.high_watermark, log.latest_epoch) == (9, 9, 2)


def test_who_appends_or_reads_what_is_cut_is_told_to_come_again() -> None:
    disks, _, log = a_broker()
    before = read_all(log)
    cut(log, 9)
    with pytest.raises(LogBeingTruncated):
        append(log, a_batch(2), epoch=9)
    with pytest.raises(LogBeingTruncated):
        follow(log, a_batch(2, base_offset=9), 9)
    with pytest.raises(LogBeingTruncated):
        log.begin_verification(7, 24, 0)
    with pytest.raises(LogBeingTruncated):
        log.read(8, 1000, 9, True)
    with pytest.raises(LogBeingTruncated):
        offset_for_timestamp(log, 1004)
    with pytest.raises(LogBeingTruncated):
        offset_of_max_timestamp(log)
    with pytest.raises(LogBeingTruncated):
        log.truncations.truncate_to(3)
    # What lies in earlier segments stays readable.
    region = log.read(0, 1 << 20, 9, True).region
    assert region is not None
    assert before.startswith(region.read())
    disks.settle()
    assert append(log, a_batch(2), epoch=9).first_offset == 9
    assert before.startswith(read_all(log)[: 4 * len(a_batch(2))])


def test_producers_are_known_as_far_as_the_log_goes() -> None:
    disks, _, log = a_broker()
    cut(log, 10)
    disks.settle()
    (entry,) = log.active_producers()
    assert entry.last_sequence == 9
    assert append(log, a_batch(2, producer_id=7, base_sequence=10), epoch=9).first_offset == 10


def test_a_transaction_whose_marker_is_cut_off_is_open_again() -> None:
    disks, _, log = a_broker()
    append(log, a_batch(1, producer_id=9, transactional=True), epoch=6)
    marker = EndTransactionMarker(ControlRecordType.ABORT, 0)
    batch = build_end_transaction_marker(marker, timestamp=FIRST_TIMESTAMP, producer_id=9, producer_epoch=0)
    append(log, batch, epoch=6, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)
    assert len(aborted_transactions(log, 24, 26)) == 1
    cut(log, 25)
    disks.settle()
    assert log.last_stable_offset == 24
    assert aborted_transactions(log, 24, 26) == []


def test_a_second_cut_follows_the_first() -> None:
    disks, _, log = a_broker()
    ended = [cut(log, 15), cut(log, 5), empty(log, 3)]
    assert log.log_end_offset == 15
    disks.settle()
    assert ended == [[None], [None], [None]]
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def test_periodic_work_leaves_a_log_alone_that_is_cut() -> None:
    disks, manager, log = a_broker(retention_ms=1)
    held, disks.background.submit = [], lambda *work: held.append(work)  # type: ignore[method-assign, assignment]  # nothing is done
    log.context.submit = disks.background.submit
    ended = cut(log, 9)
    manager.check_retention()
    manager.flush_dirty_logs()
    manager.remove_expired_producers()
    manager.checkpoint_recovery_points()
    assert log.flushes.prepare(log.log_end_offset) is None
    assert log.segments.bases == [0, 4, 8]
    assert not ended


def test_a_log_that_is_deleted_and_created_anew_meanwhile_is_not_touched() -> None:
    disks, manager, log = a_broker()
    ended = cut(log, 9)
    manager.delete(T0)
    anew = manager.get_or_create(T0, is_new=True)
    for _ in range(12):
        append(anew, a_batch(2), epoch=0)
    content, files = read_all(anew), names(anew)
    disks.background.advance(200_000)
    assert len(ended) == 1
    assert read_all(anew) == content
    assert [name for name in names(anew) if ".log" in name] == [name for name in files if ".log" in name]
    assert disks.filesystem.list_directory("/data").count("topic-0") == 1
    assert not [name for name in disks.filesystem.list_directory("/data") if name.endswith("-delete")]
    assert manager.offline_log_dirs == []


def test_a_log_whose_directory_fails_meanwhile_is_given_up() -> None:
    disks, manager, log = a_broker()
    ended = cut(log, 9)
    manager.handle_log_dir_failure("/data")
    disks.settle()
    (error,) = ended
    assert isinstance(error, LogClosed)
    assert log.is_closed


def test_a_disk_that_refuses_takes_its_directory_offline() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    disks, manager, log = a_broker(filesystem)
    ended = cut(log, 9)
    later = cut(log, 3)
    filesystem.fails_if = lambda name, path: name == "truncate"
    disks.settle()
    assert isinstance(ended[0], LogDirFailure)
    assert isinstance(later[0], LogClosed)
    assert manager.offline_log_dirs == ["/data"]


def test_a_stop_in_the_middle_finishes_the_cut() -> None:
    disks, manager, log = a_broker()
    cut(log, 10)
    disks.background.work.clear()  # nothing is called on the loop any more
    manager.shutdown()
    manager = disks.start()
    found = manager.get(T0)
    assert found is not None
    assert found.log_end_offset == 10
    assert manager.directories["/data"].had_clean_shutdown


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cut", "cut whole segments", "empty", "empty where a segment begins", "back to below the first"])
def test_a_crash_at_any_step_leaves_a_whole_log(how: str) -> None:
    """What was flushed below the cut is there, what is beyond it is a beginning of what was, and the next cut ends it.

    The power is cut first, which leaves another file system, and then the process is killed.
    """
    target = {"cut": 18, "cut whole segments": 8, "empty": 100, "empty where a segment begins": 12, "back to below the first": 4}[how]
    for fail_at in range(1, 200):
        inner = MemoryFileSystem()
        filesystem = FaultyFileSystem(inner)
        disks, _, log = a_broker(filesystem)
        if how == "back to below the first":
            log.delete_old_segments(lambda segment, _: segment.base_offset < 12, "test")
        log.flush()
        disks.settle()
        before = read_all(log)
        filesystem.calls = 0
        filesystem.fail_at = fail_at
        ended = (empty if how.startswith("empty") else cut)(log, target)
        with contextlib.suppress(LogDirFailure):
            disks.settle()
        is_over = ended == [None] and filesystem.calls < fail_at
        inner.release_locks()
        for power, found in ((True, inner.after_power_cut(fail_at)), (False, inner)):
            again = Disks(found)
            again.topics = disks.topics
            after = again.start().get(T0)
            assert after is not None
            content = read_all(after)
            if how.startswith("cut"):
                assert before.startswith(content)
                assert after.log_end_offset >= target
            else:
                assert content in before
            if is_over:
                assert after.log_end_offset == target or power
            after.truncations.truncate_to(target)
            assert after.log_end_offset <= target
            append(after, a_batch(2), epoch=50)
        if is_over:
            break
    else:
        raise AssertionError("it never ended")


def test_the_thread_lets_the_event_loop_run_while_it_looks_for_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[None] = []
    monkeypatch.setattr(log_truncation, "yield_to_loop", lambda: turns.append(None))
    monkeypatch.setattr(producer_replay, "_BATCHES_AT_ONCE", 1)
    disks, _, log = a_broker()
    cut(log, 18)
    disks.settle()
    assert len(turns) > 1
    (entry,) = log.active_producers()
    assert entry.last_sequence == 17


def test_a_kill_finds_what_was_appended_below_where_the_log_began_before() -> None:
    disks, manager, log = a_broker()
    log.increment_log_start_offset(20, "DeleteRecords")
    manager.checkpoint_log_start_offsets()
    disks.settle()
    empty(log, 6)
    disks.settle()
    append(log, a_batch(2), epoch=9)
    disks.crash(manager)
    found = disks.start().get(T0)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == (6, 8)


@pytest.mark.slow
@pytest.mark.parametrize("offset", [2, 6, 8, 11, 100])
def test_a_kill_while_it_is_emptied_leaves_no_transaction_of_which_nothing_is_left(offset: int) -> None:
    """Whose end never comes, where the log begins behind it: nothing after it would ever be stable."""
    for fail_at in range(1, 200):
        memory = MemoryFileSystem()
        filesystem = FaultyFileSystem(memory)
        disks = Disks(filesystem)
        log = disks.start(transaction_partition_verification_enable="false").get_or_create(T0, is_new=True)
        for n in range(4):  # the first transaction lies in two segments, the second in the others
            append(log, a_batch(2, producer_id=n // 2, base_sequence=2 * (n % 2), transactional=True))
            if n == 1:
                marker = EndTransactionMarker(ControlRecordType.COMMIT, 0)
                batch = build_end_transaction_marker(marker, timestamp=FIRST_TIMESTAMP, producer_id=0, producer_epoch=0)
                append(log, batch, origin=AppendOrigin.COORDINATOR)
            log.roll()
        log.flush()
        disks.settle()
        filesystem.calls = 0
        filesystem.fail_at = fail_at
        ended = empty(log, offset)
        with contextlib.suppress(LogDirFailure):
            disks.settle()
        memory.release_locks()
        found = Disks(memory).start().get(T0)
        assert found is not None
        records = read_all(found)
        found.update_high_watermark(found.log_end_offset)
        if not records:
            assert found.last_stable_offset == found.log_end_offset
            assert all(each.current_txn_first_offset < 0 for each in found.active_producers())
        if ended == [None] and filesystem.calls < fail_at:
            break
    else:
        raise AssertionError("it never ended")


@pytest.mark.parametrize("begin", [lambda log: cut(log, 9), lambda log: empty(log, 100), lambda log: cut(log, 0)])
def test_segments_that_are_cut_off_are_durably_gone_before_the_next_append(begin: Callable[[PartitionLog], list[Exception | None]]) -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    disks, _, log = a_broker(filesystem)
    calls: list[tuple[str, str]] = []

    def note(name: str, path: str) -> bool:
        calls.append((name, path))
        return False

    filesystem.fails_if = note
    begin(log)
    (work,) = [work for name, work, _ in disks.background.work if name.startswith("truncate-log")]
    work()
    last = max(at for at, (name, path) in enumerate(calls) if name == "rename" and path.endswith(".log"))
    assert ("sync_directory", log.directory) in calls[last:]


def a_flushed_broker(filesystem: MemoryFileSystem) -> tuple[Disks, LogManager, PartitionLog]:
    """As `a_broker`. All batches are flushed, and the checkpoint says so."""
    disks, manager, log = a_broker(filesystem)
    log.flush()
    manager.checkpoint_recovery_points()
    disks.settle()
    assert recovery_point_on_disk(disks) == log.log_end_offset
    return disks, manager, log


def recovery_point_on_disk(disks: Disks) -> int:
    return OffsetCheckpoint("/data", RECOVERY_POINT_CHECKPOINT, disks.filesystem).read()[T0]


@pytest.mark.parametrize("begin", [cut, empty])
def test_nothing_is_appended_before_the_lower_recovery_point_is_durable(
    begin: Callable[[PartitionLog, int], list[Exception | None]],
) -> None:
    disks, _, log = a_flushed_broker(MemoryFileSystem())
    ended = begin(log, 10)
    (at,) = [at for at, (name, _, _) in enumerate(disks.background.work) if name.startswith("truncate-log")]
    _, work, then = disks.background.work.pop(at)
    carry_out(work, then)
    assert not ended
    with pytest.raises(LogBeingTruncated):
        append(log, a_batch(2), epoch=9)
    disks.settle()
    assert ended == [None]
    assert recovery_point_on_disk(disks) == 10
    assert append(log, a_batch(2), epoch=9).first_offset == 10


def test_a_disk_that_refuses_the_lower_recovery_point_takes_its_directory_offline() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    disks, manager, log = a_broker(filesystem)
    ended = cut(log, 9)
    filesystem.fails_if = lambda name, path: name == "rename" and path.endswith("recovery-point-offset-checkpoint.tmp")
    disks.settle()
    assert [type(error) for error in ended] == [LogDirFailure]
    assert manager.offline_log_dirs == ["/data"]
    assert log.is_closed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25 if "OTTLA_SOAK" in os.environ else number_of(8)))
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("how", ["cut", "empty"])
def test_a_crash_leaves_no_damage_in_what_is_appended_after_a_cut(how: str, power: bool, seed: int) -> None:
    """The threads have done some of their work at the time of the append, in any order. A kill also leaves all that was appended."""
    rng = random.Random(seed)
    memory = MemoryFileSystem()
    disks, manager, log = a_flushed_broker(memory)
    if how == "empty":
        log.increment_log_start_offset(21, "DeleteRecords")
        manager.checkpoint_log_start_offsets()
        disks.settle()
    (cut if how == "cut" else empty)(log, 10)
    for _ in range(rng.randrange(16)):
        go_on(disks, rng)
    with contextlib.suppress(LogBeingTruncated):
        for _ in range(12):
            append(log, a_batch(2), epoch=9)
    appended_to = log.log_end_offset
    is_cut = log.truncations.current is None
    memory.release_locks()
    again = Disks(memory.after_power_cut(seed) if power else memory)
    again.topics = disks.topics
    found = again.start().get(T0)
    assert found is not None
    check_batches(found)
    if is_cut and not power:
        assert (found.log_start_offset, found.log_end_offset) == (log.log_start_offset, appended_to)


def go_on(disks: Disks, rng: random.Random) -> None:
    """One thing that is due is done, if there is any."""
    background = disks.background
    due = [timer for timer in background.timers if timer[0] <= disks.clock.now_ms()]
    if background.work and (not due or rng.random() < 0.5):
        _, work, then = background.work.pop(rng.randrange(len(background.work)))
        carry_out(work, then)
    elif due:
        timer = min(due)
        background.timers.remove(timer)
        timer[4]()


def check_batches(log: PartitionLog) -> None:
    """Each batch follows the one before, has a valid CRC, and is in its leader epoch."""
    next_offset = log.segments.first.base_offset
    for segment in log.segments:
        assert segment.base_offset == next_offset
        end = 0
        for position, header, chunk, at in whole_batches(segment.file, segment.size):
            assert header.base_offset == next_offset
            assert crc_is_valid(chunk, at)
            if header.base_offset >= log.log_start_offset:
                assert log.leader_epochs.epoch_of(header.base_offset) == header.partition_leader_epoch
            next_offset = header.next_offset
            end = position + header.size
        assert end == segment.size
    assert next_offset == log.log_end_offset
