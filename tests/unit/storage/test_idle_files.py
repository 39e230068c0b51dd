"""Files of segments that nobody uses are closed, and open again when somebody does."""

import errno
import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.coordination.error_map import error_code
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.flushes import SEGMENTS_AT_ONCE
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.upkeep.idle_files import IdleFiles
from tests.support.background import ManualBackground
from tests.support.batches import a_batch
from tests.support.clocks import ManualClock
from tests.support.logs import append, read_all

T0, T1 = TopicPartition("topic", 0), TopicPartition("topic", 1)


def open_files(directory: Path) -> list[str]:
    """The names of files below `directory` that this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if path.startswith(f"{directory}/topic"):
            found.append(path.rpartition("/")[2])
    return sorted(found)


def a_manager(directory: Path) -> tuple[LogManager, ManualBackground]:
    config = BrokerConfig({"log.dirs": str(directory), "log.index.interval.bytes": "100"})
    clock = ManualClock()
    background = ManualBackground(clock)
    manager = LogManager(
        config,
        lambda topic: TopicConfig({"segment.bytes": "1000"}, config),
        RealFileSystem(),
        clock,
        background,
        random=Random(1),
    )
    manager.open()
    manager.identify("a cluster", 0)
    manager.load()
    return manager, background


def test_what_is_open_belongs_to_what_is_used(tmp_path: Path) -> None:
    manager, background = a_manager(tmp_path)
    logs = [manager.get_or_create(each, is_new=True) for each in (T0, T1)]
    for log in logs:
        for _ in range(20):
            append(log, a_batch(3, value_bytes=50))
    expected = [read_all(log) for log in logs]
    background.run_work()
    idle = IdleFiles(RealFileSystem(), background, manager.all_logs)
    idle.close_idle()
    assert len(open_files(tmp_path)) == 2, "the active ones"
    append(logs[0])
    background.run_work()
    idle.close_idle()
    assert len(open_files(tmp_path)) == 1
    append(logs[1])
    assert [read_all(log, 0)[: len(data)] for log, data in zip(logs, expected, strict=True)] == expected
    manager.shutdown()
    assert open_files(tmp_path) == []


def test_an_error_with_one_log_leaves_no_files_of_the_others_open(tmp_path: Path) -> None:
    manager, background = a_manager(tmp_path)
    append(manager.get_or_create(T0, is_new=True))
    faulty = SimpleNamespace(topic_partition=T1)
    idle = IdleFiles(RealFileSystem(), background, lambda: [faulty, *manager.all_logs()])  # type: ignore[list-item]  # has no files
    for _ in range(2):
        idle.close_idle()
        background.run_work()
    assert open_files(tmp_path) == []
    manager.shutdown()


def test_after_a_start_a_log_has_no_more_open_than_its_active_segment(tmp_path: Path) -> None:
    manager, _ = a_manager(tmp_path)
    log = manager.get_or_create(T0, is_new=True)
    for _ in range(20):
        append(log, a_batch(3, value_bytes=50))
    manager.shutdown()
    manager, _ = a_manager(tmp_path)
    again = manager.get(T0)
    assert again is not None
    append(again)
    assert {name.rpartition(".")[2] for name in open_files(tmp_path)} == {"log"}
    manager.shutdown()


class CrowdedFileSystem(RealFileSystem):
    """One that is always near the limit."""

    def is_short_of_files(self) -> bool:
        return True


def test_pressure_that_comes_and_goes_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    class Hovering(RealFileSystem):
        short = False

        def is_short_of_files(self) -> bool:
            return self.short

    filesystem = Hovering()
    idle_files = IdleFiles(filesystem, ManualBackground(ManualClock()), list)
    caplog.set_level("INFO", "ottla.storage.upkeep.idle_files")
    for at in range(30):
        filesystem.short = at % 3 == 0
        idle_files.relieve()
    assert len(caplog.records) == 1
    filesystem.short = False
    for _ in range(60):
        idle_files.relieve()
    filesystem.short = True
    idle_files.relieve()
    assert len(caplog.records) == 2


def test_a_flush_keeps_only_the_files_open_that_it_needs(tmp_path: Path) -> None:
    manager, background = a_manager(tmp_path)
    log = manager.get_or_create(T0, is_new=True)
    for _ in range(160):
        append(log, a_batch(3, value_bytes=50))
    log.rolls.finish()
    plan = log.flushes.prepare(log.flushes.complete_up_to())
    assert plan is not None
    assert 0 < len(plan.segments) < len(log.segments) - 1
    idle = IdleFiles(RealFileSystem(), background, manager.all_logs)
    idle.start()
    idle.close_some()
    assert open_files(tmp_path) == [segment.path.rpartition("/")[2] for segment in plan.segments]
    plan.run()
    log.flushes.finish(plan)
    idle.close_some()
    log.flush()
    assert len(open_files(tmp_path)) <= SEGMENTS_AT_ONCE + 1
    manager.shutdown()


def test_what_is_used_is_closed_too_when_descriptors_run_short(tmp_path: Path) -> None:
    manager, background = a_manager(tmp_path)
    logs = [manager.get_or_create(each, is_new=True) for each in (T0, T1)]
    for log in logs:
        append(log)
    background.run_work()
    assert len(open_files(tmp_path)) == 2
    IdleFiles(CrowdedFileSystem(), background, manager.all_logs).relieve()
    assert open_files(tmp_path) == []
    append(logs[0])
    assert len(read_all(logs[0])) > len(read_all(logs[1])) > 0
    manager.shutdown()


@contextmanager
def so_many_more_files(count: int) -> Iterator[None]:
    """May be opened by this process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # files that tests before left to the collector would be room for more
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.slow
def test_more_logs_than_files_that_may_be_open_are_created_written_and_opened_again(tmp_path: Path) -> None:
    partitions = [TopicPartition("topic", number) for number in range(150)]
    with so_many_more_files(60):
        manager, background = a_manager(tmp_path)
        manager.start()
        for _ in range(2):
            for each in partitions:  # within one turn of the loop: nothing is closed in between but for need
                append(manager.get_or_create(each, is_new=True))
        assert len(open_files(tmp_path)) < len(partitions)  # the limit holds them at 60, or some more if other files were closed meanwhile
        background.run_work()
        manager.shutdown()
        manager, background = a_manager(tmp_path)
        assert open_files(tmp_path) == []
        manager.start()
        assert {log.log_end_offset for log in manager.all_logs()} == {2}
        for each in manager.all_logs():
            assert len(read_all(each)) == 2 * len(a_batch())
        assert manager.offline_log_dirs == []
        manager.shutdown()


