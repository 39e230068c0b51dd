"""Groups move from the classic to the new protocol and back, while their members stay."""

from __future__ import annotations

import asyncio

import pytest

from ottla.coordination.groups.classic_group import ClassicGroup
from ottla.coordination.groups.consumer import conversion
from ottla.coordination.groups.consumer.embedded import MAX_BYTES, assignment_bytes, read_assignment, read_subscription
from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.consumer.members import LEAVING
from ottla.coordination.groups.effects import LeaveResult
from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.membership import Leaving
from ottla.coordination.groups.subscriptions import MAX_TOPICS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from ottla.protocol.schema.wire import ProtocolError
from tests.support.consumer_groups import partitions_of, state_of, topic_id
from tests.support.group_bench import OFFSETS_TOPIC, GroupBench, run

UPGRADES = {"group_consumer_migration_policy": "bidirectional"}
NAMES = {topic_id("t"): "t"}


def protocols(*held: int, name: str = "range", version: int = 3) -> tuple[tuple[str, bytes], ...]:
    """The metadata of a classic member of the topic t."""
    owned = [ConsumerProtocolSubscriptionTopicPartition(topic="t", partitions=list(held))] if held else []
    subscription = ConsumerProtocolSubscription(topics=["t"], owned_partitions=owned)
    return ((name, version.to_bytes(2, "big") + subscription.encode(version)),)


def assigned(*indexes: int) -> bytes:
    return assignment_bytes({topic_id("t"): indexes}, 3, NAMES)


def read(data: bytes, bench: GroupBench) -> list[int]:
    return sorted(read_assignment(data, bench.replica_manager.cluster.topics).partitions.get(topic_id("t"), ()))


async def classic_members(bench: GroupBench, isr: tuple[int, ...] = (0,)) -> tuple[str, str]:
    """Two classic members, which have two partitions each."""
    await bench.lead(isr=isr)
    bench.announce({"t": 4})
    first = bench.join(protocols=protocols())
    bench.pass_time(1)
    second = bench.join(protocols=protocols())
    first = bench.join(member_id=first[0].member_id, protocols=protocols())
    one, two = first[0].member_id, second[0].member_id
    assert first[0].generation_id == second[0].generation_id == 2
    leader, other = (one, two) if first[0].leader_id == one else (two, one)
    waiting = bench.sync(other, 2, {})
    synced = bench.sync(leader, 2, {leader: assigned(0, 1), other: assigned(2, 3)})
    if len(isr) > 1:
        bench.follower_fetches()
    assert synced[0].error == ErrorCode.NONE
    assert waiting[0].assignment == assigned(2, 3)
    return leader, other


async def step(bench: GroupBench, member_id: str, *held: int) -> tuple[int, list[int]]:
    """A classic member joins again and asks for its assignment: (generation, partitions)."""
    joined = await bench.answered(bench.join(member_id=member_id, protocols=protocols(*held)))
    assert (joined.error, joined.leader_id, joined.members) == (ErrorCode.NONE, "", None)
    synced = await bench.answered(bench.sync(member_id, joined.generation_id, {}))
    assert synced.error == ErrorCode.NONE
    return joined.generation_id, read(synced.assignment, bench)


def beat(bench: GroupBench, member_id: str, generation: int) -> ErrorCode:
    return bench.groups.heartbeat("g", member_id, None, generation)


