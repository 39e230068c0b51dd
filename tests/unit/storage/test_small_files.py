"""Small files that threads write: in which order, and that they find the directory of their log wherever that went meanwhile."""

import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk import directory_writes, leader_epochs
from ottla.storage.disk.checkpoint import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, OffsetCheckpoint
from ottla.storage.disk.directory_writes import WRITES_PER_BATCH
from ottla.storage.disk.leader_epochs import read_leader_epochs
from ottla.storage.disk.movable_directory import MovableDirectory
from ottla.storage.disk.partition_metadata import encode_topic_id, read_topic_id
from ottla.storage.disk.small_files import SmallFiles
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.upkeep import log_checkpoints
from tests.support.batches import a_batch
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import CLUSTER_ID, Disks, a_future_log
from tests.support.logs import append, follow
from tests.support.pauses import turns_by_hand

CHECKPOINTS = {"recovery_point": RECOVERY_POINT_CHECKPOINT, "high_watermark": HIGH_WATERMARK_CHECKPOINT}
T0 = TopicPartition("topic", 0)
TOPIC_ID, OTHER_ID = bytes(range(16)), bytes(range(16, 32))


class Interruption:
    """Does `what` on the loop when a thread is about to make a call of this name on a path that ends so."""

    def __init__(self, disks: Disks, name: str, suffix: str, what: Callable[[], Any]) -> None:
        self.is_over = False

        def note(called: str, path: str) -> bool:
            if (called, self.is_over) == (name, False) and path.endswith(suffix):
                self.is_over = True
                what()
            return False

        assert isinstance(disks.filesystem, FaultyFileSystem)
        disks.filesystem.fails_if = note


def a_manager(log_dirs: str = "/data") -> tuple[Disks, LogManager]:
    disks = Disks(FaultyFileSystem(MemoryFileSystem()), log_dirs)
    disks.makes_topic_ids_durable_at_once = False
    return disks, disks.start()


def a_moving_log(disks: Disks, manager: LogManager) -> PartitionLog:
    """A log in /a whose move to /b only lacks the last step; nothing of it was written down yet."""
    log = manager.get_or_create(T0, TOPIC_ID, is_new=True, log_dir="/a")
    append(log, a_batch(2), epoch=3)
    future = a_future_log(manager, log, "/b")
    follow(future, _bytes_of(log), 3)
    return log


def _bytes_of(log: PartitionLog) -> bytes:
    region = log.read(0, 1 << 20, log.log_end_offset, True).region
    assert region is not None
    return region.read()


# Before the file is begun, while its bytes go to the disk, while its name does.
MOMENTS = [("sync_directory", ""), ("sync", ".tmp"), ("sync_directory", "/topic-0")]


@pytest.mark.parametrize(("call", "suffix"), MOMENTS)
@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint"])
def test_a_replica_may_move_to_and_fro_while_its_files_are_written(call: str, suffix: str, name: str) -> None:
    disks, manager = a_manager("/a,/b")
    log = a_moving_log(disks, manager)

    def to_and_fro() -> None:
        moved = manager.future_logs.replace_current(T0)
        back = a_future_log(manager, moved, "/a")
        follow(back, _bytes_of(moved), 3)
        manager.future_logs.replace_current(T0)

    interruption = Interruption(disks, call, f"{name}{suffix}" if call == "sync" else suffix, to_and_fro)
    if name == "partition.metadata":
        log.files.small_files.replace(name, encode_topic_id(TOPIC_ID))
    disks.settle()
    assert interruption.is_over
    assert manager.offline_log_dirs == []
    served = manager.get(T0)
    assert served is not None
    assert served.directory == "/a/topic-0"
    assert read_topic_id(disks.filesystem, served.directory) == TOPIC_ID
    assert read_leader_epochs(served.leader_epochs.path, disks.filesystem) == [(3, 0)]
    assert not [each for each in disks.filesystem.list_directory(served.directory) if each.endswith(".tmp")]


