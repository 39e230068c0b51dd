"""The log cleaner in a LogManager: what it takes, when it stops, what it remembers."""

import errno
import logging
from collections.abc import Callable
from itertools import pairwise
from typing import cast

import pytest

from ottla.protocol.records.batch import parse_header
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.cleaner.job import CleaningJob
from ottla.storage.cleaner.process import CleanerMessage, CleaningEnded
from ottla.storage.cleaner.task import CleaningTask
from ottla.storage.disk.checkpoint import CLEANER_OFFSET_CHECKPOINT, OffsetCheckpoint
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_manager import LogManager
from tests.support.batches import FIRST_TIMESTAMP
from tests.support.cleaners import InlineCleaner
from tests.support.cold_files import ColdFileSystem
from tests.support.compacted_logs import Writer, values_of
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, topic

ORDERS = TopicPartition("orders", 0)
USERS = TopicPartition("users", 0)
BACKOFF_MS = 15_000


class Cleaned:
    """A LogManager with two compacted topics, and the cleaners it made."""

    def __init__(self, filesystem: FileSystem | None = None, **config: str | int) -> None:
        self.disks = Disks(filesystem)
        self.disks.clock.move(FIRST_TIMESTAMP - self.disks.clock.now_ms())
        for name in ("orders", "users"):
            self.disks.topics[name] = dict(topic(cleanup_policy="compact", segment_bytes=500))
        self.cleaners: list[InlineCleaner] = []
        self.manager = self.start(**config)

    def start(self, **config: str | int) -> LogManager:
        self.manager = self.disks.a_manager(**config)
        self.manager.cleaner._new_worker = self._new_cleaner
        self.manager.open()
        self.manager.identify("cluster", 0)
        self.manager.load()
        self.manager.start()
        return self.manager

    def _new_cleaner(self) -> InlineCleaner:
        self.cleaners.append(InlineCleaner(self.disks.filesystem))
        return self.cleaners[-1]

    def log(self, topic_partition: TopicPartition = ORDERS) -> PartitionLog:
        return self.manager.get_or_create(topic_partition, is_new=True)

    def fill(self, topic_partition: TopicPartition = ORDERS, batches: int = 20, keys: int = 3) -> Writer:
        writer = Writer(self.log(topic_partition))
        for batch in range(batches):
            writer.write([(b"key-%d" % (batch % keys), b"value-%d" % batch), (b"other-%d" % (batch % keys), b"value-%d" % batch)])
        return writer

    def wait(self, milliseconds: int = BACKOFF_MS + 100) -> None:
        self.disks.background.advance(milliseconds)

    def checkpoint(self) -> dict[TopicPartition, int]:
        return OffsetCheckpoint("/data", CLEANER_OFFSET_CHECKPOINT, self.disks.filesystem).read()


def test_a_dirty_log_is_cleaned_and_keeps_its_latest_values() -> None:
    world = Cleaned()
    log = world.fill().log
    values, size = values_of(log), log.size_bytes
    world.wait()
    assert values_of(log) == values
    assert log.size_bytes < size / 2
    assert world.checkpoint() == {ORDERS: log.segments.active.base_offset}


def test_old_files_are_gone_after_the_delay() -> None:
    world = Cleaned()
    log = world.fill().log
    world.wait()
    assert any(name.endswith(".deleted") for name in world.disks.filesystem.list_directory(log.directory))
    world.wait(60_000)
    assert not [name for name in world.disks.filesystem.list_directory(log.directory) if name.endswith((".deleted", ".swap", ".cleaned"))]


def test_the_filthiest_log_comes_first() -> None:
    world = Cleaned()
    for topic_partition in (ORDERS, USERS):
        world.fill(topic_partition)
    world.wait()
    for topic_partition, batches in ((ORDERS, 40), (USERS, 60)):
        world.fill(topic_partition, batches)
    world.wait()
    assert [job.log for job in world.cleaners[0].jobs][2:] == ["users-0", "orders-0"]


def test_a_log_that_is_clean_enough_is_left_alone() -> None:
    world = Cleaned()
    world.disks.topics["orders"]["min.cleanable.dirty.ratio"] = "1.0"
    world.fill()
    world.wait()
    assert not world.cleaners


def test_what_is_older_than_the_longest_lag_is_cleaned_however_clean_the_log_is() -> None:
    world = Cleaned()
    world.disks.topics["orders"] |= {"min.cleanable.dirty.ratio": "1.0", "max.compaction.lag.ms": "60000"}
    world.fill()
    world.wait(30_000)
    assert not world.cleaners
    world.wait(60_000)
    assert len(world.cleaners) == 1


