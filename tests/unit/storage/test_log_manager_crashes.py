"""A broker's storage that dies anywhere: at any call that changes the disk, and with the power gone at any moment.

The next start must find a log directory that opens, and in it all that was flushed.
"""

import contextlib
import os
import random

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.errors import StorageError
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_manager import LogManager
from tests.support.batches import a_batch
from tests.support.examples import number_of
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, topic
from tests.support.logs import append, read_all

T0, T1, T2 = (TopicPartition("topic", partition) for partition in range(3))
TOPIC_ID = bytes(range(16))
TOPIC = dict(topic(segment_bytes=3 * len(a_batch()), flush_messages=4))


class History:
    """What was promised: the bytes of each log below its recovery point, at the time of the last promise."""

    def __init__(self) -> None:
        self.flushed: dict[TopicPartition, tuple[int, bytes]] = {}

    def note(self, log: PartitionLog) -> None:
        if not log.is_closed and log.recovery_point > log.log_start_offset:
            content = log.read(log.log_start_offset, 1 << 20, log.recovery_point, False)
            self.flushed[log.topic_partition] = (log.log_start_offset, b"" if content.region is None else content.region.read())


def live(disks: Disks, history: History, rng: random.Random, steps: int) -> LogManager:
    """A broker's life of some steps: it creates, appends under changing epochs, truncates, deletes, checkpoints, forgets old data."""
    manager = disks.start()
    epochs: dict[TopicPartition, int] = {}
    for _ in range(steps):
        partition = rng.choice((T0, T0, T1))
        log = manager.get_or_create(partition, TOPIC_ID, is_new=True)
        act = rng.randrange(10)
        if act < 5:
            append(log, a_batch(rng.randint(1, 2), producer_id=-1), epoch=epochs.setdefault(partition, 0))
            log.update_high_watermark(log.log_end_offset)
        elif act == 5:
            epochs[partition] = epochs.get(partition, 0) + 1
            log.on_new_leader_epoch(epochs[partition])
        elif act == 6:
            log.increment_log_start_offset(rng.randint(log.log_start_offset, log.high_watermark), "test")
            history.flushed.pop(partition, None)
            manager.checkpoint_log_start_offsets()
        elif act == 7:
            manager.checkpoint_recovery_points()
            manager.checkpoint_high_watermarks()
        elif act == 8:
            manager.check_retention()
        else:
            manager.delete(partition)
            history.flushed.pop(partition, None)
            epochs.pop(partition, None)
        disks.background.advance(rng.choice((0, 1000, 70_000)))
        for each in manager.all_logs():
            history.note(each)
    return manager


def check(disks: Disks, history: History) -> None:
    """The next start finds everything that was promised, and works."""
    manager = disks.start()
    for partition, (start, flushed) in history.flushed.items():
        log = manager.get(partition)
        assert log is not None, partition
        assert log.log_start_offset <= start
        assert flushed in read_all(log)
    for log in manager.all_logs():
        epochs = [epoch for epoch, _ in log.leader_epochs.entries]
        assert epochs == sorted(epochs)
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
    append(manager.get_or_create(T2, TOPIC_ID, is_new=True), a_batch())
    manager.shutdown()
    assert disks.start().directories["/data"].had_clean_shutdown


def disks_on(filesystem: MemoryFileSystem | FaultyFileSystem) -> Disks:
    disks = Disks(filesystem)
    disks.topics["topic"] = TOPIC
    return disks


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60 if "OTTLA_SOAK" in os.environ else number_of(20)))
def test_a_power_cut_at_any_moment_loses_nothing_that_was_flushed(seed: int) -> None:
    rng = random.Random(seed)
    filesystem = MemoryFileSystem()
    history = History()
    live(disks_on(filesystem), history, rng, rng.randint(1, 40))
    check(disks_on(filesystem.after_power_cut(seed)), history)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60 if "OTTLA_SOAK" in os.environ else number_of(20)))
def test_a_power_cut_with_writes_under_way_loses_nothing_that_was_flushed(seed: int) -> None:
    rng = random.Random(seed)
    filesystem = MemoryFileSystem()
    history = History()
    disks = disks_on(filesystem)
    manager = live(disks, history, rng, rng.randint(1, 20))
    for each in list(manager.all_logs()):
        append(each, a_batch(), epoch=100)
    check(disks_on(filesystem.after_power_cut(seed)), history)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_a_disk_that_fails_from_any_call_on_leaves_a_directory_that_opens(part: int) -> None:
    for fail_at in range(part + 1, 400, 8 * 3):
        inner = MemoryFileSystem()
        filesystem = FaultyFileSystem(inner)
        filesystem.fail_at = fail_at
        history = History()
        disks = disks_on(filesystem)
        with contextlib.suppress(StorageError):
            manager = live(disks, history, random.Random(fail_at % 7), 25)
            manager.shutdown()
        # The process ends, its locks with it.
        inner._locked.clear()
        check(disks_on(inner), history)


def test_the_next_start_removes_files_that_were_being_written_and_no_others() -> None:
    disks = Disks()
    disks.crash(disks.start())
    ours = [
        ".kafka_cleanshutdown", "cleaner-offset-checkpoint", "log-start-offset-checkpoint", "meta.properties",
        "recovery-point-offset-checkpoint", "replication-offset-checkpoint",
    ]  # fmt: skip
    for name in [*ours, "somebody-elses"]:
        disks.filesystem.open(f"/data/{name}.tmp", create=True).write(b"half")
    disks.start()
    assert [name for name in disks.filesystem.list_directory("/data") if name.endswith(".tmp")] == ["somebody-elses.tmp"]
