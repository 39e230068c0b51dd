"""The share partitions of a leader: how long the locks of their records last, and what is known of them without members."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.config.share_offset_reset import LATEST
from ottla.coordination.shares import led_partitions
from ottla.coordination.shares.led_partitions import LedPartition, LedPartitions
from ottla.coordination.shares.partition import ShareRules
from ottla.coordination.shares.record_states import Acknowledgement, Acquired, AcquireMode, Extent
from ottla.coordination.shares.settings import ShareSettings
from ottla.coordination.shares.state.coordinator import StateResult
from ottla.coordination.shares.state.stored_state import NO_OFFSET, SharePartitionKey
from ottla.coordination.shares.state_access import StateAccess
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.waiters import Waiters
from ottla.replication.waiting.timing_wheel import TimingWheel
from ottla.storage.log.context import MAX_LINES
from ottla.storage.log.reads import OffsetAndTimestamp
from ottla.storage.segment.cold_lookups import ColdRead, NotCached
from tests.support.timers import FakeTime

LOCK_MS = 10_000
HOUR_MS = 3_600_000


class Bench:
    """The leader of one partition with ten records. Its coordinator answers at once."""

    def __init__(self, start_offset: int = 0) -> None:
        self.time = FakeTime()
        self.answer = StateResult(start_offset=start_offset)
        self.wall_shift_ms = 0
        self.reads_committed = False
        self.reset = LATEST
        wheel = TimingWheel(self.time.clock, self.time.call_later)
        settings = SimpleNamespace(
            rules_of=lambda group_id: ShareRules(lock_ms=LOCK_MS),
            offset_reset=lambda group_id: self.reset,
            reads_committed=lambda group_id: self.reads_committed,
        )
        access = SimpleNamespace(ask=lambda question, reply: reply(self.answer))
        self.led_partitions = LedPartitions(cast("ShareSettings", settings), cast("StateAccess", access), wheel, self)
        self.log = SimpleNamespace(log_start_offset=0, high_watermark=0, last_stable_offset=0)
        self.waiters, self.stable_waiters = Waiters(), Waiters()
        facts = SimpleNamespace(
            topic_partition=TopicPartition("t", 0), leader_epoch=0, log=self.log, waiters=self.waiters, stable_waiters=self.stable_waiters
        )
        self.partition = cast("Partition", facts)
        self.open()
        self.log.high_watermark = 10

    def open(self) -> None:
        """The first fetch of the group, or that after a time without sessions."""
        opened: list[LedPartition] = []
        self.led_partitions.on_group_idle("g")
        self.led_partitions.open(SharePartitionKey("g", bytes(16), 0), self.partition, lambda error, led: opened.append(led))
        (self.led,) = opened

    def now_ms(self) -> int:
        """See Clock."""
        return int(self.time.now * 1000) + self.wall_shift_ms

    def monotonic(self) -> float:
        """See Clock."""
        return self.time.now

    def acquire(self, member_id: str, most: int = 100) -> list[Acquired]:
        offset = self.led_partitions.next_fetch_offset(self.led)
        if offset is None or offset >= 10:
            return []
        extents = [Extent(0, 9, True)]
        return self.led_partitions.acquire(self.led, member_id, offset, extents, most, 100, AcquireMode.RECORD_LIMIT)


@pytest.mark.parametrize("shift_ms", [0, HOUR_MS, -HOUR_MS])
def test_a_lock_lasts_as_long_as_it_should_although_the_wall_clock_is_set(shift_ms: int) -> None:
    bench = Bench()
    assert bench.acquire("a") == [Acquired(0, 9, 1)]
    bench.wall_shift_ms = shift_ms
    bench.time.advance(LOCK_MS - 100)
    assert bench.acquire("b") == []
    bench.time.advance(200)
    assert bench.acquire("b") == [Acquired(0, 9, 2)]


def test_a_lock_outlives_an_earlier_one_although_the_wall_clock_is_set_forward() -> None:
    bench = Bench()
    assert bench.acquire("a", most=5) == [Acquired(0, 4, 1)]
    bench.time.advance(LOCK_MS / 2)
    assert bench.acquire("b") == [Acquired(5, 9, 1)]
    bench.wall_shift_ms = HOUR_MS
    bench.time.advance(LOCK_MS / 2 + 100)
    assert bench.acquire("c") == [Acquired(0, 4, 2)]


def test_a_start_that_the_coordinator_does_not_have_yet_is_kept_for_the_next_members() -> None:
    bench = Bench(NO_OFFSET)
    nothing_stored = bench.answer
    assert bench.acquire("a") == [Acquired(0, 9, 1)]
    bench.answer = StateResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    bench.led_partitions.release(bench.led, "a", lambda error: None)
    bench.answer = nothing_stored
    bench.open()
    bench.time.advance(LOCK_MS + 100)
    assert bench.acquire("b") == [Acquired(0, 9, 2)], "although the latest offset is another one now"


def test_what_was_stored_for_a_group_that_was_deleted_is_not_known_any_more() -> None:
    bench = Bench(NO_OFFSET)
    nothing_stored = bench.answer
    assert bench.acquire("a") == [Acquired(0, 9, 1)]
    bench.answer = StateResult()
    bench.led_partitions.acknowledge(bench.led, "a", [Acknowledgement(0, 9, (1,))], lambda error: None)
    bench.led_partitions.on_group_idle("g")
    assert len(bench.led_partitions) == 0, "there are groups without number that never come back"
    bench.answer = nothing_stored._replace(start_offset=4)
    bench.open()
    assert bench.acquire("b") == [Acquired(4, 9, 1)]


def test_those_of_a_session_are_found_however_many_it_names() -> None:
    bench = Bench()
    place = (bytes(16), 0)
    others = [(b"another topic id", index) for index in range(3)]
    assert bench.led_partitions.among("g", [place]) == [bench.led]
    assert bench.led_partitions.among("g", [*others, place]) == [bench.led]
    assert bench.led_partitions.among("g", others) == bench.led_partitions.among("g", []) == []
    assert bench.led_partitions.among("another", [place]) == []
    bench.led.machine = None
    assert bench.led_partitions.among("g", [place]) == bench.led_partitions.among("g", [*others, place]) == []


class Fetch:
    """A fetch that waits, and takes all there is."""

    def __init__(self, bench: Bench) -> None:
        self.completed = False
        self.tries = 0
        self._bench = bench

    def try_complete(self) -> bool:
        """See Waiter."""
        self.tries += 1
        self.completed = bool(self._bench.acquire(f"member of {id(self)}"))
        return self.completed


def test_new_records_wake_as_many_fetches_as_have_some() -> None:
    bench = Bench()
    bench.log.high_watermark = 0
    fetches = [Fetch(bench) for _ in range(3)]
    for fetch in fetches:
        bench.led.waiters.add(fetch)
    bench.waiters.notify()
    assert [fetch.tries for fetch in fetches] == [0, 0, 0]
    bench.reads_committed = True
    bench.log.high_watermark = 10
    bench.waiters.notify()
    assert [fetch.tries for fetch in fetches] == [0, 0, 0], "their transaction is open"
    bench.log.last_stable_offset = 10
    bench.stable_waiters.notify()
    assert [fetch.tries for fetch in fetches] == [1, 0, 0]
    bench.led_partitions.on_group_idle("g")
    assert not bench.waiters.waiting
    assert not bench.stable_waiters.waiting


def test_a_request_that_fails_does_not_keep_the_others_from_what_was_loaded() -> None:
    bench = Bench()
    bench.led_partitions.on_group_idle("g")
    replies: list[Callable[[StateResult], None]] = []
    bench.led_partitions._access = cast("StateAccess", SimpleNamespace(ask=lambda question, reply: replies.append(reply)))
    opened: list[ErrorCode] = []

    def fail(error: ErrorCode, led: LedPartition) -> None:
        raise AssertionError("a fault")

    key = SharePartitionKey("g", bytes(16), 0)
    bench.led_partitions.open(key, bench.partition, fail)
    bench.led_partitions.open(key, bench.partition, lambda error, led: opened.append(error))
    replies[0](StateResult())
    assert opened == [ErrorCode.NONE]


def test_a_search_by_time_waits_for_a_thread_instead_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    cold = ColdRead(TopicPartition("t", 0), cast("NotCached", SimpleNamespace(path="a", position=0, warm=lambda: None)))
    cold.warm = lambda: threads.append(threading.current_thread())

    def search(log: object, timestamp_ms: int, may_wait: bool, searched: object) -> OffsetAndTimestamp:
        assert not may_wait
        if not threads:
            raise cold
        return OffsetAndTimestamp(4, timestamp_ms, 0)

    monkeypatch.setattr(led_partitions, "offset_for_timestamp", search)

    async def scenario() -> None:
        bench = Bench()
        bench.led_partitions.on_group_idle("g")
        bench.answer, bench.reset = StateResult(start_offset=NO_OFFSET), "by_duration:PT1H"
        opened: asyncio.Future[LedPartition] = asyncio.get_running_loop().create_future()
        bench.led_partitions.open(SharePartitionKey("g", bytes(16), 0), bench.partition, lambda error, led: opened.set_result(led))
        bench.led = await asyncio.wait_for(opened, 30)
        assert bench.led_partitions.next_fetch_offset(bench.led) == 4

    asyncio.run(scenario())
    assert threads != [threading.main_thread()]


def test_share_partitions_that_cannot_be_loaded_have_a_few_lines_in_a_second(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.answer = StateResult(error=ErrorCode.INVALID_REQUEST, message="uninitialized")
    with caplog.at_level(logging.WARNING):
        for index in range(500):
            bench.led_partitions.open(SharePartitionKey("g", bytes(16), index + 1), bench.partition, lambda error, led: None)
    assert len(caplog.messages) == MAX_LINES
    assert "cannot be loaded (INVALID_REQUEST): uninitialized" in caplog.messages[0]