def test_classic_members_give_partitions_to_a_member_of_the_new_protocol() -> None:
    async def scenario(bench: GroupBench) -> None:
        one, two = await classic_members(bench)
        bench.commit(8, member_id=one, generation=2)
        new = await bench.answered(bench.beat("new"))
        assert (new.error, new.epoch, partitions_of(new)) == (ErrorCode.NONE, 3, {})
        group = bench.groups.groups.get("g")
        assert isinstance(group, ConsumerGroup)
        assert (bench.committed(), group.classic_members) == (8, 2)
        assert beat(bench, one, 2) == beat(bench, two, 2) == ErrorCode.REBALANCE_IN_PROGRESS
        steps = [await step(bench, one, 0, 1), await step(bench, two, 2, 3)]
        assert sorted(len(partitions) for _, partitions in steps) == [1, 2]
        giver, (generation, kept) = (one, steps[0]) if len(steps[0][1]) == 1 else (two, steps[1])
        assert generation == 2, "it stays in its epoch until it has given up a partition"
        assert beat(bench, giver, 2) == ErrorCode.REBALANCE_IN_PROGRESS
        assert await step(bench, giver, *kept) == (3, kept)
        got = await bench.answered(bench.beat("new", 3))
        assert sum(map(len, (partitions_of(got) or {}).values())) == 1
        assert group.state is GroupState.STABLE
        assert beat(bench, giver, 3) == ErrorCode.NONE
        assert bench.commit(9, member_id=giver, generation=3) == [ErrorCode.NONE]
        assert bench.commit(9, member_id=giver, generation=4) == [ErrorCode.ILLEGAL_GENERATION]

    run(scenario, **UPGRADES)


def test_the_last_member_of_the_new_protocol_leaves_a_classic_group() -> None:
    async def scenario(bench: GroupBench) -> None:
        one, two = await classic_members(bench)
        await bench.answered(bench.beat("new"))
        bench.commit(8, member_id=one, generation=2)
        assert (await bench.answered(bench.beat("new", LEAVING))).error == ErrorCode.NONE
        group = bench.groups.groups.get("g")
        assert isinstance(group, ClassicGroup)
        assert (group.state, group.generation_id) == (GroupState.PREPARING_REBALANCE, 3)
        assert (bench.committed(), [*group.members]) == (8, [one, two])
        again = [bench.join(member_id=each, protocols=protocols()) for each in (one, two)]
        assert [each[0].generation_id for each in again] == [4, 4]

    run(scenario, **UPGRADES)


def test_a_converted_group_is_loaded_in_its_last_form() -> None:
    async def scenario(bench: GroupBench) -> None:
        await classic_members(bench)
        await bench.answered(bench.beat("new"))
        before = state_of(group_of(bench))
        await reload(bench, 1)
        assert state_of(group_of(bench)) == before
        await bench.answered(bench.beat("new", LEAVING))
        await reload(bench, 3)
        classic = bench.groups.groups.get("g")
        assert isinstance(classic, ClassicGroup)
        assert (classic.state, classic.generation_id, len(classic.members)) == (GroupState.STABLE, 3, 2)

    run(scenario, **UPGRADES)


def group_of(bench: GroupBench) -> ConsumerGroup:
    group = bench.groups.groups.get("g")
    assert isinstance(group, ConsumerGroup)
    return group


def has_converted(bench: GroupBench, member_id: str) -> bool:
    """Whether the group has the new protocol, and this member."""
    group = bench.groups.groups.get("g")
    return isinstance(group, ConsumerGroup) and member_id in group.members