@pytest.mark.parametrize(("call", "suffix"), MOMENTS)
def test_what_is_written_late_for_a_deleted_topic_stays_out_of_its_successor(call: str, suffix: str) -> None:
    disks, manager = a_manager()
    manager.get_or_create(T0, TOPIC_ID, is_new=True)

    def delete_and_create() -> None:
        manager.delete(T0)
        manager.get_or_create(T0, OTHER_ID, is_new=True)

    interruption = Interruption(disks, call, suffix, delete_and_create)
    disks.background.advance()
    assert interruption.is_over
    assert manager.offline_log_dirs == []
    assert read_topic_id(disks.filesystem, "/data/topic-0") == OTHER_ID


@pytest.mark.parametrize(("call", "suffix"), MOMENTS[1:])
def test_what_is_written_when_the_directory_is_removed_is_dropped(call: str, suffix: str) -> None:
    disks, manager = a_manager()
    log = manager.get_or_create(T0, TOPIC_ID, is_new=True)
    manager.delete(T0)
    Interruption(disks, call, suffix if call == "sync" else "-delete", log.files.delete)
    log.files.small_files.replace("partition.metadata", b"late")
    assert manager.offline_log_dirs == []
    assert not [name for name in disks.filesystem.list_directory("/data") if name.startswith("topic")]


def test_a_directory_that_somebody_else_removed_is_a_failure() -> None:
    filesystem = MemoryFileSystem()
    with pytest.raises(FileNotFoundError):
        SmallFiles(filesystem, "/nowhere").replace("partition.metadata", b"")


def test_a_directory_whose_rename_is_under_way_is_no_failure() -> None:
    """It has its new name on the disk, and whoever renames it has not written that down."""

    class Slow(MemoryFileSystem):
        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            syncing.start()
            assert decided.wait(60)

    class Noted:
        """The lock; the thread that syncs says so when it waits for it."""

        def __enter__(self) -> None:
            if threading.current_thread() is syncing:
                decided.set()
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    def sync() -> None:
        try:
            files.sync_directory()
        except OSError as error:
            failures.append(error)
        decided.set()

    filesystem = Slow()
    filesystem.make_directory("/before")
    files, lock, decided = SmallFiles(filesystem, "/before"), threading.Lock(), threading.Event()
    files._lock = Noted()  # type: ignore[assignment]  # a lock has no class to derive from
    failures: list[OSError] = []
    syncing = threading.Thread(target=sync)
    files.move_to("/after")
    syncing.join()
    assert failures == []


@pytest.mark.parametrize("what", ["small files", "movable directory", "flush"])
def test_a_directory_is_synced_under_the_name_that_it_has_when_that_is_tried(what: str) -> None:
    disks, manager = a_manager()
    log = manager.get_or_create(T0, TOPIC_ID, is_new=True)
    append(log)
    disks.settle()
    plan = log.flushes.prepare(log.log_end_offset)
    assert plan is not None
    sync = {
        "small files": log.files.small_files.sync_directory,
        "movable directory": partial(MovableDirectory(disks.filesystem, log.files.small_files).sync_directory, log.directory),
        "flush": plan.run,
    }[what]
    synced: list[str] = []

    def note(name: str, path: str) -> bool:
        if name == "sync_directory":
            synced.append(path)
            if len(synced) == 1:
                log.files.small_files.move_to("/data/moved")
        return False

    assert isinstance(disks.filesystem, FaultyFileSystem)
    disks.filesystem.fails_if = note
    sync()
    assert synced == ["/data/topic-0", "/data/moved"]


def test_the_topic_id_is_in_its_file_before_anything_can_be_appended() -> None:
    disks, manager = a_manager()
    log = manager.get_or_create(T0, TOPIC_ID, is_new=True)
    append(log)
    disks.crash(manager)
    found = disks.start().get(T0)
    assert found is not None
    assert found.topic_id == TOPIC_ID


