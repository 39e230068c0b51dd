"""Drives the state machine of one consumer group by hand: events in, effects out. No clock, no log, no connections."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from ottla.coordination.groups.consumer.effects import (
    Beat,
    BeatResult,
    CheckRegex,
    ComputeTarget,
    ConsumerEffect,
    Decision,
    ResolveRegexes,
    Write,
)
from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.consumer.heartbeats import Refused, check, has_no_news, on_heartbeat
from ottla.coordination.groups.consumer.records import Record, key_of, pairs_of, read
from ottla.coordination.groups.consumer.removal import on_timer
from ottla.coordination.groups.consumer.settings import ConsumerSettings, Context, GroupTimes
from ottla.coordination.groups.consumer.subscriptions import on_resolved
from ottla.coordination.groups.consumer.targets import compute
from ottla.coordination.groups.consumer.timers import MemberTimer, TimerKind
from ottla.coordination.groups.consumer.topics import Topics
from ottla.coordination.groups.offset_records import version_of
from ottla.coordination.partitions.effects import Arm, Disarm, Reply
from ottla.protocol.messages.update_metadata import UpdateMetadataPartitionState
from ottla.replication.ports.cluster import TopicImage

NOW = 1_700_000_000_000


def topic_id(name: str) -> bytes:
    """The id of a topic of the driver."""
    return name.encode().ljust(16, b"-")


def an_image(name: str, partitions: int) -> TopicImage:
    """A topic of the cluster."""
    return TopicImage(name, topic_id(name), {index: UpdateMetadataPartitionState(partition_index=index) for index in range(partitions)})


def partitions_of(result: BeatResult) -> dict[str, list[int]] | None:
    """The assignment of an answer, by the names of topics."""
    if result.assignment is None:
        return None
    return {topic.decode().rstrip("-"): sorted(indexes) for topic, indexes in sorted(result.assignment.items())}


class ConsumerDriver:
    """Carries out effects: answers are kept, timers fire as `pass_time` goes, writes are done at once, or fail when the test says so."""

    def __init__(self, topics: Mapping[str, int] | None = None, *, times: GroupTimes | None = None, **settings: Any) -> None:
        self.times = times or GroupTimes(assignment_interval_ms=0)
        self.settings = ConsumerSettings(times_of=lambda group_id: self.times, **settings)
        self.group = ConsumerGroup("g")
        self.topics: Topics = {name: an_image(name, count) for name, count in (topics or {"t": 6}).items()}
        self.now_ms = NOW
        self.timers: dict[MemberTimer, int] = {}
        self.log: dict[bytes, bytes | None] = {}
        """The last value of each key, as compaction leaves it."""
        self.written: list[list[Record]] = []
        """The records of each event."""
        self.fails = False
        """Whether writes fail."""
        self.regex_topics: Mapping[str, frozenset[str]] = {}
        """The topics that regular expressions match; others are invalid."""
        self.resolutions: list[ResolveRegexes] = []
        self.without_news = 0
        """Heartbeats that were answered without a look at the rules."""
        self.lost: list[BeatResult] = []
        """Answers of events whose records could not be written."""

    # -- events --------------------------------------------------------------------------------------------------------------

    def grow(self, name: str, partitions: int) -> None:
        """A topic has so many partitions from now on."""
        self.topics = {**self.topics, name: an_image(name, partitions)}

    def delete(self, name: str) -> None:
        """A topic is deleted."""
        self.topics = {each: image for each, image in self.topics.items() if each != name}

    def beat(self, member_id: str, epoch: int, *, requires_id: bool = True, **fields: Any) -> BeatResult:
        """A heartbeat, and its answer."""
        answers: list[BeatResult] = []
        beat = Beat(answers.append, member_id, epoch, **{"client_id": "c", "client_host": "/127.0.0.1", **fields})
        try:
            check(beat, self.group.group_id, self.settings.assignors, requires_member_id=requires_id)
        except Refused as refused:
            return refused.result
        is_without_news = self._is_without_news(beat)
        effects = self._decided(on_heartbeat(self.group, beat, self.context()))
        if is_without_news:
            self.without_news += 1
            answer = BeatResult(member_id=member_id, epoch=epoch, heartbeat_interval_ms=self.times.heartbeat_interval_ms)
            renewed = Arm(MemberTimer(TimerKind.SESSION, member_id), self.times.session_timeout_ms)
            assert effects == [renewed, Reply(beat.waiter, answer)], "the short way leads elsewhere"
        self.run(effects)
        (answer,) = answers
        return answer

    def _is_without_news(self, beat: Beat) -> bool:
        member = self.group.members.get(beat.member_id)
        names_more = (beat.rack_id, beat.topics, beat.regex, beat.assignor, beat.held) != (None,) * 5 or beat.rebalance_timeout_ms != -1
        if member is None or names_more:
            return False
        return has_no_news(self.group, member, beat.epoch, beat.instance_id, beat.client_id, beat.client_host, self.topics)

    def join(self, member_id: str, *topics: str, **fields: Any) -> BeatResult:
        """The first heartbeat of a member."""
        return self.beat(member_id, 0, **{"rebalance_timeout_ms": 30_000, "topics": topics or ("t",), "held": {}, **fields})

    def resolve(self) -> None:
        """The oldest evaluation of regular expressions is done."""
        work = self.resolutions.pop(0)
        self.group.is_resolving = False
        names = [name for name in self.topics if work.may_describe(name)]
        found = {regex: frozenset(names) & self.regex_topics.get(regex, frozenset()) for regex in work.regexes}
        self.run(on_resolved(self.group, found, self.context()))

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass and timers fire, in order."""
        end_ms = self.now_ms + milliseconds
        while self.timers:
            due_ms, _, key = min((deadline, str(key), key) for key, deadline in self.timers.items())
            if due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            del self.timers[key]
            self.run(on_timer(self.group, key, self.context()))
        self.now_ms = end_ms

    def context(self) -> Context:
        """The facts that decisions depend on."""
        return Context(self.now_ms, self.topics, self.settings, self.times, self.times.heartbeat_interval_ms)

    # -- effects -------------------------------------------------------------------------------------------------------------

    def run(self, decision: Decision | Iterable[ConsumerEffect]) -> None:
        """Carry out effects. Work for threads is done at once."""
        effects = self._decided(decision) if isinstance(decision, Generator) else decision
        for effect in sorted(effects, key=lambda effect: not isinstance(effect, Write)):
            if isinstance(effect, Write):
                if self.fails:
                    for arm in effect.otherwise:
                        self.timers[arm.key] = self.now_ms + arm.delay_ms  # type: ignore[index]  # of members alone
                    for reply in effect.replies:
                        reply.waiter(BeatResult(epoch=-99))  # type: ignore[operator]  # ours to know
                    return
                self._write(effect)
            elif isinstance(effect, Reply):
                effect.waiter(effect.result)  # type: ignore[operator]  # ours to know
            elif isinstance(effect, Arm):
                assert isinstance(effect.key, MemberTimer)
                self.timers[effect.key] = self.now_ms + effect.delay_ms
            elif isinstance(effect, Disarm):
                self.timers.pop(effect.key, None)  # type: ignore[call-overload]  # of members alone
            elif isinstance(effect, ResolveRegexes):
                self.group.is_resolving = True
                self.resolutions.append(effect)
            else:
                raise AssertionError(effect)

    def _decided(self, decision: Decision) -> list[ConsumerEffect]:
        result: object = None
        while True:
            try:
                work = decision.send(result)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # as declared
            if isinstance(work, CheckRegex):
                result = None if work.regex in self.regex_topics else "no such expression"
            else:
                result = compute(work) if isinstance(work, ComputeTarget) else work.run()

    def _write(self, write: Write) -> None:
        self.written.append(list(write.records))
        self.log.update(pairs_of(self.group.group_id, write.records))
        for record in write.records:
            self.group.apply(record)
        for reply in write.replies:
            reply.waiter(reply.result)  # type: ignore[operator]  # ours to know

    # -- outcomes ------------------------------------------------------------------------------------------------------------

    def loaded(self) -> ConsumerGroup:
        """The group as another broker loads it from the log."""
        group = ConsumerGroup(self.group.group_id)
        values = [(key, value) for key, value in self.log.items() if value is not None]
        for kind in (3, 4, 16, 5, 6, 7, 8):
            for key, value in values:
                if version_of(key) == kind:
                    name, record = read(kind, key, value)
                    assert name == group.group_id
                    assert key_of(name, record) == key
                    group.apply(record)
        return group


def state_of(group: ConsumerGroup) -> dict[str, object]:
    """All of a group that has to survive a change of the coordinator."""
    names = ("epoch", "metadata_hash", "target_epoch", "target_ms", "members", "static_members", "target", "owner_epochs", "names",
             "regexes", "regex_users", "assignors", "classic_members", "state")  # fmt: skip
    return {name: getattr(group, name) for name in names}
