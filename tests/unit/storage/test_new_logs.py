"""Logs of new partitions, made in a thread while the event loop goes on."""

from collections.abc import Callable

import pytest

from ottla.config.topic import RETENTION_MS, TopicConfig
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.storage.disk.partition_metadata import read_topic_id
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.manager.new_logs import NEW_LOGS, NewLog
from tests.support.batches import a_batch
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks
from tests.support.logs import append

TOPIC_ID = b"id of the topic."


def a_log(index: int, *, topic_id: bytes = TOPIC_ID, is_new: bool = True) -> NewLog:
    return NewLog(TopicPartition("orders", index), topic_id, is_new)


class Started:
    """A manager whose threads run when the test says so, on a disk that counts and fails."""

    def __init__(self, log_dirs: str = "/data") -> None:
        self.filesystem = FaultyFileSystem(MemoryFileSystem())
        self.disks = Disks(self.filesystem, log_dirs)
        self.manager = self.start()
        self.told: list[BaseException | None] = []

    def start(self) -> LogManager:
        manager = self.disks.start()
        self.disks.background.done_at_once.clear()
        return manager

    def make(self, *wanted: NewLog) -> None:
        self.manager.new_logs.make(wanted, self.told.append)

    def fail_if(self, is_it: Callable[[str, str], bool]) -> None:
        self.filesystem.fails_if = is_it


def test_the_loop_makes_no_file_and_the_log_is_known_when_all_are_there() -> None:
    started = Started()
    calls = started.disks.watch("open", "make_directory", "truncate", "rename")
    started.make(a_log(0), a_log(1))
    assert not calls
    assert started.manager.get(TopicPartition("orders", 0)) is None
    started.disks.background.run_work()
    assert started.told == [None]
    for index in (0, 1):
        log = started.manager.get(TopicPartition("orders", index))
        assert log is not None
        assert log.topic_id == TOPIC_ID
        assert read_topic_id(started.filesystem, log.directory) == TOPIC_ID
        append(log, a_batch())
    calls.clear()
    started.manager.get_or_create(TopicPartition("orders", 0), TOPIC_ID)
    assert not calls


def test_a_configuration_that_changes_while_its_log_is_made_holds_for_it() -> None:
    started = Started()
    started.make(a_log(0))
    started.disks.topics["orders"] = {"retention.ms": "5"}
    started.disks.background.run_work()
    log = started.manager.get(TopicPartition("orders", 0))
    assert log is not None
    assert log.config[RETENTION_MS] == 5


@pytest.mark.parametrize("is_made", [False, True])
def test_an_error_with_one_log_holds_up_no_other(is_made: bool, caplog: pytest.LogCaptureFixture) -> None:
    started = Started()
    config_of = started.manager.topic_config_of

    def config_or_error(topic: str) -> TopicConfig:
        if topic == "bad":
            raise ValueError("a fault")
        return config_of(topic)

    bad = NewLog(TopicPartition("bad", 0), TOPIC_ID, True)
    if is_made:
        started.make(bad, a_log(0))
    started.manager.topic_config_of = config_or_error
    if not is_made:
        started.make(bad, a_log(0))
    started.disks.background.run_work()
    started.make(a_log(1))
    started.disks.background.run_work()
    assert started.told == [None, None]
    assert {each.topic_partition for each in started.manager.all_logs()} == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
    assert "bad-0: its " in caplog.text


def test_logs_without_a_topic_id_have_no_file_of_it() -> None:
    started = Started()
    started.make(a_log(0, topic_id=ZERO_UUID))
    started.disks.background.run_work()
    assert not started.filesystem.exists("/data/orders-0/partition.metadata")


def test_the_logs_of_a_batch_are_spread_over_the_directories() -> None:
    started = Started("/a,/b")
    started.make(*[a_log(index) for index in range(6)])
    started.disks.background.run_work()
    assert [log.log_dir for log in started.manager.current_logs()].count("/a") == 3
    assert [directory.log_count for directory in started.manager.directories.live] == [3, 3]


