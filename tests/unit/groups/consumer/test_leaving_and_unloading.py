"""What is left of groups and members: the answer to LeaveGroup, the number of members, records that come too late."""

from __future__ import annotations

import asyncio

from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.effects import LeaveResult
from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.membership import Leaving
from ottla.pauses import begin_slices
from ottla.protocol.errors import ErrorCode
from tests.support.group_bench import OFFSETS_TOPIC, GroupBench, run
from tests.support.pauses import a_turn
from tests.unit.groups.consumer.test_conversion import UPGRADES, assigned, protocols, reload

MANY = 600
"""Members whose answers are sent in parts."""


def members_of(bench: GroupBench) -> set[str]:
    group = bench.groups.groups.get("g")
    assert isinstance(group, ConsumerGroup)
    return set(group.members)


async def two_members(bench: GroupBench) -> None:
    """On two replicas, both of which are needed."""
    bench.disks.topics[OFFSETS_TOPIC] |= {"min.insync.replicas": "2"}
    await bench.lead(isr=(0, 1))
    bench.announce({"t": 4})
    joining = [bench.beat(member_id) for member_id in ("m", "n")]
    await bench.until(lambda: members_of(bench) == {"m", "n"})
    bench.follower_fetches()
    await bench.until(lambda: all(joining))


def test_a_member_of_the_new_protocol_has_left_when_the_replicas_have_the_records() -> None:
    async def scenario(bench: GroupBench) -> None:
        await two_members(bench)
        left = bench.leave(Leaving("m", None), Leaving("nobody", None))
        assert (left, members_of(bench)) == ([], {"n"})
        bench.follower_fetches()
        assert left == [LeaveResult(ErrorCode.NONE, [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID])]

    run(scenario)


def test_a_leave_group_that_cannot_be_written_is_an_error_and_the_member_stays() -> None:
    async def scenario(bench: GroupBench) -> None:
        await two_members(bench)
        await bench.lead(epoch=1, isr=(0,), replicas=(0, 1))
        assert bench.leave(Leaving("m", None)) == [LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        assert members_of(bench) == {"m", "n"}
        assert bench.leave(Leaving("nobody", None)) == [LeaveResult(ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID])]

    run(scenario)


def test_a_load_that_ends_half_way_leaves_the_number_of_members_right() -> None:
    async def scenario(bench: GroupBench) -> None:
        machine = bench.groups.consumer.machine
        await bench.lead()
        bench.announce({"t": 4})
        for group in ("g", "h", "i"):
            await bench.answered(bench.beat("m", group=group))
        await bench.lead(leader=1, epoch=1)
        assert machine.members == 0
        begin_slices(asyncio.get_running_loop(), slice_ns=0)
        await bench.lead(epoch=2)
        async with asyncio.timeout(30):  # a thread reads the log, and each turn loads a little
            while not machine.members:
                await a_turn()
        assert machine.members < 3
        await bench.lead(leader=1, epoch=3)
        assert machine.members == 0

    run(scenario)


def test_the_assignment_of_a_classic_group_is_not_written_after_the_group_became_another() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 4})
        joined = [bench.join(protocols=protocols()) for _ in range(MANY)]
        begin_slices(asyncio.get_running_loop(), slice_ns=0)
        group = bench.groups.groups.get("g")
        while group is not None and group.state is not GroupState.COMPLETING_REBALANCE:
            bench.pass_time(1)
        await bench.until(lambda: any(joined))
        (leader,) = [answers[0] for answers in joined if answers and answers[0].members]
        assert not all(joined)
        bench.sync(leader.member_id, 1, {leader.member_id: assigned(0, 1)})
        assert (await bench.answered(bench.beat("new"))).error == ErrorCode.NONE
        await bench.until(lambda: all(joined))
        await asyncio.sleep(0)
        assert "new" in members_of(bench)
        await reload(bench, 1)
        assert "new" in members_of(bench)

    run(scenario, **UPGRADES)
