"""What is synced when a broker stops."""

import pytest

from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.manager import log_closing
from tests.support.batches import a_batch
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, topic
from tests.support.logs import append


def test_a_log_of_many_segments_is_synced_with_everything() -> None:
    disks = Disks(FaultyFileSystem(MemoryFileSystem()))
    disks.topics["topic"] = dict(topic(segment_bytes=len(a_batch())))
    manager = disks.start()
    log = manager.get_or_create(TopicPartition("topic", 0), is_new=True)
    for _ in range(log_closing.MANY_SEGMENTS):
        append(log)
    disks.settle()
    log.flushes.truncate(0)  # as if no flush had come so far
    calls = disks.watch("sync", "sync_everything")
    manager.shutdown()
    assert calls.count("/data") == 2
    assert not [path for path in calls if "topic-" in path]
    assert disks.start().directories["/data"].had_clean_shutdown


def test_a_log_that_is_damaged_does_not_keep_others_from_being_closed() -> None:
    """A truncation has found the damage, and left the log unusable."""
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start()
    damaged = manager.get_or_create(TopicPartition("topic", 0), is_new=True, log_dir="/a")
    others = [
        manager.get_or_create(TopicPartition("topic", number), is_new=True, log_dir=log_dir) for number, log_dir in ((1, "/a"), (2, "/b"))
    ]
    for log in (damaged, *others):
        for _ in range(3):
            append(log, a_batch(2))
    damaged.segments.active.file.pwrite(b"\xff" * 70, len(a_batch(2)))
    with pytest.raises(RecordFormatError):
        damaged.truncations.truncate_to(3)
    manager.shutdown()
    assert [log.is_closed for log in others] == [True, True]
    manager = disks.start()
    assert (manager.directories["/a"].had_clean_shutdown, manager.directories["/b"].had_clean_shutdown) == (False, True)
    assert {str(log.topic_partition): log.log_end_offset for log in manager.all_logs()} == {"topic-0": 2, "topic-1": 6, "topic-2": 6}


def test_a_directory_that_refuses_a_write_while_the_broker_stops_is_not_marked_as_closed() -> None:
    """Even if it takes all later ones: the leader epochs on the disk are old ones."""
    filesystem = FaultyFileSystem(MemoryFileSystem())
    disks = Disks(filesystem)
    manager = disks.start()
    manager.on_log_dir_failure = lambda log_dir, reason: None  # takes it offline in later turns of the loop, which has stopped
    log = manager.get_or_create(TopicPartition("topic", 0), is_new=True)
    disks.settle()
    append(log, epoch=7)
    refused: list[str] = []

    def is_first(name: str, path: str) -> bool:
        if refused or name != "open" or "leader-epoch" not in path:
            return False
        refused.append(path)
        return True

    filesystem.fails_if = is_first
    manager.shutdown()
    assert refused
    assert not disks.start().directories["/data"].had_clean_shutdown