def test_the_topic_id_of_a_future_log_is_there_from_the_beginning() -> None:
    disks, manager = a_manager("/a,/b")
    log = manager.get_or_create(T0, TOPIC_ID, is_new=True, log_dir="/a")
    future = a_future_log(manager, log, "/b")
    assert read_topic_id(disks.filesystem, future.directory) == TOPIC_ID


@pytest.mark.parametrize("content", [b"", bytes(51)])
def test_a_topic_id_that_a_power_cut_emptied_is_learned_anew(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    disks, manager = a_manager()
    manager.get_or_create(T0, TOPIC_ID, is_new=True)
    disks.crash(manager)
    file = disks.filesystem.open("/data/topic-0/partition.metadata", create=True)
    file.truncate(0)
    file.write(content)
    again = disks.start()
    assert "the controller will send the topic id again" in caplog.text
    assert again.offline_log_dirs == []
    again.get_or_create(T0, TOPIC_ID)
    disks.settle()
    assert read_topic_id(disks.filesystem, "/data/topic-0") == TOPIC_ID


def test_many_small_files_are_written_in_slices_and_checkpoints_after_all_of_them() -> None:
    disks = Disks(FaultyFileSystem(MemoryFileSystem()))
    manager = disks.start()
    disks.settle()
    logs = [manager.get_or_create(TopicPartition("topic", index), is_new=True) for index in range(WRITES_PER_BATCH + 50)]
    for log in logs:
        append(log, epoch=3)
    manager.checkpoint_recovery_points()
    renames = disks.watch("rename")
    disks.settle()
    written = [path for path in renames if path.endswith("leader-epoch-checkpoint.tmp")]
    assert len(written) == len(logs)
    assert renames.index("/data/recovery-point-offset-checkpoint.tmp") > renames.index(written[-1])


def many_logs(disks: Disks, manager: LogManager, count: int) -> list[PartitionLog]:
    logs = [manager.get_or_create(TopicPartition("topic", index), is_new=True) for index in range(count)]
    disks.settle()
    return logs


@pytest.mark.parametrize("what", ["recovery_point", "high_watermark"])
def test_what_a_checkpoint_says_is_gathered_from_some_logs_per_turn(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disks, manager = a_manager("/a,/b")
    many_logs(disks, manager, 10)
    asked = 0

    def ask(log: PartitionLog) -> int:
        nonlocal asked
        asked += 1
        return 7

    monkeypatch.setattr(log_checkpoints, "LOGS_TOGETHER", 4)
    for key in log_checkpoints._OFFSET_OF:
        monkeypatch.setitem(log_checkpoints._OFFSET_OF, key, ask)
    getattr(manager, f"checkpoint_{what}s")()
    per_turn = []
    with turns_by_hand():
        while disks.background.turn():
            per_turn.append(asked)
            asked = 0
        disks.settle()
    assert max(per_turn) == 4
    assert sum(per_turn) == 2 * 10
    found = [OffsetCheckpoint(each, CHECKPOINTS[what], disks.filesystem).read() for each in ("/a", "/b")]
    assert found == [{TopicPartition("topic", index): 7 for index in range(start, 10, 2)} for start in (0, 1)]


def test_an_epoch_that_is_assigned_while_a_recovery_point_is_gathered_is_on_the_disk_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_checkpoints, "LOGS_TOGETHER", 1)
    disks, manager = a_manager()
    *_, last = many_logs(disks, manager, 5)
    renames = disks.watch("rename")
    with turns_by_hand():
        manager.checkpoint_recovery_points()
        for _ in range(3):
            assert disks.background.turn()
        append(last, epoch=8)
        last.flush()
        disks.settle()
    epochs = f"{last.directory}/leader-epoch-checkpoint.tmp"
    assert renames.index(epochs) < renames.index("/data/recovery-point-offset-checkpoint.tmp")
    assert OffsetCheckpoint("/data", CHECKPOINTS["recovery_point"], disks.filesystem).read()[last.topic_partition] == 1


def test_a_checkpoint_that_is_asked_for_again_while_it_waits_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_writes, "WRITES_PER_BATCH", 2)
    disks, manager = a_manager()
    first, *others = many_logs(disks, manager, 5)
    for log in others:
        append(log, epoch=8)
    manager.checkpoint_recovery_points()
    while disks.background.turn():
        pass
    append(first)
    first.flush()
    manager.checkpoint_recovery_points()
    renames = disks.watch("rename")
    disks.settle()
    assert renames.count("/data/recovery-point-offset-checkpoint.tmp") == 1
    assert OffsetCheckpoint("/data", CHECKPOINTS["recovery_point"], disks.filesystem).read()[first.topic_partition] == 1