@pytest.mark.parametrize("lag", ["max.compaction.lag.ms", "min.compaction.lag.ms"])
def test_a_thread_reads_the_ages_of_segments_after_a_start(lag: str) -> None:
    filesystem = ColdFileSystem()
    world = Cleaned(filesystem)
    world.disks.topics["orders"] |= {"min.cleanable.dirty.ratio": "1.0" if lag.startswith("max") else "0.5", lag: "60000"}
    log = world.fill().log
    segments = len(log.segments)
    log.update_high_watermark(log.log_end_offset)
    world.manager.checkpoint_high_watermarks()
    world.disks.settle()
    world.manager.shutdown()
    filesystem.cached = {}
    world.disks.clock.move(120_000)
    world.start()
    work: list[str] = []
    submit = world.disks.background.submit

    def noting(name: str, run: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        work.append(name)
        submit(name, run, then)

    world.disks.background.submit = noting  # type: ignore[method-assign]  # to see what threads do
    world.wait()
    assert work.count("log-cleaner-warm") >= segments - 1
    world.wait()
    assert world.cleaners[0].jobs


def test_what_is_younger_than_the_shortest_lag_is_not_cleaned() -> None:
    world = Cleaned()
    world.disks.topics["orders"]["min.compaction.lag.ms"] = "60000"
    world.fill()
    world.wait(30_000)
    assert not world.cleaners
    world.wait(60_000)
    assert len(world.cleaners) == 1


def test_nothing_beyond_the_last_stable_offset_is_cleaned() -> None:
    world = Cleaned()
    writer = Writer(world.log())
    writer.write([(b"k", b"in a transaction")], producer_id=7, transactional=True)
    for _ in range(20):
        writer.write([(b"k", b"v")])
    world.wait()
    assert not world.cleaners
    writer.end(7, commit=True)
    world.wait()
    assert world.cleaners[0].jobs


def test_a_truncation_calls_the_cleaning_off_and_takes_the_checkpoint_back(caplog: pytest.LogCaptureFixture) -> None:
    world = Cleaned()
    log = world.fill().log
    world.wait()
    clean_to = world.checkpoint()[ORDERS]
    world.fill(batches=60)
    seen: list[tuple[dict[bytes | None, bytes | None], int, int | None, int]] = []

    def truncate() -> None:
        if not seen:
            log.truncations.truncate_to(clean_to - 4)
            seen.append((values_of(log), log.size_bytes, world.manager.cleaner.checkpoints.get(log), log.segments.active.base_offset))

    world.cleaners[0].before_read = truncate
    with caplog.at_level(logging.INFO):
        world.wait()
    values, size, checkpoint, active = seen[0]
    assert "orders-0: the cleaning is aborted: it was truncated" in caplog.text
    assert log.log_end_offset == clean_to - 4
    assert checkpoint == active < clean_to
    assert values_of(log) == values
    assert log.size_bytes <= size
    assert not [name for name in world.disks.filesystem.list_directory(log.directory) if name.endswith(".cleaned")]
    assert world.cleaners[0].is_closed


def test_a_deleted_log_is_forgotten() -> None:
    world = Cleaned()
    log = world.fill().log
    world.wait()
    world.fill(batches=60)
    world.cleaners[0].before_read = lambda: world.manager.delete(ORDERS) if world.manager.get(ORDERS) else None
    world.wait()
    assert world.checkpoint() == {}
    assert log.directory.endswith("-delete")
    world.wait(120_000)
    assert not world.disks.filesystem.exists(log.directory)


def test_a_paused_log_is_cleaned_when_it_is_resumed_as_often() -> None:
    world = Cleaned()
    world.fill()
    cleaner = world.manager.cleaner
    cleaner.pause_cleaning(ORDERS, "it moves")
    cleaner.pause_cleaning(ORDERS, "it moves")
    cleaner.resume_cleaning(ORDERS)
    world.wait()
    assert not world.cleaners
    cleaner.resume_cleaning(ORDERS)
    world.wait()
    assert world.cleaners[0].jobs


def test_a_log_that_is_not_compacted_any_more_is_not_cleaned_on() -> None:
    world = Cleaned()
    log = world.fill().log
    size = log.size_bytes
    first_read = iter([True])

    def change_policy() -> None:
        if next(first_read, False):
            world.disks.topics["orders"]["cleanup.policy"] = "delete"
            world.manager.update_config(log, world.disks.topic_config("orders"))

    cleaner = InlineCleaner(world.disks.filesystem)
    cleaner.before_read = change_policy
    world.manager.cleaner._new_worker = lambda: cleaner
    world.wait()
    assert cleaner.jobs
    assert log.size_bytes == size
    assert world.checkpoint() == {}


def test_a_log_that_cannot_be_cleaned_is_named_and_counted_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    world = Cleaned()
    log = world.fill().log
    world.fill(USERS)
    file = log.segments.first.file
    file.pwrite(b"\xff" * 20, 65)  # in the first record
    with caplog.at_level(logging.WARNING):
        world.wait()
    assert world.manager.cleaner.uncleanable_partitions("/data") == {ORDERS}
    assert world.manager.cleaner.uncleanable_bytes("/data") > 0
    assert "orders-0: it cannot be cleaned" in caplog.text
    assert "1 partitions of /data" in caplog.text
    first = parse_header(log.segments.first.file.pread(61, 0))
    assert f"the batch of offsets 0 to {first.last_offset} cannot be read" in caplog.text
    assert world.checkpoint().keys() == {USERS}
    tries = len(world.cleaners)
    world.wait(60_000)
    assert len(world.cleaners) == tries
    world.manager.delete(ORDERS)
    assert world.manager.cleaner.uncleanable_partitions("/data") == frozenset()


def test_a_log_that_kills_the_worker_is_given_up_after_three_tries(caplog: pytest.LogCaptureFixture) -> None:
    world = Cleaned()
    world.fill()

    class Dying(InlineCleaner):
        def poll(self) -> CleaningEnded:
            return CleaningEnded("the cleaner process died")

    def new_worker() -> Dying:
        world.cleaners.append(Dying(world.disks.filesystem))
        return cast("Dying", world.cleaners[-1])

    world.manager.cleaner._new_worker = new_worker
    with caplog.at_level(logging.WARNING):
        world.wait(200_000)
    assert len(world.cleaners) == 3
    assert world.manager.cleaner.uncleanable_partitions("/data") == {ORDERS}
    assert "3 times in a row" in caplog.text


class Troubled(Cleaned):
    """The cleanings of some logs end early. `started` has the logs in the order of their cleanings, with the time."""

    def __init__(self, *troubled: TopicPartition, names: tuple[str, ...] = ("orders", "users")) -> None:
        super().__init__()
        self.started: list[tuple[int, str]] = []
        for name in names:
            self.disks.topics[name] = dict(topic(cleanup_policy="compact", segment_bytes=500))
        filthiest_first = range(20 * len(names), 0, -20)
        for name, batches in zip(names, filthiest_first, strict=True):
            self.fill(TopicPartition(name, 0), batches)
        world, begin = self, self.disks.clock.now_ms()

        class Worker(InlineCleaner):
            def start(self, job: CleaningJob) -> None:
                self.name = job.log
                world.started.append((world.disks.clock.now_ms() - begin, self.name))
                super().start(job)

            def poll(self) -> CleanerMessage | None:
                return CleaningEnded("the cleaner process died") if self.name in map(str, troubled) else super().poll()

        self.manager.cleaner._new_worker = lambda: Worker(self.disks.filesystem)


def test_a_log_whose_cleaning_ends_early_does_not_keep_the_others_waiting() -> None:
    world = Troubled(ORDERS)
    world.wait(1000)
    assert [name for _, name in world.started] == ["orders-0", "users-0"]
    assert world.checkpoint().keys() == {USERS}
    world.wait(3 * BACKOFF_MS)
    tries = [at for at, name in world.started if name == "orders-0"]
    assert len(tries) == 3
    assert all(later - earlier >= BACKOFF_MS for earlier, later in pairwise(tries))


def test_where_a_second_cleaning_ends_early_all_wait() -> None:
    world = Troubled(ORDERS, USERS, names=("orders", "users", "payments"))
    world.wait(1000)
    assert [name for _, name in world.started] == ["orders-0", "users-0"]
    world.wait(3 * BACKOFF_MS)
    assert "payments-0" in [name for _, name in world.started]


@pytest.mark.parametrize("failing", ["poll", "put_in_place"])
def test_a_fault_while_a_log_is_cleaned_costs_one_try_and_no_worker(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Cleaned()
    log = world.fill().log
    values, size = values_of(log), log.size_bytes
    owner = InlineCleaner if failing == "poll" else CleaningTask
    faults = 0

    def fail(*_: object) -> None:
        nonlocal faults
        faults += 1
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(owner, failing, fail)
        world.wait(1000)
    assert faults == 1
    assert log.size_bytes == size
    assert world.cleaners[0].is_closed
    world.wait()
    assert values_of(log) == values
    assert log.size_bytes < size / 2
    assert world.manager.cleaner.uncleanable_partitions("/data") == frozenset()


def test_a_disk_that_fails_under_the_cleaner_takes_the_directory_offline() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    world = Cleaned(filesystem)
    world.fill()
    filesystem.fails_if = lambda name, path: name == "pwrite" and path.endswith(".cleaned")
    filesystem.error_number = errno.ENOSPC
    world.wait()
    assert world.manager.offline_log_dirs == ["/data"]


def test_compact_and_delete_logs_lose_old_segments_by_the_cleaner() -> None:
    world = Cleaned()
    world.disks.topics["orders"] |= {"cleanup.policy": "compact,delete", "retention.ms": "1000000"}
    log = world.fill(keys=1000).log
    world.wait()
    assert log.log_start_offset == 0
    world.wait(2_000_000)
    assert log.log_start_offset == log.log_end_offset == 40
    assert values_of(log) == {}


def test_deleted_records_of_a_compacted_log_go_with_their_segments() -> None:
    world = Cleaned()
    log = world.fill(keys=1000).log
    log.increment_log_start_offset(25, "asked for")
    world.wait()
    assert log.segments.first.base_offset <= 25 < log.segments.bases[1]


def test_a_checkpoint_beyond_the_log_makes_the_cleaner_begin_again(caplog: pytest.LogCaptureFixture) -> None:
    world = Cleaned()
    world.log()
    OffsetCheckpoint("/data", CLEANER_OFFSET_CHECKPOINT, world.disks.filesystem).write({ORDERS: 99})
    world.manager.shutdown()
    world.start()
    world.fill()
    with caplog.at_level(logging.WARNING):
        world.wait()
    assert "99, is beyond its end" in caplog.text
    assert world.checkpoint()[ORDERS] == world.log().segments.active.base_offset


def test_a_checkpoint_says_nothing_of_a_log_that_was_not_there_at_the_start() -> None:
    world = Cleaned()
    OffsetCheckpoint("/data", CLEANER_OFFSET_CHECKPOINT, world.disks.filesystem).write({ORDERS: 99})
    world.manager.shutdown()
    world.start()
    world.fill(USERS)
    world.wait()
    assert world.checkpoint() == {USERS: world.log(USERS).segments.active.base_offset}
    assert world.manager.cleaner.checkpoints.get(world.log(ORDERS)) is None


def test_how_far_a_log_is_clean_outlives_a_restart() -> None:
    world = Cleaned()
    world.fill()
    world.wait()
    clean = world.checkpoint()
    world.manager.shutdown()
    assert all(cleaner.is_closed for cleaner in world.cleaners)
    world.start()
    world.wait()
    assert len(world.cleaners) == 1
    assert world.checkpoint() == clean


def test_a_garbled_checkpoint_takes_its_directory_offline_and_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    world = Cleaned()
    world.manager.shutdown()
    world.disks.filesystem.open(f"/data/{CLEANER_OFFSET_CHECKPOINT}", create=True).write(b"what?")
    world.start()
    assert world.manager.offline_log_dirs == ["/data"]
    (line,) = [each.message for each in caplog.records if each.name == "ottla.storage.manager.log_directories"]
    assert line.count(CLEANER_OFFSET_CHECKPOINT) == 1


def test_without_log_cleaner_enable_nothing_is_cleaned() -> None:
    world = Cleaned(log_cleaner_enable="false")
    world.fill()
    world.wait()
    assert not world.cleaners


def test_several_threads_clean_several_logs() -> None:
    world = Cleaned(log_cleaner_threads=2)
    for topic_partition in (ORDERS, USERS):
        world.fill(topic_partition)
    world.wait()
    assert len(world.cleaners) == 2
    assert sorted(cleaner.jobs[0].log for cleaner in world.cleaners) == ["orders-0", "users-0"]
    assert {cleaner.jobs[0].map_bytes for cleaner in world.cleaners} == {64 * 1024 * 1024}


def test_a_changed_configuration_holds_from_the_next_cleaning_on_which_begins_anew() -> None:
    world = Cleaned()
    world.fill()
    dynamic = {"log.cleaner.io.max.bytes.per.second": "1000000.0", "log.cleaner.threads": "2"}
    first_read = iter([True])

    def change() -> None:
        if next(first_read, False):
            world.disks.broker.update_dynamic({}, dynamic)

    cleaner = InlineCleaner(world.disks.filesystem)
    cleaner.before_read = change
    world.manager.cleaner._new_worker = lambda: cleaner
    world.wait()
    assert [job.max_bytes_per_second for job in cleaner.jobs] == [1.7976931348623157e308, 500_000]
    assert world.checkpoint()


def test_a_worker_that_has_nothing_to_do_for_half_a_minute_is_let_go() -> None:
    world = Cleaned()
    world.fill()
    world.wait()
    closed = [world.cleaners[0].is_closed]
    world.wait(60_000)
    closed.append(world.cleaners[0].is_closed)
    assert closed == [False, True]
    world.fill(batches=60)
    world.wait()
    assert len(world.cleaners) == 2
