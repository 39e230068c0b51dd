"""Files that are made ahead of the next roll."""

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.segment.spare_files import SPARE_FILES, SpareFiles
from tests.support.background import ManualBackground
from tests.support.batches import a_batch
from tests.support.clocks import ManualClock
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks
from tests.support.logs import append, read_all

SUFFIXES = (".log", ".index", ".timeindex", ".snapshot")


def a_broker() -> tuple[Disks, PartitionLog]:
    disks = Disks(FaultyFileSystem(MemoryFileSystem()))
    manager = disks.start()
    disks.settle()
    return disks, manager.get_or_create(TopicPartition("orders", 0), is_new=True)


def roll(log: PartitionLog) -> None:
    append(log, a_batch())
    log.roll()


def test_a_roll_names_files_that_are_there() -> None:
    disks, log = a_broker()
    calls = disks.watch("link", "open_unnamed")
    roll(log)
    names = ["00000000000000000001" + suffix for suffix in SUFFIXES]
    assert calls == [f"{log.directory}/{names[0]}"]
    log.rolls.finish()
    assert calls == [f"{log.directory}/{name}" for name in names]
    assert set(names) < set(disks.filesystem.list_directory(log.directory))
    append(log, a_batch())
    assert len(read_all(log)) == 2 * len(a_batch())


def test_a_thread_makes_others_for_those_that_were_taken() -> None:
    disks, log = a_broker()
    roll(log)
    log.rolls.finish()
    calls = disks.watch("open_unnamed")
    disks.settle()
    assert calls == ["/data"] * len(SUFFIXES)


def test_when_none_is_left_a_roll_makes_its_own() -> None:
    disks, log = a_broker()
    calls = disks.watch("link", "open_unnamed")
    for _ in range(SPARE_FILES + 1):
        roll(log)
    assert len(calls) == SPARE_FILES
    assert len(log.segments) == SPARE_FILES + 2


def test_a_roll_goes_on_when_a_file_cannot_be_named() -> None:
    disks, log = a_broker()
    assert isinstance(disks.filesystem, FaultyFileSystem)
    disks.filesystem.fails_if = lambda name, path: name == "link"
    roll(log)
    append(log, a_batch())
    assert log.segments.active.base_offset == 1


def test_a_file_system_without_such_files_is_asked_once_per_roll() -> None:
    background = ManualBackground(ManualClock())
    filesystem = MemoryFileSystem()
    filesystem.has_unnamed_files = False
    filesystem.make_directory("/data")
    spare = SpareFiles(filesystem, background)
    spare.fill("/data")
    background.run_work()
    assert spare.take("/data", "/data/a") is None
    assert filesystem.list_directory("/data") == []
    assert len(background.work) == 1


def test_an_offline_directory_has_none() -> None:
    disks = Disks(FaultyFileSystem(MemoryFileSystem()), "/failed,/live")
    manager = disks.start()
    disks.settle()
    manager.handle_log_dir_failure("/failed")
    calls = disks.watch("link")
    for log_dir in ("/failed", "/live"):
        manager.context.take_spare_file(log_dir, f"{log_dir}/file")
    assert calls == ["/live/file"]