async def reload(bench: GroupBench, epoch: int) -> None:
    await bench.lead(leader=1, epoch=epoch)
    await bench.lead(epoch=epoch + 1)
    await bench.until_loaded()


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_classic_group_with_members_stays_one_where_the_policy_says_so(policy: str) -> None:
    async def scenario(bench: GroupBench) -> None:
        one, _ = await classic_members(bench)
        refused = await bench.answered(bench.beat("new"))
        assert (refused.error, refused.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a consumer group.")
        assert beat(bench, one, 2) == ErrorCode.NONE

    run(scenario, group_consumer_migration_policy=policy)


def test_a_group_stays_of_the_new_protocol_where_the_policy_says_so() -> None:
    async def scenario(bench: GroupBench) -> None:
        await classic_members(bench)
        await bench.answered(bench.beat("new"))
        await bench.answered(bench.beat("new", LEAVING))
        assert group_of(bench).classic_members == 2

    run(scenario, group_consumer_migration_policy="upgrade")


def test_an_upgrade_that_cannot_be_written_leaves_a_classic_group_that_rebalances() -> None:
    async def scenario(bench: GroupBench) -> None:
        bench.disks.topics[OFFSETS_TOPIC] |= {"min.insync.replicas": "2"}
        one, _ = await classic_members(bench, (0, 1))
        await bench.lead(epoch=1, isr=(0,), replicas=(0, 1))
        assert (await bench.answered(bench.beat("new"))).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        group = bench.groups.groups.get("g")
        assert isinstance(group, ClassicGroup)
        assert (group.state, len(group.members)) == (GroupState.PREPARING_REBALANCE, 2)
        assert beat(bench, one, 2) == ErrorCode.REBALANCE_IN_PROGRESS
        bench.pass_time(70_000)
        assert not group.members

    run(scenario, **UPGRADES)


def test_the_last_member_of_the_new_protocol_is_removed_as_soon_as_the_classic_group_can_be_written() -> None:
    async def scenario(bench: GroupBench) -> None:
        bench.disks.topics[OFFSETS_TOPIC] |= {"min.insync.replicas": "2"}
        classic = await classic_members(bench, (0, 1))
        joining = bench.beat("new")
        await bench.until(lambda: has_converted(bench, "new"))
        bench.follower_fetches()
        assert (await bench.answered(joining)).error == ErrorCode.NONE
        await bench.lead(epoch=1, isr=(0,), replicas=(0, 1))
        for _ in range(10):  # longer than the session of the new member, which has ended without a word
            bench.pass_time(5_000)
            for member_id in classic:
                beat(bench, member_id, 2)
        assert "new" in group_of(bench).members
        await bench.lead(epoch=2, isr=(0, 1))
        bench.pass_time(1_000)
        await bench.until(lambda: isinstance(bench.groups.groups.get("g"), ClassicGroup))

    run(scenario, **UPGRADES)


def test_the_last_member_that_changes_to_the_classic_protocol_is_answered_once_if_that_is_not_replicated() -> None:
    async def scenario(bench: GroupBench) -> None:
        await classic_members(bench, (0, 1))
        joining = bench.beat("new")
        await bench.until(lambda: has_converted(bench, "new"))
        bench.follower_fetches()
        assert (await bench.answered(joining)).error == ErrorCode.NONE
        joined = bench.join(member_id="new", protocols=protocols())
        await bench.until(lambda: isinstance(bench.groups.groups.get("g"), ClassicGroup))
        bench.pass_time(6_000)
        assert [each.error for each in joined] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    run(scenario, **UPGRADES)


def test_members_that_wait_for_a_rebalance_join_the_converted_group() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 4})
        first = bench.join(protocols=protocols())
        bench.pass_time(1)
        second = bench.join(protocols=protocols())
        assert (len(first), second) == (1, [])
        await bench.answered(bench.beat("new"))
        assert second[0].error == ErrorCode.REBALANCE_IN_PROGRESS
        assert group_of(bench).members.keys() == {first[0].member_id, second[0].member_id, "new"}

    run(scenario, **UPGRADES)


def test_members_without_the_consumer_protocol_are_not_converted() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 4})
        joined = bench.join(protocols=(("range", b"\0\0garbage"),))
        bench.pass_time(1)
        member_id = joined[0].member_id
        refused = await bench.answered(bench.beat("new"))
        assert refused.error == ErrorCode.GROUP_ID_NOT_FOUND
        assert "malformed" in (refused.message or "")
        assert beat(bench, member_id, 1) == ErrorCode.NONE

    run(scenario, **UPGRADES)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param((MAX_TOPICS + 1).to_bytes(4, "big"), id="topics"),
        pytest.param(b"\0\0\0\0" + b"\xff\xff\xff\xff" + (MAX_TOPICS + 1).to_bytes(4, "big"), id="owned partitions"),
        pytest.param(ConsumerProtocolSubscription(user_data=bytes(MAX_BYTES)).encode(3), id="bytes"),
    ],
)
def test_a_subscription_that_takes_long_to_read_is_refused_before(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="more than"):
        read_subscription(b"\0\3" + data, {})


