"""Which segments retention takes: Kafka's UnifiedLog.deleteOldSegments, table by table; and that LogManager asks in time."""

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.retention import DELETED_TOGETHER, delete_old_segments
from tests.support.background import carry_out
from tests.support.batches import FIRST_TIMESTAMP, a_batch
from tests.support.cold_files import ColdFileSystem
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, topic
from tests.support.logs import a_config, a_log, append
from tests.support.pauses import turns_by_hand

BATCH = len(a_batch())
HOUR_MS = 3_600_000


def segments(log: PartitionLog) -> list[int]:
    """Base offsets of the segments that hold something."""
    return [segment.base_offset for segment in log.segments if segment.size]


def filled(*, high_watermark: int = 5, **config: str | int) -> PartitionLog:
    """Five segments of one record each, an hour apart, of which the last is active."""
    config = {"retention_ms": -1, **config}
    log = a_log(segment_bytes=BATCH)
    log.update_config(a_config(segment_bytes=BATCH, **config))
    for hour in range(5):
        append(log, a_batch(timestamps=[FIRST_TIMESTAMP + hour * HOUR_MS]), now_ms=FIRST_TIMESTAMP + hour * HOUR_MS)
    log.update_high_watermark(high_watermark)
    return log


# retention.ms, hours after the first record, segments that stay
BY_TIME = [
    pytest.param(-1, 10_000, [0, 1, 2, 3, 4], id="no limit"),
    pytest.param(HOUR_MS, 1, [0, 1, 2, 3, 4], id="exactly as old as allowed"),
    pytest.param(HOUR_MS, 2, [1, 2, 3, 4], id="the first is older"),
    pytest.param(HOUR_MS, 4, [3, 4], id="three are older"),
    pytest.param(HOUR_MS, 100, [], id="the active one too"),
    pytest.param(0, 4, [4], id="keep nothing of the past"),
]


@pytest.mark.parametrize(("retention_ms", "hours", "left"), BY_TIME)
def test_segments_go_when_their_newest_record_is_older_than_retention_ms(retention_ms: int, hours: int, left: list[int]) -> None:
    log = filled(retention_ms=retention_ms)
    deleted = delete_old_segments(log, FIRST_TIMESTAMP + hours * HOUR_MS)
    assert segments(log) == left
    assert deleted == 5 - len(left)
    assert log.log_start_offset == (left[0] if left else 5)
    assert log.log_end_offset == 5


