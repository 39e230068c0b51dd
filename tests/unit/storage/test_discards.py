"""Segments that retention takes, whose files a thread renames while the event loop goes on."""

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.log.partition_log import PartitionLog
from tests.support.batches import a_batch
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, topic
from tests.support.logs import append

T0 = TopicPartition("orders", 0)
BATCH = len(a_batch(1, producer_id=7))


class Started:
    """A log of five segments of one record each, of which retention takes the first three; threads run when the test says so."""

    def __init__(self, **config: str | int) -> None:
        self.filesystem = FaultyFileSystem(MemoryFileSystem())
        self.disks = Disks(self.filesystem, "/data")
        self.disks.topics["orders"] = dict(topic(segment_bytes=BATCH, retention_bytes=2 * BATCH, retention_ms=-1, **config))
        self.manager = self.disks.start()
        self.log = self.manager.get_or_create(T0, is_new=True)
        for sequence in range(5):
            append(self.log, a_batch(1, producer_id=7, base_sequence=sequence))
        self.log.update_high_watermark(5)
        self.disks.settle()

    def names(self, suffix: str) -> list[int]:
        """Offsets in the names of the files that end so."""
        found = self.filesystem.list_directory(self.log.directory)
        return [int(name.removesuffix(suffix)) for name in found if name.endswith(suffix)]

    def restart(self) -> PartitionLog:
        self.disks.crash(self.manager)
        self.disks.background.work.clear()
        self.disks.background.timers.clear()
        found = self.disks.start().get(T0)
        assert found is not None
        return found


def test_the_loop_renames_nothing() -> None:
    started = Started()
    calls = started.disks.watch("rename", "open", "unlink")
    started.manager.check_retention()
    assert not calls
    assert started.log.segments.bases == [3, 4]
    assert started.log.log_start_offset == 3
    started.disks.settle()
    assert started.names(".log") == [3, 4]
    assert started.names(".log.deleted") == started.names(".index.deleted") == started.names(".timeindex.deleted") == [0, 1, 2]
    assert started.names(".snapshot.deleted") == [1, 2]
    assert started.log.discards.in_progress == []
    started.disks.background.advance(60_000)
    assert not [name for name in started.filesystem.list_directory(started.log.directory) if name.endswith(".deleted")]


def test_a_crash_before_the_renames_leaves_segments_that_go_again() -> None:
    started = Started()
    started.manager.check_retention()
    found = started.restart()
    assert found.segments.bases == [0, 1, 2, 3, 4]
    assert found.log_end_offset == 5


@pytest.mark.parametrize("renamed", range(1, 10))
def test_a_crash_amid_the_renames_leaves_a_log_without_a_hole(renamed: int) -> None:
    started = Started()
    started.manager.check_retention()
    left = renamed

    def stop(name: str, path: str) -> bool:
        nonlocal left
        left -= name == "rename" and started.filesystem.exists(path)
        return left < 0

    started.filesystem.fails_if = stop
    started.disks.settle()
    started.filesystem.fails_if = None
    found = started.restart()
    assert found.log_end_offset == 5
    assert found.segments.bases == list(range((renamed + 2) // 3, 5))


def test_a_log_start_offset_that_was_written_down_stays_so_until_the_files_are_out_of_sight() -> None:
    started = Started()
    started.log.increment_log_start_offset(3, "DeleteRecords")
    started.manager.checkpoint_log_start_offsets()
    started.disks.settle()
    started.manager.check_retention()
    started.manager.checkpoint_log_start_offsets()
    mine = [work for work in started.disks.background.work if work[0].startswith("discard-segments")]
    started.disks.background.work = []
    while started.disks.background.turn() or started.disks.background.work:
        started.disks.background.run_work()
    assert mine
    assert started.restart().log_start_offset == 3


def test_a_log_that_begins_anew_at_the_offset_of_a_segment_that_went_keeps_its_file() -> None:
    started = Started()
    started.manager.check_retention()
    started.log.truncations.truncate_fully_and_start_at(1)
    append(started.log, a_batch(1))
    started.disks.background.advance(60_000)
    assert started.names(".log") == [1]
    assert started.restart().log_end_offset == 2


def test_a_log_that_is_cut_keeps_what_is_left() -> None:
    started = Started()
    started.manager.check_retention()
    started.log.truncations.truncate_in_thread(4, lambda error: None)
    started.disks.background.work.reverse()  # threads do not wait for each other
    started.disks.background.advance(60_000)
    assert started.names(".log") == [3, 4]
    assert not [name for name in started.filesystem.list_directory(started.log.directory) if name.endswith(".deleted")]


def test_a_log_that_is_deleted_meanwhile_takes_them_along() -> None:
    started = Started()
    started.manager.check_retention()
    started.manager.delete(T0)
    new = started.manager.get_or_create(T0, is_new=True)
    append(new, a_batch(1))
    started.disks.background.advance(120_000)
    assert [name for name in started.filesystem.list_directory("/data") if name.startswith("orders")] == ["orders-0"]
    assert new.segments.bases == [0]
    assert started.filesystem.exists(new.segments.active.path)
    assert started.manager.offline_log_dirs == []


def test_a_log_whose_files_are_gone_before_they_are_renamed_is_no_failure_of_the_disk() -> None:
    started = Started()
    started.manager.check_retention()
    mine = started.disks.background.work
    started.disks.background.work = []
    started.manager.delete(T0)
    started.disks.background.advance(60_000)
    started.disks.background.work = mine
    started.disks.background.advance(60_000)
    assert started.manager.offline_log_dirs == []


def test_a_clean_stop_leaves_none_that_the_next_start_would_take_for_a_part_of_the_log() -> None:
    started = Started()
    started.manager.check_retention()
    started.manager.shutdown()
    found = started.disks.start().get(T0)
    assert found is not None
    assert found.segments.bases == [3, 4]
    assert found.log_start_offset == 3