def test_a_group_with_very_many_topics_and_partitions_is_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: GroupBench) -> None:
        await classic_members(bench)
        monkeypatch.setattr(conversion, "MOST_ELEMENTS", 7)  # a topic in each subscription, and three with its topic in each assignment
        refused = await bench.answered(bench.beat("new"))
        assert refused.error == ErrorCode.GROUP_ID_NOT_FOUND
        assert isinstance(bench.groups.groups.get("g"), ClassicGroup)
        monkeypatch.setattr(conversion, "MOST_ELEMENTS", 8)
        assert (await bench.answered(bench.beat("new"))).error == ErrorCode.NONE

    run(scenario, **UPGRADES)


def test_a_group_is_not_converted_if_a_member_could_not_get_assignments_later() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 4})
        joined = bench.join(protocols=(("mine", b""), *protocols()))
        bench.pass_time(1)
        other = bench.join(protocols=protocols())
        bench.join(member_id=joined[0].member_id, protocols=(("mine", b""), *protocols()))
        assert other[0].protocol_name == "range"
        refused = await bench.answered(bench.beat("new"))
        assert refused.error == ErrorCode.GROUP_ID_NOT_FOUND
        assert "malformed" in (refused.message or "")
        assert isinstance(bench.groups.groups.get("g"), ClassicGroup)

    run(scenario, **UPGRADES)


def test_a_group_is_converted_while_a_member_has_given_up_the_protocol_of_the_last_generation() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 4})
        both = (*protocols(), *protocols(name="sticky"))
        first = bench.join(protocols=both)
        bench.pass_time(1)
        second = bench.join(protocols=both)
        first = bench.join(member_id=first[0].member_id, protocols=both)
        one, two = first[0].member_id, second[0].member_id
        assert first[0].protocol_name == "range"
        assert bench.join(member_id=two, protocols=protocols(name="sticky")) == [], "it waits for the other one"
        assert (await bench.answered(bench.beat("new"))).error == ErrorCode.NONE
        assert group_of(bench).members.keys() == {one, two, "new"}

    run(scenario, **UPGRADES)


def test_a_group_with_a_custom_assignor_stays_classic() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 4})
        joined = bench.join(protocols=protocols())
        bench.pass_time(1)
        member_id = joined[0].member_id
        of_streams = ConsumerProtocolAssignment(user_data=b"tasks")
        assert bench.sync(member_id, 1, {member_id: b"\0\3" + of_streams.encode(3)})[0].error == ErrorCode.NONE
        refused = await bench.answered(bench.beat("new"))
        assert refused.error == ErrorCode.GROUP_ID_NOT_FOUND
        assert "an unsupported custom assignor is in use" in (refused.message or "")
        assert beat(bench, member_id, 1) == ErrorCode.NONE

    run(scenario, **UPGRADES)


@pytest.mark.parametrize("waits_ms", [0, 1_000])
def test_a_classic_member_in_the_place_of_the_last_new_one_rebalances_a_group_that_is_not_settled(waits_ms: int) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 4})
        await bench.answered(bench.beat("new", instance_id="i"))
        classic = await bench.answered(bench.join(protocols=protocols()))
        bench.pass_time(waits_ms)
        await bench.answered(bench.beat("new", -2, instance_id="i"))
        await bench.answered(bench.join(protocols=protocols(), instance_id="i"))
        await bench.until(lambda: isinstance(bench.groups.groups.get("g"), ClassicGroup))
        group = bench.groups.groups.get("g")
        assert isinstance(group, ClassicGroup)
        assert group.state is GroupState.PREPARING_REBALANCE, "otherwise nobody would read half of the partitions"
        assert beat(bench, classic.member_id, group.generation_id) == ErrorCode.REBALANCE_IN_PROGRESS

    run(scenario, **UPGRADES)


