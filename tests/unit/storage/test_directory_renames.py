"""Logs that are deleted, whose directories a thread renames while the event loop goes on."""

import re
from functools import partial

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.small_files import SmallFiles
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.manager.new_logs import NEW_LOGS, NewLog
from ottla.storage.upkeep.directory_renames import RENAME_LOG
from tests.support.background import carry_out
from tests.support.batches import a_batch
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, a_future_log
from tests.support.logs import append

T0 = TopicPartition("orders", 0)
TOPIC_ID, OTHER_ID = b"id of the topic.", b"id of another on"


class Started:
    """A manager with one log of three records. Its threads rename directories when the test says so."""

    def __init__(self, log_dirs: str = "/data") -> None:
        self.filesystem = FaultyFileSystem(MemoryFileSystem())
        self.disks = Disks(self.filesystem, log_dirs)
        self.manager = self.start()
        self.log = self.create()
        append(self.log, a_batch(3))

    def start(self) -> LogManager:
        manager = self.disks.start()
        self.disks.background.done_at_once.discard(RENAME_LOG)
        return manager

    def create(self) -> PartitionLog:
        return self.manager.get_or_create(T0, TOPIC_ID, is_new=True, log_dir="/data" if "/data" in self.manager.directories.all else "/a")

    def directories(self, log_dir: str = "/data") -> list[str]:
        """Those of partitions, without what makes their names unique."""
        return [re.sub(r"\.[0-9a-f]{32}", "", name) for name in self.filesystem.list_directory(log_dir) if name.startswith("orders")]


def test_the_loop_renames_nothing_and_hears_when_it_is_done() -> None:
    started = Started()
    calls = started.disks.watch("rename", "open", "unlink", "sync_directory")
    told: list[BaseException | None] = []
    (rename,) = started.manager.delete(T0)
    started.manager.renames.when_done(["/data"], told.append)
    assert not calls
    assert not told
    started.disks.settle()
    assert told == [None]
    assert rename.failure is None
    assert started.log.directory.endswith("-delete")
    assert started.filesystem.exists(started.log.directory)
    started.disks.background.advance(60_000)
    assert started.directories() == []


def test_who_waits_for_a_deletion_hears_of_it_when_no_checkpoint_names_the_log() -> None:
    """Else the next log of that name begins where the old one did, and a kill costs it all records below that."""
    started = Started()
    _delete_records_up_to(started, 2)
    told: list[BaseException | None] = []
    started.manager.delete(T0)
    started.manager.renames.when_done(["/data"], told.append)
    while not told:
        started.disks.background.turn()
        started.disks.background.run_work()
    assert told == [None]
    assert _after_a_crash_of_a_new_log(started, started.manager) == (0, 2)


def test_checkpoints_that_name_logs_which_are_gone_are_put_right_by_the_start() -> None:
    started = Started()
    _delete_records_up_to(started, 2)
    started.manager.delete(T0)
    started.manager.renames.finish("/data/orders-0")  # and the broker dies, so that nobody hears of it
    started.disks.crash(started.manager)
    assert _after_a_crash_of_a_new_log(started, started.start()) == (0, 2)


def _delete_records_up_to(started: Started, offset: int) -> None:
    started.log.update_high_watermark(started.log.log_end_offset)
    started.log.increment_log_start_offset(offset, "DeleteRecords")
    started.manager.checkpoint_log_start_offsets()
    started.disks.settle()
    assert b"orders 0 2" in started.filesystem.read_file("/data/log-start-offset-checkpoint")


def _after_a_crash_of_a_new_log(started: Started, manager: LogManager) -> tuple[int, int]:
    """Where it begins and ends, which had two records."""
    new = manager.get_or_create(T0, OTHER_ID, is_new=True)
    append(new, a_batch(2))
    started.disks.crash(manager)
    found = started.start().get(T0)
    assert found is not None
    return found.log_start_offset, found.log_end_offset


def test_nothing_is_waited_for_when_nothing_is_under_way() -> None:
    told: list[BaseException | None] = []
    started = Started()
    started.disks.settle()
    started.manager.renames.when_done(["/data"], told.append)
    assert told == [None]


def test_a_log_of_the_same_name_that_is_made_at_once_is_empty_and_the_old_one_goes() -> None:
    started = Started()
    started.manager.delete(T0)
    new = started.create()
    assert (new.directory, new.log_end_offset) == ("/data/orders-0", 0)
    append(new, a_batch(2))
    started.disks.background.advance(60_000)
    assert started.directories() == ["orders-0"]
    started.disks.crash(started.manager)
    found = started.start().get(T0)
    assert found is not None
    assert found.log_end_offset == 2


