"""What the event loop does between two steps of a thread, or a thread between two turns of the loop, on the files of one log."""

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.checkpoint import LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint
from ottla.storage.disk.partition_metadata import read_topic_id
from ottla.storage.errors import LogClosed
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.upkeep import log_checkpoints
from ottla.storage.upkeep.directory_renames import RENAME_LOG
from tests.support.batches import a_batch
from tests.support.cleaners import InlineCleaner
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, a_future_log, topic
from tests.support.logs import append, follow
from tests.support.pauses import turns_by_hand

T0, T1, T2 = (TopicPartition("topic", index) for index in range(3))
TOPIC_ID = bytes(range(16))


def a_manager(log_dirs: str = "/data", **config: str | int) -> tuple[Disks, LogManager]:
    disks = Disks(FaultyFileSystem(MemoryFileSystem()), log_dirs)
    return disks, disks.start(**config)


def some_logs(manager: LogManager) -> list[PartitionLog]:
    return [manager.get_or_create(each, TOPIC_ID, is_new=True) for each in (T0, T1, T2)]


def names_in(disks: Disks, directory: str) -> list[str]:
    return disks.filesystem.list_directory(directory)


def begin_rename(disks: Disks, manager: LogManager, topic_partition: TopicPartition) -> None:
    """Deletes the log: a thread has renamed its directory, and the loop has not heard of it yet."""
    disks.background.done_at_once.discard(RENAME_LOG)
    (rename,) = manager.delete(topic_partition)
    rename.run()


def test_a_log_may_be_deleted_while_a_checkpoint_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_checkpoints, "LOGS_TOGETHER", 1)
    disks, manager = a_manager(log_segment_delete_delay_ms=0)
    logs = some_logs(manager)
    for log in logs:
        append(log, a_batch(4))
        log.update_high_watermark(4)
        log.increment_log_start_offset(2, "test")
    disks.settle()
    with turns_by_hand():
        manager.checkpoint_log_start_offsets()
        disks.background.turn()  # gathers the first
        manager.delete(T2)
        disks.background.run_work()
        disks.settle()
    logs[0].increment_log_start_offset(3, "test")
    manager.checkpoint_log_start_offsets()
    disks.settle()
    assert OffsetCheckpoint("/data", LOG_START_OFFSET_CHECKPOINT, disks.filesystem).read() == {T0: 3, T1: 2}


def test_a_file_that_somebody_else_deletes_meanwhile_does_not_fail_the_directory() -> None:
    """Segments that retention took are deleted in one thread, the log that they were of in another."""
    disks, manager = a_manager(log_segment_delete_delay_ms=0)
    some_logs(manager)
    assert isinstance(disks.filesystem, FaultyFileSystem)
    inner = disks.filesystem._inner

    def delete_it_first(name: str, path: str) -> bool:
        if name == "unlink" and path.endswith(".log"):
            inner.unlink(path)
        return False

    disks.filesystem.fails_if = delete_it_first
    manager.delete(T0)
    disks.settle()
    assert manager.offline_log_dirs == []
    assert not any("delete" in name for name in names_in(disks, "/data"))


@pytest.mark.slow
def test_segments_deleted_before_a_move_are_deleted_after_it() -> None:
    disks, manager = a_manager("/a,/b")
    disks.topics["topic"] = dict(topic(segment_bytes=200, file_delete_delay_ms=1000))
    log = manager.get_or_create(T0, TOPIC_ID, is_new=True, log_dir="/a")
    for _ in range(20):
        append(log, a_batch(2))
    log.update_high_watermark(40)
    future = a_future_log(manager, log, "/b")
    region = log.read(0, 200, 40, True).region
    assert region is not None
    while region is not None:
        follow(future, region.read(), 0)
        region = log.read(future.log_end_offset, 200, 40, True).region
    for each in (log, future):
        each.update_high_watermark(40)
        each.increment_log_start_offset(10, "test")
    disks.settle()
    manager.check_retention()
    disks.settle()
    manager.moves.start(T0)
    disks.settle()
    assert manager.get(T0) is future
    assert any(name.endswith(".deleted") for name in names_in(disks, "/b/topic-0"))
    disks.background.advance(1000)
    assert not any(name.endswith(".deleted") for name in names_in(disks, "/b/topic-0"))


def test_a_log_whose_directory_is_being_renamed_is_not_flushed_by_age() -> None:
    disks, manager = a_manager()
    disks.topics["topic"] = dict(topic(flush_ms=1, index_interval_bytes=1))
    for log in some_logs(manager):
        append(log)
        append(log)
    disks.settle()
    disks.clock.move(10)
    with turns_by_hand():
        manager.flush_dirty_logs()
        begin_rename(disks, manager, T2)
        while disks.background.turn():
            pass
        disks.settle()
    assert manager.offline_log_dirs == []


def test_a_log_whose_directory_is_being_renamed_is_not_cleaned() -> None:
    disks = Disks(FaultyFileSystem(MemoryFileSystem()))
    disks.topics["topic"] = dict(topic(cleanup_policy="compact", segment_bytes=200))
    manager = disks.a_manager()
    manager.cleaner._new_worker = lambda: InlineCleaner(disks.filesystem)
    manager.open()
    manager.identify("cluster", 0)
    manager.load()
    manager.start()
    log = some_logs(manager)[2]
    disks.settle()
    for _ in range(5):
        append(log, a_batch(2))
    log.update_high_watermark(log.log_end_offset)
    manager.cleaner._wake_in(0)
    with turns_by_hand():
        disks.background.turn()  # the first log is looked at
        begin_rename(disks, manager, T2)
        for _ in range(10):
            disks.background.turn()
        disks.background.advance(100)
    assert manager.offline_log_dirs == []


def test_a_log_that_was_deleted_can_be_read_until_its_files_are() -> None:
    """Whoever began to may go on; Fetch holds files, and not all of them yet."""
    disks, manager = a_manager()
    log = some_logs(manager)[0]
    append(log, a_batch(2))
    append(log, a_batch(2))
    begin_rename(disks, manager, T0)
    disks.settle()
    found = log.read(1, 1 << 20, 4, True)
    assert (found.next_offset, log.segments.active.base_offset) == (4, 4)
    with pytest.raises(LogClosed):
        append(log)


def test_a_future_log_whose_topic_id_a_crash_took_has_it_when_it_takes_the_place() -> None:
    disks, manager = a_manager("/a,/b")
    log = manager.get_or_create(T0, TOPIC_ID, is_new=True, log_dir="/a")
    append(log)
    future = a_future_log(manager, log, "/b")
    directory = future.directory
    disks.crash(manager)
    disks.filesystem.unlink(f"{directory}/partition.metadata")
    manager = disks.start()
    manager.moves.start(T0)
    disks.settle()
    moved = manager.get(T0)
    assert moved is not None
    assert (moved.log_dir, moved.topic_id) == ("/b", TOPIC_ID)
    assert read_topic_id(disks.filesystem, "/b/topic-0") == TOPIC_ID


def test_a_crash_between_a_roll_and_its_completion_loses_nothing_behind_a_preallocated_file() -> None:
    disks, manager = a_manager()
    disks.topics["topic"] = dict(topic(preallocate="true", segment_bytes=2000))
    log = some_logs(manager)[0]
    append(log, a_batch(2))
    log.roll()
    append(log, a_batch(2))
    disks.crash(manager)
    found = disks.start().get(T0)
    assert found is not None
    assert found.log_end_offset == 4
