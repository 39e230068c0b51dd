"""Share groups: the assignor `simple`, the records in Apache Kafka's bytes, and what a loaded group knows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.groups.classic_group import GroupSettings
from ottla.coordination.groups.consumer.assignors import Subscriber, simple
from ottla.coordination.groups.consumer.effects import Beat, BeatResult, Initialize
from ottla.coordination.groups.consumer.records import StatePartitions
from ottla.coordination.groups.group import Group
from ottla.coordination.groups.loading import GroupLoader
from ottla.coordination.groups.share.group import Initialized, ShareGroup, joined
from ottla.coordination.groups.share.offsets import Place, Results, ShareOffsets
from ottla.coordination.groups.share.records import pairs_of, read
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Record
from ottla.replication.ports.cluster import TopicImage
from tests.support.consumer_groups import an_image, topic_id
from tests.support.group_bench import GroupBench, NoShareState, run, tombstones

GOLDEN: list[tuple[str, str]] = json.loads((Path(__file__).parents[2] / "golden" / "shares" / "group-records-4.4.json").read_text())
TOPICS = [bytes([number]) * 16 for number in range(1, 4)]

subscriptions = st.frozensets(st.sampled_from(TOPICS), min_size=1)
groups = st.dictionaries(st.sampled_from([f"m{number}" for number in range(12)]), subscriptions, min_size=1)
counts = st.fixed_dictionaries({topic: st.integers(1, 7) for topic in TOPICS[:2]})


@given(groups, counts)
def test_every_partition_has_a_member_and_every_member_has_a_partition(
    members: dict[str, frozenset[bytes]], partitions: dict[bytes, int]
) -> None:
    assigned = simple({name: Subscriber(topics, {}) for name, topics in members.items()}, partitions)
    for topic, count in partitions.items():
        if any(topic in topics for topics in members.values()):
            assert set().union(*(each.get(topic, frozenset()) for each in assigned.values())) == set(range(count))
    for name, each in assigned.items():
        assert each.keys() <= members[name]
        assert bool(each) >= bool(members[name] & partitions.keys()), "a large group has no idle member"
    again = simple({name: Subscriber(topics, assigned[name]) for name, topics in members.items()}, partitions)
    assert again == assigned, "without a change nothing moves"


@given(st.integers(1, 30), st.integers(1, 12))
def test_members_with_one_subscription_have_equally_many_partitions(count: int, partitions: int) -> None:
    members = {f"m{number:02}": Subscriber(frozenset(TOPICS[:1]), {}) for number in range(count)}
    assigned = simple(members, {TOPICS[0]: partitions})
    sizes = [len(each.get(TOPICS[0], ())) for each in assigned.values()]
    assert max(sizes) - min(sizes) <= 1
    sharing = max(1, -(-count // partitions))
    assert sum(sizes) == partitions * sharing


def test_a_new_member_gets_its_part_from_the_others() -> None:
    one = simple({"a": Subscriber(frozenset(TOPICS[:1]), {})}, {TOPICS[0]: 4})
    two = simple({"a": Subscriber(frozenset(TOPICS[:1]), one["a"]), "b": Subscriber(frozenset(TOPICS[:1]), {})}, {TOPICS[0]: 4})
    assert two == {"a": {TOPICS[0]: {0, 1}}, "b": {TOPICS[0]: {2, 3}}}


def test_records_are_read_and_written_in_the_bytes_of_apache_kafka() -> None:
    kinds = set()
    for key_hex, value_hex in GOLDEN:
        key = bytes.fromhex(key_hex)
        version = int.from_bytes(key[:2], "big")
        value = bytes.fromhex(value_hex)
        kinds.add(version)
        group_id, record = read(version, key, value)
        assert pairs_of(group_id, [record]) == [(key, value)]
    assert kinds == {10, 11, 12, 13, 14, 15}


def load(pairs: list[tuple[bytes, bytes | None]]) -> tuple[dict[str, Group], int]:
    loader = GroupLoader("__consumer_offsets-0", GroupSettings())
    for _ in loader.feed(bytes(build_batch([Record(0, 0, *pair) for pair in pairs]))):
        pass
    found: dict[str, Group] = {}
    for _ in loader.states(0, found):
        pass
    return found, loader.skipped


def test_a_group_of_apache_kafka_is_loaded() -> None:
    found, skipped = load([(bytes.fromhex(key), bytes.fromhex(value)) for key, value in GOLDEN])
    assert skipped == 0
    for group in found.values():
        assert isinstance(group, ShareGroup)
        assert (group.group_type, group.state.value) == ("share", "Stable" if group.members else "Empty")
        assert group.epoch > 0
    assert any(isinstance(group, ShareGroup) and group.initialized for group in found.values())


def test_a_deleted_group_leaves_nothing() -> None:
    pairs = [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in GOLDEN]
    found, _ = load(pairs)
    tombstones: list[tuple[bytes, bytes | None]] = [(key, None) for group in found.values() for key in group.tombstones()]
    assert load([*pairs, *tombstones]) == ({}, 0)


def test_partitions_that_are_initialized_stay_so() -> None:
    group = ShareGroup("g")
    group.apply(StatePartitions({TOPICS[0]: ("t", frozenset({2}))}, {TOPICS[0]: ("t", frozenset({0, 1}))}))
    assert joined(group.initialized, group.initializing) == {TOPICS[0]: ("t", frozenset({0, 1, 2}))}


def test_the_partitions_of_a_group_are_looked_at_once_for_each_change_of_them() -> None:
    """Each heartbeat asks for them, and a group may have ten thousand."""
    group = ShareGroup("g")
    group.apply(StatePartitions({}, {topic_id("t"): ("t", frozenset({0}))}))
    cluster = {"t": an_image("t", 2)}
    found = group.assignable(cluster)
    assert group.assignable(cluster) is found
    assert list(found["t"].partitions) == [0]
    group.apply(StatePartitions({}, {topic_id("t"): ("t", frozenset({0, 1}))}))
    assert list(group.assignable(cluster)["t"].partitions) == [0, 1]
    assert not group.assignable({})


class Answering(NoShareState):
    """Moves and deletes the state of partitions, with this result."""

    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.moves: list[tuple[dict[Place, int], int]] = []
        self.initialized: list[int] = []
        """The epochs of initializations."""
        self.is_held = False
        self.held: list[Callable[[], None]] = []
        """The answers of a coordinator that takes its time, the oldest first."""

    def move(self, group_id: str, offsets: Mapping[Place, int], epoch: int, then: Callable[[Results], None]) -> None:
        self.moves.append((dict(offsets), epoch))
        self.answer(lambda: then(dict.fromkeys(offsets, self.error)))

    def initialize(self, group_id: str, partitions: Initialized, epoch: int, grown: frozenset[bytes], then: Callable[[bool], None]) -> None:
        self.initialized.append(epoch)
        self.answer(lambda: then(not self.error))

    def forget(self, group_id: str, places: Iterable[Place], then: Callable[[Results], None]) -> None:
        self.forgotten = sorted(places)
        self.answer(lambda: then(dict.fromkeys(self.forgotten, self.error)))

    def answer(self, answer: Callable[[], None]) -> None:
        """Answer now, or when the test says so."""
        if self.is_held:
            self.held.append(answer)
        else:
            answer()


T = topic_id("t")
PARTITIONS: Initialized = {T: ("t", frozenset({0, 1}))}
PLACES: list[Place] = [(T, 0), (T, 1)]


async def a_moved_group(bench: GroupBench) -> tuple[ShareGroup, ShareOffsets, Answering]:
    """A group without members that has two partitions."""
    await bench.lead()
    bench.announce({"t": 2})
    state, offsets = Answering(), bench.groups.share.offsets
    offsets._state = bench.groups.share.machine._state = state
    _, _, group = bench.groups.share.find_to_change("g", is_made=True)
    assert group is not None
    assert await offsets.move(group, {T: "t"}, dict.fromkeys(PLACES, 5)) == (0, dict.fromkeys(PLACES, 0))
    assert (group.initializing, group.initialized) == ({}, PARTITIONS)
    return group, offsets, state


def test_each_move_of_a_group_has_an_epoch_of_its_own() -> None:
    async def scenario(bench: GroupBench) -> None:
        group, offsets, state = await a_moved_group(bench)
        await offsets.move(group, {T: "t"}, {PLACES[0]: 5})
        assert [epoch for _, epoch in state.moves] == [1, 2]
        assert group.epoch == 2

    run(scenario)


def offered_again(group: ShareGroup) -> Initialized:
    """The partitions that are initialized when a member needs them."""
    unknown: Any = None
    return group.uninitialized(["t"], {"t": TopicImage("t", T, {0: unknown, 1: unknown})})


def test_a_group_whose_state_cannot_be_deleted_stays_until_it_can() -> None:
    async def scenario(bench: GroupBench) -> None:
        group, offsets, state = await a_moved_group(bench)
        state.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        for deletion in (bench.groups.offsets.delete_group("g"), offsets.forget_all(group)):
            assert await deletion == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert (group.is_dead, group.initializing, group.initialized) == (False, PARTITIONS, {})
            assert offered_again(group) == PARTITIONS
        state.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # the topic was deleted, so the state goes with it
        assert await bench.groups.offsets.delete_group("g") == ErrorCode.NONE
        assert (group.is_dead, state.forgotten) == (True, PLACES)
        assert await bench.groups.offsets.delete_group("g") == ErrorCode.GROUP_ID_NOT_FOUND

    run(scenario)


async def beat(bench: GroupBench, epoch: int, *topics: str) -> int:
    """A heartbeat of the only member. Returns its epoch."""
    answers: list[BeatResult] = []
    bench.groups.share.heartbeat("g", Beat(answers.append, "m", epoch, topics=topics or None))
    answer = await bench.answered(answers)
    assert answer.error == ErrorCode.NONE
    return answer.epoch


@pytest.mark.parametrize("is_deletion", [True, False])
def test_partitions_of_members_that_join_during_a_change_are_initialized_after_it(*, is_deletion: bool) -> None:
    async def scenario(bench: GroupBench) -> None:
        group, offsets, state = await a_moved_group(bench)
        if not is_deletion:
            await offsets.forget(group, PARTITIONS)
        state.is_held = True
        work = bench.groups.offsets.delete_group("g") if is_deletion else offsets.move(group, {T: "t"}, dict.fromkeys(PLACES, 7))
        change = asyncio.ensure_future(work)
        await bench.until(lambda: bool(state.held))
        epoch = await beat(bench, 0, "t")
        assert state.initialized == [], "it would be undone, or undo the change"
        state.is_held = False
        state.held.pop()()
        assert await change == (ErrorCode.NON_EMPTY_GROUP if is_deletion else (ErrorCode.NONE, dict.fromkeys(PLACES, ErrorCode.NONE)))
        assert (group.is_dead, group.partitions_with_state()) == (False, {} if is_deletion else PARTITIONS)
        epoch = await beat(bench, epoch)
        assert state.initialized == ([epoch] if is_deletion else [])
        assert group.initialized == PARTITIONS

    run(scenario)


def test_a_group_without_members_stays_when_offsets_expire_and_topics_are_deleted() -> None:
    async def scenario(bench: GroupBench) -> None:
        group, _, _ = await a_moved_group(bench)
        bench.pass_time(2 * bench.groups._check_interval_ms)
        await bench.groups.offsets.expire()
        bench.announce({"other": 1})
        bench.delete_topic("other", 1)
        assert (bench.groups.share.describe("g")[2], group.initialized) == (group, PARTITIONS)
        assert tombstones(bench) == []

    run(scenario)


def test_a_group_keeps_nothing_of_topics_that_are_deleted() -> None:
    async def scenario(bench: GroupBench) -> None:
        group, offsets, _ = await a_moved_group(bench)
        bench.announce({"other": 1})
        other = topic_id("other")
        await offsets.move(group, {other: "other"}, {(other, 0): 5})
        bench.delete_topic("t", 2)
        assert group.partitions_with_state() == {other: ("other", frozenset({0}))}
        await bench.lead(epoch=1, leader=1)
        await bench.lead(epoch=2)
        await bench.until_loaded()
        assert bench.groups.share.initialized("g") == (ErrorCode.NONE, {other: ("other", frozenset({0}))})
        await bench.lead(epoch=3, leader=1)
        await bench.lead(epoch=4)
        assert bench.groups.groups.is_loading
        bench.delete_topic("other", 1)
        await bench.until_loaded()
        assert bench.groups.share.initialized("g") == (ErrorCode.NONE, {})
        await bench.lead(epoch=5, leader=1)
        await bench.lead(epoch=6)
        await bench.until_loaded()
        assert bench.groups.share.initialized("g") == (ErrorCode.NONE, {})

    run(scenario)


def test_an_initialization_that_ends_during_a_deletion_does_not_count() -> None:
    async def scenario(bench: GroupBench) -> None:
        group, offsets, state = await a_moved_group(bench)
        assert await offsets.forget(group, PARTITIONS) == (ErrorCode.NONE, dict.fromkeys(PLACES, ErrorCode.NONE))
        state.is_held = True
        await beat(bench, 0, "t")
        await beat(bench, -1)
        deletion = asyncio.ensure_future(offsets.forget(group, PARTITIONS))
        await bench.until(lambda: len(state.held) == 2)
        for answer in state.held:
            answer()
        assert await deletion == (ErrorCode.NONE, dict.fromkeys(PLACES, ErrorCode.NONE))
        assert group.partitions_with_state() == {}

    run(scenario)


class Initializations(NoShareState):
    """Keeps what is to be initialized, until the test says that it is."""

    def __init__(self) -> None:
        self.asked: list[Callable[[bool], None]] = []

    def initialize(self, group_id: str, partitions: Initialized, epoch: int, grown: frozenset[bytes], then: Callable[[bool], None]) -> None:
        self.asked.append(then)


def test_a_group_is_initialized_again_only_after_the_result_of_the_last_time() -> None:
    async def scenario(bench: GroupBench) -> None:
        machine, state = bench.groups.share.machine, Initializations()
        machine._state = state
        group, partitions = ShareGroup("g"), {TOPICS[0]: ("t", frozenset({0}))}
        machine.carry_out(group, Initialize(partitions, 1))
        machine.carry_out(group, Initialize(partitions, 2))
        assert len(state.asked) == 1, "the group may be at work with the first when the second arrives"
        machine.carry_out(ShareGroup("h"), Initialize(partitions, 1))
        state.asked[0](False)
        machine.carry_out(group, Initialize(partitions, 3))
        assert len(state.asked) == 3

    run(scenario)
