"""Every call of the file system that changes something and is made on the event loop, by what happens to a log.

Any of them may wait for the journal of the file system, on a busy disk for a tenth of a second. What is listed here cannot wait for a
thread, or is not worth one; what is not listed belongs into a thread.
"""

import re
from collections.abc import Callable

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.manager.new_logs import NEW_LOGS, NewLog
from tests.support.batches import FIRST_TIMESTAMP, a_batch
from tests.support.cleaners import InlineCleaner
from tests.support.compacted_logs import Writer
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, a_future_log, topic
from tests.support.logs import append, follow

T0 = TopicPartition("orders", 0)
TOPIC_ID = b"id of the topic."
BATCH = len(a_batch(1, producer_id=7))


class Watched:
    """Five segments of one record in /a, and /b beside it. `seen` has the call and the name of the file, without its numbers."""

    def __init__(self, **config: str | int) -> None:
        memory = MemoryFileSystem()
        self.filesystem = FaultyFileSystem(memory)
        self.disks = Disks(self.filesystem, "/a,/b")
        self.disks.makes_topic_ids_durable_at_once = False
        self.disks.clock.move(FIRST_TIMESTAMP - self.disks.clock.now_ms())
        self.disks.topics["orders"] = dict(topic(**{"segment_bytes": BATCH, "index_interval_bytes": 0, "retention_ms": -1, **config}))
        self.manager = self.disks.start()
        self.manager.cleaner._new_worker = lambda: InlineCleaner(memory)  # a process of its own
        self.background = self.disks.background
        self.background.done_at_once.clear()
        self.log = self.manager.get_or_create(T0, TOPIC_ID, is_new=True, log_dir="/a")
        self.settle()
        self.seen: set[tuple[str, str]] = set()
        self._in_thread = False
        submit = self.background.submit

        def in_thread(name: str, work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
            def run() -> None:
                self._in_thread = True
                try:
                    work()
                finally:
                    self._in_thread = False

            submit(name, run, then)

        self.background.submit = self.manager.context.submit = in_thread  # type: ignore[method-assign]  # to tell who calls
        self.filesystem.fails_if = self._note

    def _note(self, name: str, path: str) -> bool:
        if not self._in_thread:
            self.seen.add((name, re.sub(r"[0-9a-f]{32}", "ID", re.sub(r"\d{20}", "N", path.rpartition("/")[2]))))
        return False

    def settle(self) -> None:
        self.background.advance(100)

    def fill(self) -> None:
        """Five segments, whose rolls are done and which are flushed; what that takes is not counted."""
        for sequence in range(5):
            append(self.log, a_batch(1, producer_id=7, base_sequence=sequence))
        self.log.update_high_watermark(5)
        self.settle()
        self.seen.clear()


def a_roll() -> Watched:
    watched = Watched()
    append(watched.log, a_batch(1, producer_id=7))
    watched.settle()
    watched.seen.clear()
    append(watched.log, a_batch(1, producer_id=7, base_sequence=1))
    return watched


def what_follows_a_roll() -> Watched:
    watched = a_roll()
    watched.seen.clear()
    return watched


def a_flush() -> Watched:
    watched = Watched(flush_ms=1000, segment_bytes=10 * BATCH)
    watched.fill()
    watched.disks.clock.move(10_000)
    watched.manager.flush_dirty_logs()
    watched.settle()
    assert watched.log.recovery_point == 5
    return watched


def checkpoints() -> Watched:
    watched = Watched()
    watched.fill()
    watched.log.on_new_leader_epoch(3)
    watched.manager.checkpoint_high_watermarks()
    watched.manager.checkpoint_recovery_points()
    watched.manager.checkpoint_log_start_offsets()
    return watched


def retention() -> Watched:
    watched = Watched(retention_bytes=2 * BATCH)
    watched.fill()
    watched.manager.check_retention()
    assert len(watched.log.segments) == 2
    return watched


def delete_records() -> Watched:
    watched = Watched()
    watched.fill()
    watched.log.increment_log_start_offset(3, "DeleteRecords")
    watched.manager.check_retention()
    assert len(watched.log.segments) == 2
    return watched


def a_deletion() -> Watched:
    watched = Watched()
    watched.fill()
    watched.manager.delete(T0)
    return watched


def a_creation() -> Watched:
    watched = Watched()
    watched.manager.new_logs.make([NewLog(TopicPartition("orders", 1), TOPIC_ID, is_new=True)], lambda error: None)
    watched.settle()
    assert watched.manager.get(TopicPartition("orders", 1)) is not None
    return watched


def a_truncation() -> Watched:
    watched = Watched()
    watched.fill()
    watched.log.truncations.truncate_in_thread(2, lambda error: None)
    return watched


def a_log_that_begins_anew() -> Watched:
    watched = Watched()
    watched.fill()
    watched.log.truncations.truncate_fully_in_thread(100, lambda error: None)
    return watched


def a_move() -> Watched:
    watched = Watched()
    watched.fill()
    watched.background.done_at_once.add(NEW_LOGS)
    future = a_future_log(watched.manager, watched.log, "/b")
    # What appends and rolls take is listed by itself.
    for segment in list(watched.log.segments):
        follow(future, segment.file.pread(BATCH, 0), 0)
    watched.settle()
    future.update_high_watermark(5)
    watched.seen.clear()
    watched.manager.moves.start(T0)
    watched.settle()
    assert watched.manager.get(T0) is future
    return watched


def a_cleaning() -> Watched:
    """Two of them: the second puts together what the first left of many segments."""
    watched = Watched(cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    writer = Writer(watched.log)
    for _ in range(2):
        for number in range(20):
            writer.write([(b"key", b"%d" % number)], producer_id=7)
        watched.settle()
        watched.seen.clear()
        watched.background.advance(60_000)
    assert len(watched.log.segments) < 40
    return watched


NEW_SEGMENT = {("link", f"N{suffix}") for suffix in (".index", ".timeindex", ".snapshot")}
ENDED_SEGMENT = {(name, f"N{suffix}") for name in ("open", "truncate") for suffix in (".index", ".timeindex")}

EVENTS: list[tuple[Callable[[], Watched], set[tuple[str, str]]]] = [
    # The append waits for it: what it writes has to have a name when it is acknowledged, or a killed process would lose it. The name has
    # the offset, so it cannot be made before. On ext4 60 µs; beside a process that writes and syncs all the time, one in a hundred 2 ms.
    (a_roll, {("link", "N.log")}),
    # One log in each turn; 0.4 ms, of state that reads and appends share.
    (
        what_follows_a_roll,
        NEW_SEGMENT | ENDED_SEGMENT | {("pwrite", "N.timeindex"), ("open", "N.snapshot"), ("write", "N.snapshot")},
    ),
    # Writes to the page cache, and no change of names.
    (a_flush, {(name, f"N{suffix}") for name in ("open", "pwrite") for suffix in (".index", ".timeindex")}),
    (checkpoints, set()),
    (retention, set()),
    (delete_records, set()),
    (a_deletion, set()),
    (a_creation, set()),
    (a_truncation, set()),
    (a_log_that_begins_anew, set()),
    # Nothing may be appended between the two, or a crash would lose what was acknowledged. Once for each move, however many segments: on
    # ext4 60 µs, beside a process that writes and syncs all the time one in a hundred 20 ms. In a thread they would have producers of the
    # partition wait or come again each time, and who deletes or creates it meanwhile find a directory that is about to get its name.
    (a_move, {("rename", "orders-0.ID-future"), ("rename", "orders-0")}),
    (a_cleaning, set()),
]


@pytest.mark.parametrize(("event", "allowed"), EVENTS, ids=[event.__name__ for event, _ in EVENTS])
def test_the_loop_asks_nothing_else_of_the_disk(event: Callable[[], Watched], allowed: set[tuple[str, str]]) -> None:
    watched = event()
    if event is not a_roll:
        watched.background.advance(2 * 60_000)
    assert watched.seen == allowed
