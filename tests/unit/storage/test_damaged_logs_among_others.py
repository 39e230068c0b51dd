"""A log with damaged files among others: periodic work passes over it, and goes on with the others and in later rounds."""

from typing import Any

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.cleaner import compaction
from ottla.storage.errors import CorruptRecord
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.retention import delete_old_segments
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.upkeep import retention_checks
from tests.support.batches import a_batch
from tests.support.filesystems import MemoryFileSystem
from tests.support.log_manager import Disks, topic
from tests.support.logs import a_context, a_log, append, follow

DAMAGED, WHOLE = TopicPartition("topic", 0), TopicPartition("topic", 1)
BATCH = len(a_batch(timestamps=[1000]))


def two_logs(**config: str | int) -> tuple[Disks, LogManager]:
    """Logs of three segments each, of two old batches, after a restart. The index of one and what it could be rebuilt from are damaged."""
    memory = MemoryFileSystem()
    disks = Disks(memory)
    disks.topics["topic"] = dict(topic(segment_bytes=2 * BATCH, retention_ms=1000, **config))
    manager = disks.start()
    for topic_partition in (DAMAGED, WHOLE):
        log = manager.get_or_create(topic_partition, is_new=True)
        for _ in range(6):
            append(log, a_batch(timestamps=[1000]))
        log.update_high_watermark(6)
    manager.shutdown()
    memory.open(f"/data/{DAMAGED}/{0:020d}.timeindex").pwrite(b"damaged", 0)
    memory.open(f"/data/{DAMAGED}/{0:020d}.timeindex").truncate(7)
    memory.open(f"/data/{DAMAGED}/{0:020d}.log").pwrite(b"\xff" * 30, BATCH)
    return disks, disks.start()


def log_of(manager: LogManager, topic_partition: TopicPartition) -> PartitionLog:
    found = manager.get(topic_partition)
    assert found is not None
    return found


def test_retention_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    disks, manager = two_logs()
    manager.check_retention()
    disks.settle()
    assert "topic-0: its old segments cannot be deleted: " in caplog.text
    whole = log_of(manager, WHOLE)
    assert (log_of(manager, DAMAGED).log_start_offset, whole.log_start_offset) == (0, 6)
    append(whole, a_batch(timestamps=[1000]))
    whole.update_high_watermark(7)
    manager.check_retention()
    disks.settle()
    assert whole.log_start_offset == 7
    assert manager.offline_log_dirs == []


def test_the_cleaner_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    disks, manager = two_logs(cleanup_policy="compact,delete", min_cleanable_dirty_ratio=1)
    disks.settle()
    assert "topic-0: it cannot be cleaned and will grow" in caplog.text
    assert manager.cleaner.uncleanable_partitions("/data") == {DAMAGED}
    assert manager.cleaner.uncleanable_bytes("/data") == 4 * BATCH
    whole = log_of(manager, WHOLE)
    assert (log_of(manager, DAMAGED).log_start_offset, whole.log_start_offset) == (0, 6)
    append(whole, a_batch(timestamps=[1000]))
    whole.update_high_watermark(7)
    disks.background.advance(60_000)
    assert whole.log_start_offset == 7


@pytest.mark.parametrize("config", [{}, {"cleanup_policy": "compact,delete", "min_cleanable_dirty_ratio": 1}], ids=["retention", "cleaner"])
def test_a_fault_of_the_broker_with_one_log_ends_no_work_for_the_others(
    config: dict[str, str | int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def faulty(log: PartitionLog, now_ms: int, **how: Any) -> int:
        if log.topic_partition == DAMAGED:
            raise ValueError("a bug")
        return delete_old_segments(log, now_ms, **how)

    for module in (retention_checks, compaction):
        monkeypatch.setattr(module, "delete_old_segments", faulty)
    disks, manager = two_logs(**config)
    whole = log_of(manager, WHOLE)
    for end_offset in (6, 7):
        manager.check_retention()
        disks.background.advance(60_000)
        assert whole.log_start_offset == end_offset
        append(whole, a_batch(timestamps=[1000]))
        whole.update_high_watermark(end_offset + 1)
    assert "ValueError: a bug" in caplog.text
    assert manager.offline_log_dirs == []


def test_an_append_to_a_segment_whose_first_header_is_damaged_is_refused_as_damage() -> None:
    """The age of the segment is read from that header. Other partitions of the same request must not be affected."""
    config = {"index_interval_bytes": 1}
    log = a_log(**config)
    for _ in range(5):
        append(log, a_batch(2))
    log.flush()
    log.close()
    filesystem = log.context.filesystem
    filesystem.open([*log.segments][-1].path).pwrite(b"\xff" * 4, 8)
    again = a_log(a_context(filesystem), **config)
    assert again.log_end_offset == 10
    with pytest.raises(CorruptRecord):
        append(again, a_batch(2))
    with pytest.raises(CorruptRecord):
        follow(again, a_batch(2, base_offset=10, leader_epoch=0), 0)
    assert again.log_end_offset == 10