# retention.bytes in batches and odd bytes, segments that stay
BY_SIZE = [
    pytest.param(-1, [0, 1, 2, 3, 4], id="no limit"),
    pytest.param(5 * BATCH, [0, 1, 2, 3, 4], id="just fits"),
    pytest.param(5 * BATCH - 1, [0, 1, 2, 3, 4], id="a byte too many is not a segment too many"),
    pytest.param(4 * BATCH, [1, 2, 3, 4], id="one too many"),
    pytest.param(2 * BATCH + 1, [2, 3, 4], id="two too many, nearly three"),
    pytest.param(0, [], id="keep nothing"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("retention_bytes", "left"), BY_SIZE)
def test_segments_go_as_long_as_the_rest_has_retention_bytes(retention_bytes: int, left: list[int]) -> None:
    log = filled(retention_bytes=retention_bytes)
    delete_old_segments(log, FIRST_TIMESTAMP)
    assert segments(log) == left


@pytest.mark.parametrize(("high_watermark", "left"), [(0, [0, 1, 2, 3, 4]), (1, [1, 2, 3, 4]), (3, [3, 4]), (4, [4]), (5, [])])
def test_nothing_at_or_above_the_high_watermark_goes(high_watermark: int, left: list[int]) -> None:
    log = filled(high_watermark=high_watermark, retention_ms=1)
    delete_old_segments(log, FIRST_TIMESTAMP + 1000 * HOUR_MS)
    assert segments(log) == left


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize(("log_start_offset", "left"), [(0, [0, 1, 2, 3, 4]), (1, [1, 2, 3, 4]), (4, [4]), (5, [4])])
def test_segments_below_the_log_start_offset_go_under_any_policy(policy: str, log_start_offset: int, left: list[int]) -> None:
    log = filled(cleanup_policy=policy)
    log.increment_log_start_offset(log_start_offset, "test")
    delete_old_segments(log, FIRST_TIMESTAMP)
    assert segments(log) == left
    assert log.log_start_offset == log_start_offset


@pytest.mark.parametrize(("policy", "left"), [("compact", [0, 1, 2, 3, 4]), ("compact,delete", [])])
def test_compacted_topics_lose_old_segments_only_if_they_also_delete(policy: str, left: list[int]) -> None:
    log = filled(cleanup_policy=policy, retention_ms=1)
    delete_old_segments(log, FIRST_TIMESTAMP + 1000 * HOUR_MS)
    assert segments(log) == left


def test_an_empty_log_has_nothing_to_lose() -> None:
    log = a_log(retention_ms=0, retention_bytes=0)
    assert delete_old_segments(log, FIRST_TIMESTAMP + 1000 * HOUR_MS) == 0


def test_the_manager_looks_at_every_log_in_slices() -> None:
    disks = Disks()
    disks.topics["topic"] = dict(topic(retention_ms=1000))
    manager = disks.start(log_retention_check_interval_ms=60_000)
    logs = [manager.get_or_create(TopicPartition("topic", partition), is_new=True) for partition in range(120)]
    for log in logs:
        append(log)
        log.update_high_watermark(1)
    disks.background.advance(29_000)
    assert [log.log_start_offset for log in logs] == [0] * 120
    manager.delete(logs[7].topic_partition)
    disks.background.advance(2000)
    assert [log.log_start_offset for log in logs] == [1] * 7 + [0] + [1] * 112


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_only_one_log_at_a_time_loses_all_that_it_has(policy: str) -> None:
    disks = Disks()
    disks.topics["topic"] = dict(topic(retention_ms=1000, cleanup_policy=policy))
    manager = disks.start(log_retention_check_interval_ms=60_000)
    logs = [manager.get_or_create(TopicPartition("topic", partition), is_new=True) for partition in range(30)]
    for log in logs:
        append(log, a_batch(key=b"k"))
        log.update_high_watermark(1)
    disks.clock.move(31_000)
    most = before = 0
    with turns_by_hand():
        while before < len(logs):
            assert disks.background.turn()
            submitted, disks.background.work = disks.background.work, []
            for _, work, then in submitted:
                carry_out(work, then)
            gone = sum(log.log_start_offset for log in logs)
            most, before = max(most, gone - before), gone
        assert most == 1


def test_a_log_loses_many_segments_in_slices() -> None:
    disks = Disks()
    disks.topics["topic"] = dict(topic(segment_bytes=len(a_batch()), retention_ms=1))
    manager = disks.start()
    log = manager.get_or_create(TopicPartition("topic", 0), is_new=True)
    for _ in range(70):
        append(log, a_batch(timestamps=[1000]))
    log.update_high_watermark(log.log_end_offset)
    disks.settle()
    with turns_by_hand():
        manager.check_retention()
        assert log.segments.first.base_offset == DELETED_TOGETHER
        disks.settle()
    assert (len(log.segments), log.log_start_offset) == (1, 70)


def test_no_segment_is_deleted_once_the_background_is_closed() -> None:
    disks = Disks()
    disks.topics["topic"] = dict(topic(segment_bytes=len(a_batch()), retention_ms=1))
    manager = disks.start()
    log = manager.get_or_create(TopicPartition("topic", 0), is_new=True)
    for _ in range(70):
        append(log, a_batch(timestamps=[1000]))
    log.update_high_watermark(log.log_end_offset)
    disks.settle()
    with turns_by_hand() as loop:
        manager.check_retention()
        disks.background.is_closed = True  # a thread closes the logs from here on
        while loop.turn():
            pass
    assert log.segments.first.base_offset == DELETED_TOGETHER


def test_a_thread_reads_how_old_segments_are() -> None:
    disks = Disks(ColdFileSystem())
    assert isinstance(disks.filesystem, ColdFileSystem)
    disks.topics["topic"] = dict(topic(segment_bytes=2 * len(a_batch()), retention_ms=1000))
    manager = disks.start()
    log = manager.get_or_create(TopicPartition("topic", 0), is_new=True)
    for _ in range(10):
        append(log, a_batch(timestamps=[1000]))
    log.update_high_watermark(log.log_end_offset)
    manager.shutdown()
    manager = disks.start()
    found = manager.get(TopicPartition("topic", 0))
    assert found is not None
    found.update_high_watermark(found.log_end_offset)
    disks.settle()
    disks.filesystem.cached = {}
    manager.check_retention()
    assert len(found.segments) == 5
    assert [name for name, _, _ in disks.background.work] == ["log-retention"]
    disks.settle()
    assert len(found.segments) == 1


def test_a_disk_that_refuses_a_deletion_takes_its_directory_offline() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    disks = Disks(filesystem, log_dirs="/a,/b")
    disks.topics["topic"] = dict(topic(retention_ms=1000))
    manager = disks.start()
    for partition in range(2):
        log = manager.get_or_create(TopicPartition("topic", partition), is_new=True)
        append(log)
        log.update_high_watermark(1)
    filesystem.fails_if = lambda name, path: name == "rename" and path.startswith("/a")
    disks.clock.move(HOUR_MS)
    manager.check_retention()
    disks.settle()
    assert manager.offline_log_dirs == ["/a"]
    assert [log.log_start_offset for log in manager.all_logs()] == [1]