def test_a_log_of_the_same_name_that_a_thread_makes_is_empty() -> None:
    started = Started()
    started.disks.background.done_at_once.discard(NEW_LOGS)
    started.manager.delete(T0)
    started.manager.new_logs.make([NewLog(T0, TOPIC_ID, is_new=True)], lambda error: None)
    started.disks.background.work.reverse()  # threads do not wait for each other
    started.disks.background.run_work()
    found = started.manager.get(T0)
    assert found is not None
    assert found.log_end_offset == 0
    started.disks.background.advance(60_000)
    assert started.directories() == ["orders-0"]


def test_one_that_is_deleted_twice_is_removed_twice() -> None:
    started = Started()
    for _ in range(2):
        started.manager.delete(T0)
        append(started.create(), a_batch())
    started.disks.background.run_work()
    assert sorted(started.directories()) == ["orders-0", "orders-0-delete", "orders-0-delete"]
    started.disks.background.advance(60_000)
    assert started.directories() == ["orders-0"]


def test_a_disk_that_refuses_is_offline_and_whoever_deleted_learns_of_it() -> None:
    started = Started("/a,/b")
    (rename,) = started.manager.delete(T0)
    started.filesystem.fails_if = lambda name, path: name == "rename" and path == "/a/orders-0"
    started.disks.background.run_work()
    assert rename.failure is not None
    assert rename.failure.log_dir == "/a"
    assert started.manager.offline_log_dirs == ["/a"]
    assert started.log.is_closed


def test_a_rename_that_fails_for_another_reason_than_the_disk_is_no_rename_either(monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started("/a,/b")
    (rename,) = started.manager.delete(T0)

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(SmallFiles, "move_to", fail)
    started.disks.background.run_work()
    assert rename.failure is not None
    assert started.manager.offline_log_dirs == ["/a"]
    assert started.log.directory == "/a/orders-0"
    assert started.log.is_closed


def test_a_clean_stop_leaves_no_log_that_was_deleted() -> None:
    started = Started()
    started.manager.delete(T0)
    started.manager.shutdown()
    assert started.directories() == ["orders-0-delete"]
    assert started.start().get(T0) is None


def test_a_crash_before_the_rename_leaves_the_log_where_it_was() -> None:
    started = Started()
    started.manager.delete(T0)
    started.log.close_without_writing()
    started.disks.crash(started.manager)
    started.disks.background.work.clear()
    found = started.start().get(T0)
    assert found is not None
    assert found.log_end_offset == 3


def test_a_log_that_moves_to_where_one_of_its_name_was_a_moment_ago_takes_the_name() -> None:
    started = Started("/a,/b")
    started.manager.delete(T0)
    log = started.manager.get_or_create(T0, TOPIC_ID, is_new=True, log_dir="/b")
    append(log, a_batch(2))
    future = a_future_log(started.manager, log, "/a")
    append(future, a_batch(2))
    replaced = started.manager.future_logs.replace_current(T0)
    assert replaced is future
    assert replaced.directory == "/a/orders-0"
    assert started.directories("/b") == ["orders-0-delete"]
    started.disks.background.advance(60_000)
    assert (started.directories("/a"), started.directories("/b")) == (["orders-0"], [])
    started.disks.crash(started.manager)
    found = started.start().get(T0)
    assert found is not None
    assert found.log_end_offset == 2


def test_who_waits_for_a_deletion_waits_for_no_other_disk() -> None:
    """One that hangs: a rename and a checkpoint wait for it."""
    started = Started("/a,/b")
    other = started.manager.get_or_create(TopicPartition("orders", 1), OTHER_ID, is_new=True, log_dir="/b")
    started.disks.settle()
    told: list[str] = []
    started.manager.checkpoint_recovery_points()
    started.manager.delete(other.topic_partition)
    started.manager.delete(T0)
    for log_dirs in (["/a"], ["/b"], ["/a", "/b"]):
        started.manager.renames.when_done(log_dirs, partial(_note, told, " ".join(log_dirs)))
    background = started.disks.background
    for _ in range(100):
        background.turn()
        for each in [each for each in background.work if "/b" not in each[0]]:
            background.work.remove(each)
            carry_out(*each[1:])
    assert told == ["/a"]
    started.disks.settle()
    assert told == ["/a", "/b", "/a /b"]


def _note(told: list[str], what: str, error: BaseException | None) -> None:
    assert error is None
    told.append(what)