def test_a_directory_that_stands_there_is_left_to_be_opened() -> None:
    started = Started()
    append(started.manager.get_or_create(TopicPartition("orders", 0), TOPIC_ID), a_batch(3))
    started.manager.shutdown()
    started.manager = started.start()
    log = started.manager.get(TopicPartition("orders", 0))
    started.make(a_log(0), a_log(1))
    started.disks.background.run_work()
    assert started.manager.get(TopicPartition("orders", 0)) is log
    started.filesystem.make_directory("/data/orders-2")
    started.make(a_log(2))
    started.disks.background.run_work()
    assert started.manager.get(TopicPartition("orders", 2)) is None
    assert started.manager.get_or_create(TopicPartition("orders", 2), TOPIC_ID).topic_id == TOPIC_ID


def test_what_is_asked_for_twice_is_made_once() -> None:
    started = Started()
    started.make(a_log(0))
    started.make(a_log(0), a_log(1))
    started.disks.background.run_work()
    assert started.told == [None, None]
    assert len(started.manager) == 2


def test_a_log_that_is_deleted_while_it_is_made_is_removed_again() -> None:
    started = Started()
    started.make(a_log(0), a_log(1))
    started.manager.delete(TopicPartition("orders", 0))
    started.disks.background.run_work()
    assert started.manager.get(TopicPartition("orders", 0)) is None
    assert started.manager.get(TopicPartition("orders", 1)) is not None
    started.disks.background.advance(60_000)
    assert [name for name in started.filesystem.list_directory("/data") if name.startswith("orders")] == ["orders-1"]


def test_a_log_that_was_deleted_before_is_made_again() -> None:
    started = Started()
    started.make(a_log(0))
    started.manager.delete(TopicPartition("orders", 0))
    started.make(a_log(0))
    started.disks.background.run_work()
    assert started.manager.get(TopicPartition("orders", 0)) is not None


def test_a_full_disk_ends_the_batch_and_the_one_who_needs_the_log_learns_of_it() -> None:
    started = Started("/a,/b")
    started.fail_if(lambda name, path: path.startswith("/a/orders"))
    started.make(a_log(0))
    started.disks.background.run_work()
    assert started.told == [None]
    assert len(started.manager) == 0
    assert started.manager.get_or_create(TopicPartition("orders", 0), TOPIC_ID, is_new=True).log_dir == "/b"
    assert started.manager.offline_log_dirs == ["/a"]


def test_a_directory_that_fails_meanwhile_keeps_its_new_logs() -> None:
    started = Started("/a,/b")
    started.make(a_log(0), a_log(1))
    started.manager.handle_log_dir_failure("/a")
    started.disks.background.run_work()
    assert [log.log_dir for log in started.manager.current_logs()] == ["/b"]


def test_with_an_offline_directory_only_partitions_that_are_new_are_made() -> None:
    started = Started("/a,/b")
    started.manager.handle_log_dir_failure("/a")
    started.make(a_log(0, is_new=False), a_log(1))
    started.disks.background.run_work()
    assert [log.topic_partition.partition for log in started.manager.current_logs()] == [1]


def test_without_a_directory_that_works_nothing_is_made_and_whoever_asks_is_told() -> None:
    started = Started()
    started.manager.handle_log_dir_failure("/data", "gone")
    started.make(a_log(0))
    assert started.told == [None]
    assert started.manager.get(TopicPartition("orders", 0)) is None


class Moving(Started):
    """Logs in /a, and others that are asked for in /b to take their places."""

    def __init__(self, count: int = 2) -> None:
        super().__init__("/a,/b")
        self.logs = [
            self.manager.get_or_create(TopicPartition("orders", index), TOPIC_ID, is_new=True, log_dir="/a") for index in range(count)
        ]
        self.disks.settle()

    def ask(self, *log_dirs: str) -> None:
        self.make(*[NewLog(log.topic_partition, TOPIC_ID, True, log_dir) for log, log_dir in zip(self.logs, log_dirs, strict=True)])

    def futures(self) -> list[str | None]:
        """The directory of each."""
        found = [self.manager.get(log.topic_partition, future=True) for log in self.logs]
        return [None if each is None else each.log_dir for each in found]

    def names(self, log_dir: str) -> list[str]:
        return [name for name in self.filesystem.list_directory(log_dir) if name.startswith("orders")]


