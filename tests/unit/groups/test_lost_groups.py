"""Groups of a partition that another broker leads are unloaded a few in a turn. They write nothing, even if it is led here again."""

from __future__ import annotations

import asyncio

from ottla.protocol.errors import ErrorCode
from tests.support.group_bench import GroupBench, run
from tests.support.pauses import every_pause_waits

GROUPS = 30
PROTOCOLS = (("range", b"x"),)


def names() -> list[str]:
    return [f"g{number}" for number in range(GROUPS)]


def test_one_group_is_unloaded_in_a_turn_if_there_is_no_time_for_more() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        for name in names():
            bench.a_member(name)
        waiting = [bench.join(name, protocols=PROTOCOLS) for name in names()]
        every_pause_waits()
        await bench.lead(epoch=1, leader=1)
        assert bench.groups.count() == 0
        unloaded = [sum(map(bool, waiting))]
        while unloaded[-1] < GROUPS:
            await asyncio.sleep(0)
            unloaded.append(sum(map(bool, waiting)))
        assert max(after - before for before, after in zip([0, *unloaded], unloaded, strict=False)) == 1
        assert {answers[0].error for answers in waiting} == {ErrorCode.NOT_COORDINATOR}

    run(scenario)


def test_all_groups_are_unloaded_when_the_coordinator_has_stopped() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        for name in names():
            bench.a_member(name)
        waiting = [bench.join(name, protocols=PROTOCOLS) for name in names()]
        every_pause_waits()
        await bench.groups.stop()
        assert [answers[0].error for answers in waiting] == [ErrorCode.NOT_COORDINATOR] * GROUPS

    run(scenario)


def test_a_lost_group_that_is_not_unloaded_yet_writes_nothing_when_this_broker_leads_again() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        for name in names():
            bench.a_member(name)
        every_pause_waits()
        await bench.lead(epoch=1, leader=1)
        await bench.lead(epoch=2)
        before = len(bench.records())
        bench.pass_time(60_000)  # the sessions of the members end
        assert len(bench.records()) == before

    run(scenario)
