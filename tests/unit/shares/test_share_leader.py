"""The end of share sessions, of which there may be many at the same time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.config.broker import BrokerConfig
from ottla.config.share_offset_reset import LATEST
from ottla.coordination.shares.leader import ShareLeader
from ottla.coordination.shares.led_partitions import LedPartition
from ottla.coordination.shares.partition import ShareRules
from ottla.coordination.shares.record_states import Acquired, AcquireMode, Extent
from ottla.coordination.shares.sessions import SessionKey
from ottla.coordination.shares.state.coordinator import StateResult
from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.coordination.shares.state_questions import Question, WriteState
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.waiters import Waiters
from ottla.replication.waiting.timing_wheel import TimingWheel
from tests.support.pauses import turns_by_hand
from tests.support.timers import FakeTime

PARTITIONS = 3


class Scene:
    """A broker that leads three partitions. Member "a" has the records of all of them; another member keeps the group alive."""

    def __init__(self) -> None:
        time = FakeTime()
        self.writes = 0
        settings: Any = SimpleNamespace(
            rules_of=lambda group_id: ShareRules(), offset_reset=lambda group_id: LATEST, reads_committed=lambda group_id: False
        )
        access: Any = SimpleNamespace(ask=self.ask)
        clock: Any = SimpleNamespace(now_ms=lambda: 0, monotonic=lambda: time.now)
        wheel = TimingWheel(time.clock, time.call_later)
        unused: Any = None
        self.leader = ShareLeader(BrokerConfig({}), settings, access, wheel, clock, unused)
        self.owner: Any = SimpleNamespace(is_lost=False)
        self.begin("other")
        self.begin("a")
        self.led: list[LedPartition] = []
        log = SimpleNamespace(log_start_offset=0, high_watermark=10)
        for index in range(PARTITIONS):
            partition: Any = SimpleNamespace(
                topic_partition=TopicPartition("t", index), leader_epoch=0, log=log, waiters=Waiters(), stable_waiters=Waiters()
            )
            self.leader.led.open(SharePartitionKey("g", bytes(16), index), partition, lambda error, led: self.led.append(led))
        assert [self.acquire("a", index) for index in range(PARTITIONS)] == [[Acquired(0, 9, 1)]] * PARTITIONS

    def ask(self, question: Question, reply: Any) -> None:
        """The coordinator answers at once."""
        self.writes += isinstance(question, WriteState)
        reply(StateResult())

    def begin(self, member_id: str) -> None:
        """A session with all partitions."""
        _, session = self.leader.sessions.begin(SessionKey("g", member_id), self.owner)
        assert session is not None
        for index in range(PARTITIONS):
            assert self.leader.sessions.add(session, (bytes(16), index))

    def end(self, member_id: str) -> None:
        _, session = self.leader.sessions.use(SessionKey("g", member_id), -1, self.owner)
        assert session is not None
        self.leader.sessions.end(session)

    def acquire(self, member_id: str, index: int) -> list[Acquired]:
        led = self.led[index]
        offset = self.leader.led.next_fetch_offset(led)
        if offset is None or offset >= 10:
            return []
        return self.leader.led.acquire(led, member_id, offset, [Extent(0, 9, True)], 10, 10, AcquireMode.BATCH_OPTIMIZED)


def test_the_records_of_a_member_that_leaves_are_released_with_pauses() -> None:
    scene = Scene()
    with turns_by_hand() as loop:
        scene.end("a")
        assert scene.writes == 0
        released = []
        while loop.turn():
            released.append(scene.writes)
    assert released[-1] == PARTITIONS
    assert len(released) > PARTITIONS
    assert [scene.acquire("other", index) for index in range(PARTITIONS)] == [[Acquired(0, 9, 2)]] * PARTITIONS


def test_a_member_that_comes_back_meanwhile_keeps_the_records_that_it_still_has() -> None:
    scene = Scene()
    with turns_by_hand() as loop:
        scene.end("a")
        while not scene.writes:
            loop.turn()
        scene.begin("a")
        while loop.turn():
            pass
    assert [scene.acquire("other", index) for index in range(PARTITIONS)] == [[Acquired(0, 9, 2)], [], []]


def test_a_group_without_sessions_is_kept_until_its_records_are_released() -> None:
    scene = Scene()
    with turns_by_hand() as loop:
        scene.end("other")
        scene.end("a")
        assert len(scene.leader.led) == PARTITIONS
        while loop.turn():
            pass
    assert scene.writes == PARTITIONS
    assert len(scene.leader.led) == 0