def test_the_loop_makes_no_file_of_a_future_log() -> None:
    moving = Moving()
    calls = moving.disks.watch("open", "make_directory", "truncate", "rename", "open_unnamed", "link")
    moving.ask("/b", "/b")
    assert not calls
    assert moving.futures() == [None, None]
    moving.disks.background.run_work()
    assert moving.futures() == ["/b", "/b"]
    for log in moving.logs:
        moving.manager.moves.start(log.topic_partition)
    moving.disks.background.advance(1000)
    assert moving.names("/b") == ["orders-0", "orders-1"]
    for index in (0, 1):
        moved = moving.manager.get(TopicPartition("orders", index))
        assert moved is not None
        assert moved.topic_id == TOPIC_ID == read_topic_id(moving.filesystem, moved.directory)
    assert [directory.log_count for directory in moving.manager.directories.live] == [0, 2]


def test_a_future_log_that_nobody_wants_any_more_is_removed_when_it_is_made() -> None:
    moving = Moving()
    moving.ask("/b", "/b")
    moving.manager.delete(TopicPartition("orders", 0))
    moving.manager.future_logs.delete(TopicPartition("orders", 1))
    moving.disks.background.run_work()
    assert moving.futures() == [None, None]
    moving.disks.background.advance(60_000)
    assert moving.names("/a") == ["orders-1"]
    assert moving.names("/b") == []
    assert [directory.log_count for directory in moving.manager.directories.live] == [1, 0]


def test_a_directory_whose_disk_refuses_a_future_log_is_offline() -> None:
    moving = Moving()
    moving.fail_if(lambda name, path: name == "make_directory" and path.startswith("/b/"))
    moving.ask("/b", "/b")
    moving.disks.background.run_work()
    assert moving.manager.offline_log_dirs == ["/b"]
    assert moving.futures() == [None, None]
    assert moving.told == [None]


def test_after_a_crash_at_any_step_a_future_log_is_whole_or_not_there() -> None:
    for step in range(1, 40):
        moving = Moving(1)
        append(moving.logs[0], a_batch())
        counted = 0

        def at_step(name: str, path: str, step: int = step) -> bool:
            nonlocal counted
            counted += name != "exists"
            return counted >= step

        moving.fail_if(at_step)
        moving.ask("/b")
        moving.disks.background.run_work()
        moving.fail_if(lambda name, path: False)
        moving.disks.crash(moving.manager)
        manager = moving.start()
        log = manager.get(TopicPartition("orders", 0))
        assert log is not None
        assert log.log_dir == "/a"
        manager.moves.start(log.topic_partition)
        moving.disks.background.advance(1000)
        moved = manager.get(TopicPartition("orders", 0))
        assert moved is not None
        assert moved.log_end_offset == 1
        if counted < step:
            assert moved.log_dir == "/b"
            return
    raise AssertionError("it never ended")


@pytest.mark.slow
def test_after_a_crash_at_any_step_the_logs_are_there_or_can_be_made() -> None:
    for step in range(1, 40):
        started = Started()
        counted = 0

        def at_step(name: str, path: str, step: int = step) -> bool:
            nonlocal counted
            counted += name != "exists"
            return counted >= step

        started.fail_if(at_step)
        started.make(a_log(0), a_log(1))
        started.disks.background.run_work()
        started.fail_if(lambda name, path: False)
        started.disks.crash(started.manager)
        manager = started.start()
        for index in (0, 1):
            log = manager.get_or_create(TopicPartition("orders", index), TOPIC_ID)
            assert log.topic_id == TOPIC_ID
            append(log, a_batch())
            assert log.log_end_offset == 1


def test_a_log_that_was_made_when_the_broker_stops_is_closed_with_the_others() -> None:
    started = Started()
    started.make(a_log(0))
    (work,) = [work for name, work, _ in started.disks.background.work if name == NEW_LOGS]
    work()  # and the loop does not hear of it any more
    started.manager.shutdown()
    assert started.filesystem.size("/data/orders-0/00000000000000000000.index") == 0
    log = started.start().get(TopicPartition("orders", 0))
    assert log is not None
    assert log.topic_id == TOPIC_ID


def test_nothing_is_made_in_a_directory_that_was_closed() -> None:
    started = Started()
    started.make(a_log(0))
    (work,) = [work for name, work, _ in started.disks.background.work if name == NEW_LOGS]
    started.manager.shutdown()
    work()
    assert not started.filesystem.exists("/data/orders-0")