def test_a_call_finds_a_descriptor_of_the_reserve_when_no_other_is_free(tmp_path: Path) -> None:
    filesystem = RealFileSystem()
    filesystem.relieve_with(lambda: None)  # as on another thread than the loop's
    path = str(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"data" * 1024)
    with so_many_more_files(1), open(path):  # the last one that is free
        kept = [file := filesystem.open(path)]
        assert filesystem.read_file(path) == b"data" * 1024
        assert filesystem.list_directory(str(tmp_path)) == ["file"]
        filesystem.sync_directory(str(tmp_path))
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                kept.append(filesystem.open(path))
        assert bytes(file.map(4096)) == b"data" * 1024
    kept.clear()
    assert filesystem.is_short_of_files()  # which fills the reserve again
    with so_many_more_files(0):
        filesystem.open(path)


def test_the_reserve_ends_with_the_manager_of_its_logs(tmp_path: Path) -> None:
    """Or else with the last reference to the file system: a process may have one broker after the other."""
    before = os.listdir("/proc/self/fd")
    manager, _ = a_manager(tmp_path)
    manager.start()
    assert len(os.listdir("/proc/self/fd")) > len(before) + 4
    manager.shutdown()
    assert os.listdir("/proc/self/fd") == before
    filesystem = RealFileSystem()
    filesystem.relieve_with(lambda: None)
    del filesystem
    assert os.listdir("/proc/self/fd") == before


def test_a_shortage_of_descriptors_takes_no_directory_offline(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager, _ = a_manager(tmp_path)
    for number in (errno.EMFILE, errno.ENFILE):
        failure = LogDirFailure.of(OSError(number, os.strerror(number)), str(tmp_path), "where")
        manager.report_failure(failure)
        assert error_code(failure) == ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.offline_log_dirs == []
    assert caplog.text.count("this operation alone has failed") == 2
    manager.report_failure(LogDirFailure.of(OSError(errno.EIO, os.strerror(errno.EIO)), str(tmp_path), "where"))
    assert manager.offline_log_dirs == [str(tmp_path)]


def test_the_number_of_a_descriptor_tells_how_many_there_are(tmp_path: Path) -> None:
    filesystem = RealFileSystem()
    filesystem._many = 1 << 30
    file = filesystem.open(str(tmp_path / "file"), create=True)
    assert not filesystem.is_short_of_files()
    filesystem._many = file.fileno() - 1
    file.close()
    filesystem.open(str(tmp_path / "file"))
    assert filesystem.is_short_of_files()
    assert not filesystem.is_short_of_files()
