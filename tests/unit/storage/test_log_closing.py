"""What is synced when a broker stops."""

from storage.disk.topic_partition import TopicPartition
from storage.manager import log_closing
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
    log.recovery_point = 0  # as if no flush had come so far
    calls = disks.watch("sync", "sync_everything")
    manager.shutdown()
    assert calls.count("/data") == 2
    assert not [path for path in calls if "topic-" in path]
    assert disks.start().directories["/data"].had_clean_shutdown
