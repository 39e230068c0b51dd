"""What a crash leaves of a log and of the one that is to take its place."""

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.errors import LogBeingTruncated
from ottla.storage.log import truncation as log_truncation
from ottla.storage.log.partition_log import PartitionLog
from tests.support.batches import a_batch
from tests.support.cleaners import InlineCleaner
from tests.support.compacted_logs import Writer
from tests.support.filesystems import MemoryFileSystem
from tests.support.log_manager import Disks, a_future_log, topic
from tests.support.logs import append, read_all

T0 = TopicPartition("topic", 0)


def test_a_copy_of_what_a_crash_took_from_the_log_is_gone_before_anything_is_appended() -> None:
    memory = MemoryFileSystem()
    disks = Disks(memory, log_dirs="/a,/b")
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True, log_dir="/a")
    future = a_future_log(manager, log, "/b")
    for value_bytes in (0, 0, 50):
        append(future, append_to(log, value_bytes))
    future.flush()
    disks.settle()
    manager.checkpoint_recovery_points()
    disks.settle()
    path = log.segments.active.path
    disks.crash(manager)
    with_tail = memory.open(path)
    with_tail.truncate(with_tail.size() - 1)

    # The next one lives too short for any thread to do anything
    manager = disks.start()
    current = manager.get(T0)
    assert current is not None
    assert current.log_end_offset == 4
    append(current, a_batch(2, value_bytes=7))
    disks.crash(manager)

    manager = disks.start()
    current, copy = manager.get(T0), manager.get(T0, future=True)
    assert current is not None
    assert copy is not None
    assert (copy.log_end_offset, copy.recovery_point) == (4, 4)
    expected = read_all(current)
    manager.moves.start(T0)
    disks.settle()
    assert manager.get(T0) is copy
    assert read_all(copy) == expected


def test_a_log_is_not_cleaned_before_its_copy_goes_on() -> None:
    """What was copied before the crash is not cleaned in the copy, which will count as clean as the log does."""
    disks = Disks(log_dirs="/a,/b")
    disks.topics["topic"] = dict(topic(cleanup_policy="compact", segment_bytes=500))
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True, log_dir="/a")
    writer = Writer(log)
    for at in range(20):
        writer.write([(b"key", b"value-%d" % at)])
    a_future_log(manager, log, "/b")
    disks.crash(manager)

    manager = disks.start()
    cleaners: list[InlineCleaner] = []

    def new_cleaner() -> InlineCleaner:
        cleaners.append(InlineCleaner(disks.filesystem))
        return cleaners[-1]

    manager.cleaner._new_worker = new_cleaner
    current = manager.get(T0)
    assert current is not None
    current.update_high_watermark(current.log_end_offset)
    disks.background.advance(60_000)
    assert not cleaners
    manager.future_logs.delete(T0)
    disks.background.advance(60_000)
    assert cleaners


def test_a_copy_that_cannot_be_cut_does_not_keep_the_broker_from_starting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory = MemoryFileSystem()
    disks = Disks(memory, log_dirs="/a,/b")
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True, log_dir="/a")
    future = a_future_log(manager, log, "/b")
    for _ in range(2):
        append(future, append_to(log, 0))
    append(future, a_batch(2))
    log.flush()
    future.flush()
    disks.settle()
    disks.crash(manager)

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(log_truncation, "rebuild_producer_state", fail)
        manager = disks.start()
    current, copy = manager.get(T0), manager.get(T0, future=True)
    assert current is not None
    assert copy is not None
    assert f"topic-0: {copy.directory} cannot be truncated to offset 4" in caplog.text
    assert manager.offline_log_dirs == []
    assert append(current, a_batch(2)).first_offset == 4
    with pytest.raises(LogBeingTruncated):
        append(copy, a_batch(2))

    disks.background.advance(2_000)
    assert copy.log_end_offset == 4
    manager.moves.start(T0)
    disks.settle()
    assert manager.get(T0) is copy
    assert copy.log_end_offset == 6


def append_to(log: PartitionLog, value_bytes: int) -> bytearray:
    """The batch that was appended."""
    batch = a_batch(2, value_bytes=value_bytes)
    unstamped = bytearray(batch)
    append(log, batch)
    return unstamped


def test_a_future_log_in_the_directory_that_the_log_is_in_takes_no_place_and_costs_no_directory(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody put it there: a rename to a directory that is not empty fails."""
    memory = MemoryFileSystem()
    disks = Disks(memory, log_dirs="/a,/b")
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True, log_dir="/a")
    append(log, a_batch(2))
    future = a_future_log(manager, log, "/b")
    directory = future.directory
    manager.shutdown()
    memory.rename(directory, directory.replace("/b/", "/a/"))

    manager = disks.start()
    caplog.clear()
    manager.moves.start(T0)
    disks.settle()
    (line,) = caplog.messages
    assert "topic-0: it cannot move" in line
    assert manager.offline_log_dirs == []
    assert T0 not in manager.moves
    current, copy = manager.get(T0), manager.get(T0, future=True)
    assert current is not None
    assert copy is not None
    assert (current.directory, current.log_end_offset) == ("/a/topic-0", 2)
    assert copy.directory == directory.replace("/b/", "/a/")


def a_copy_without_its_original(memory: MemoryFileSystem) -> str:
    """After a power cut that left the second rename of a move, and undid the first one. The directory of the copy."""
    disks = Disks(memory, log_dirs="/a,/b")
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True, log_dir="/a")
    future = a_future_log(manager, log, "/b")
    for _ in range(2):
        append(future, append_to(log, 0))
    log.flush()
    future.flush()
    disks.settle()
    disks.crash(manager)
    memory.rename("/a/topic-0", f"/a/topic-0.{'0' * 32}-delete")
    return future.directory


def test_a_copy_whose_original_is_gone_becomes_the_log(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryFileSystem()
    former = a_copy_without_its_original(memory)
    disks = Disks(memory, log_dirs="/a,/b")
    manager = disks.start()
    found = manager.get(T0)
    assert found is not None
    assert (found.directory, found.log_end_offset) == ("/b/topic-0", 4)
    assert manager.get(T0, future=True) is None
    assert f"topic-0: {former} was to replace a log that is gone; it is served as /b/topic-0" in caplog.text
    append(found)
    disks.background.advance(120_000)  # what is left of the original is deleted
    assert disks.filesystem.list_directory("/b").count("topic-0") == 1
    manager.shutdown()
    again = disks.start().get(T0)
    assert again is not None
    assert (again.directory, again.log_end_offset) == ("/b/topic-0", 5)


def test_a_copy_waits_for_its_original_as_long_as_that_may_be_in_an_offline_directory() -> None:
    memory = MemoryFileSystem()
    former = a_copy_without_its_original(memory)
    memory.open("/a/recovery-point-offset-checkpoint", create=True).write(b"garbage")
    manager = Disks(memory, log_dirs="/a,/b").start()
    assert manager.offline_log_dirs == ["/a"]
    copy = manager.get(T0, future=True)
    assert copy is not None
    assert (copy.directory, manager.get(T0)) == (former, None)