def test_groups_without_members_change_their_protocol_with_the_next_member() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 4})
        bench.commit(5)
        await bench.answered(bench.beat("new"))
        await bench.answered(bench.beat("new", LEAVING))
        assert bench.join(member_id="known")[0].error == ErrorCode.UNKNOWN_MEMBER_ID
        joined = bench.join(protocols=protocols())
        bench.pass_time(1)
        assert (joined[0].error, joined[0].generation_id) == (ErrorCode.NONE, 1)
        assert isinstance(bench.groups.groups.get("g"), ClassicGroup)
        assert bench.leave(Leaving(joined[0].member_id, None)) == [LeaveResult(ErrorCode.NONE, [ErrorCode.NONE])]
        assert (await bench.answered(bench.beat("new"))).error == ErrorCode.NONE
        assert (group_of(bench).members.keys(), bench.committed()) == ({"new"}, 5)
        await reload(bench, 1)
        assert group_of(bench).members.keys() == {"new"}

    run(scenario)


def test_requests_of_classic_members_are_checked_in_a_converted_group() -> None:
    async def scenario(bench: GroupBench) -> None:
        one, two = await classic_members(bench)
        await bench.answered(bench.beat("new"))
        assert bench.join(protocols=protocols(name="sticky"))[0].error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert bench.join(protocols=(("range", b""),))[0].error == ErrorCode.UNKNOWN_SERVER_ERROR
        assert beat(bench, one, 9) == ErrorCode.ILLEGAL_GENERATION
        assert beat(bench, "nobody", 2) == beat(bench, "new", 3) == ErrorCode.UNKNOWN_MEMBER_ID
        assert bench.sync("new", 3, {})[0].error == ErrorCode.UNKNOWN_MEMBER_ID
        assert bench.sync(one, 9, {})[0].error == ErrorCode.ILLEGAL_GENERATION
        assert bench.sync(one, 2, {})[0].error == ErrorCode.REBALANCE_IN_PROGRESS
        left = bench.leave(Leaving("nobody", None), Leaving(two, None), Leaving("", None), Leaving("new", None))
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert await bench.answered(left) == LeaveResult(ErrorCode.NONE, [unknown, ErrorCode.NONE, unknown, ErrorCode.NONE])
        await bench.until(lambda: isinstance(bench.groups.groups.get("g"), ClassicGroup))
        group = bench.groups.groups.get("g")
        assert isinstance(group, ClassicGroup)
        assert group.members.keys() == {one}, "an operator has removed the member of the new protocol, and the others are classic ones"

    run(scenario, **UPGRADES)


@pytest.mark.parametrize(("policy", "error"), [("disabled", ErrorCode.INCONSISTENT_GROUP_PROTOCOL), ("upgrade", ErrorCode.NONE)])
def test_classic_members_join_a_group_of_the_new_protocol_unless_the_policy_forbids_it(policy: str, error: ErrorCode) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 4})
        await bench.answered(bench.beat("new"))
        joined = await bench.answered(bench.join(protocols=protocols()))
        assert joined.error == error

    run(scenario, group_consumer_migration_policy=policy)


def test_a_classic_member_gets_its_empty_assignment_while_the_next_target_is_not_due() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 4})
        await bench.answered(bench.beat("new"))
        joined = await bench.answered(bench.join(protocols=protocols()))
        group = group_of(bench)
        assert (joined.error, joined.generation_id, group.epoch) == (ErrorCode.NONE, group.target_epoch, group.target_epoch + 1)
        member_id, generation = joined.member_id, joined.generation_id
        synced = await bench.answered(bench.sync(member_id, generation, {}))
        assert (synced.error, read(synced.assignment, bench)) == (ErrorCode.NONE, [])
        assert beat(bench, member_id, generation) == ErrorCode.NONE
        bench.pass_time(1_000)
        assert beat(bench, member_id, generation) == ErrorCode.REBALANCE_IN_PROGRESS, "the target is due"
        assert (await step(bench, member_id))[0] == group.epoch == group.target_epoch

    run(scenario, **UPGRADES)


def test_a_classic_member_that_does_not_join_again_is_removed() -> None:
    async def scenario(bench: GroupBench) -> None:
        one, two = await classic_members(bench)
        await bench.answered(bench.beat("new"))
        for _ in range(13):
            bench.pass_time(5_000)
            beat(bench, one, 2)
            beat(bench, two, 2)
            bench.beat("new", 3)
            await asyncio.sleep(0)
        assert group_of(bench).members.keys() == {"new"}

    run(scenario, **UPGRADES)