def test_small_files_are_prepared_with_pauses() -> None:
    disks, manager = a_manager()
    logs = many_logs(disks, manager, 10)
    for log in logs:
        append(log, epoch=3)
    left, turns = [len(logs)], 0
    with turns_by_hand():
        while disks.background.turn():
            turns += 1
            left.append(sum(log.leader_epochs.is_dirty for log in logs))
    assert turns == len(left) - 1
    assert max(before - after for before, after in pairwise(left)) == 1
    assert not disks.filesystem.exists(f"{logs[0].directory}/leader-epoch-checkpoint.tmp")
    disks.settle()
    assert all(read_leader_epochs(f"{log.directory}/leader-epoch-checkpoint", disks.filesystem) == [(3, 0)] for log in logs)


def test_a_start_does_not_wait_for_the_epochs_that_began_before_it() -> None:
    disks, manager = a_manager()
    append(manager.get_or_create(T0, TOPIC_ID, is_new=True), a_batch(2), epoch=3)
    disks.settle()
    manager.shutdown()
    manager = disks.a_manager()
    manager.open()
    manager.identify(CLUSTER_ID, 0)
    manager.load()
    log = manager.get(T0)
    assert log is not None
    append(log, a_batch(1), epoch=7)
    calls = disks.watch("sync", "rename")
    manager.start()
    assert calls == []
    disks.settle()
    assert any("leader-epoch-checkpoint" in each for each in calls)


@pytest.mark.parametrize("moment", ["encoded", "written"])
def test_leader_epochs_that_memory_does_not_suffice_for_are_written_a_moment_later_and_the_recovery_point_after_them(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks, manager = a_manager()
    log = manager.get_or_create(T0, TOPIC_ID, is_new=True)
    disks.settle()
    renames = disks.watch("rename")
    run_out = run_out_of_memory(disks, moment, monkeypatch)
    append(log, epoch=3)
    log.flush()
    manager.checkpoint_recovery_points()
    disks.settle()
    assert run_out == [moment]
    assert renames == []
    disks.background.advance(1000)
    assert renames == [f"{log.directory}/leader-epoch-checkpoint.tmp", "/data/recovery-point-offset-checkpoint.tmp"]
    assert read_leader_epochs(log.leader_epochs.path, disks.filesystem) == [(3, 0)]
    assert not log.leader_epochs.is_dirty
    assert manager.offline_log_dirs == []


def run_out_of_memory(disks: Disks, moment: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Memory does not suffice once, when the next leader epochs are encoded or written. The list has that moment afterwards."""
    assert isinstance(disks.filesystem, FaultyFileSystem)
    watch = disks.filesystem.fails_if
    assert watch is not None
    encode = leader_epochs.encode_leader_epochs
    run_out: list[str] = []

    def step(name: str) -> None:
        if name == moment and not run_out:
            run_out.append(name)
            raise MemoryError

    def encoded(entries: list[tuple[int, int]]) -> bytes:
        step("encoded")
        return encode(entries)

    def written(name: str, path: str) -> bool:
        if name == "write" and path.endswith("leader-epoch-checkpoint.tmp"):
            step("written")
        return watch(name, path)

    monkeypatch.setattr(leader_epochs, "encode_leader_epochs", encoded)
    disks.filesystem.fails_if = written
    return run_out
