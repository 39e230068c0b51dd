"""Groups of thousands: what one member does costs the same in every group, and what concerns all members is done a part at a time."""

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator

import pytest

from ottla.coordination.groups.classic_group import Member
from ottla.coordination.groups.effects import JoinResult
from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.membership import Leaving
from ottla.protocol.errors import ErrorCode
from tests.support.group_bench import GroupBench, run
from tests.support.groups import GroupDriver
from tests.support.pauses import every_pause_waits

SIZES = (10, 1_000)


class CountedMembers(OrderedDict[str, Member]):
    """Counts how many members are looked at one after the other."""

    looked_at = 0

    def __iter__(self) -> Iterator[str]:
        for member_id in super().__iter__():
            self.looked_at += 1
            yield member_id

    def values(self) -> list[Member]:  # type: ignore[override]  # a list is enough for who walks over it
        return [self[member_id] for member_id in self]

    def items(self) -> list[tuple[str, Member]]:  # type: ignore[override]  # as above
        return [(member_id, self[member_id]) for member_id in self]


def a_preparing_group(size: int) -> GroupDriver:
    """So many members have joined for the first time; the group waits for more."""
    driver = GroupDriver(initial_rebalance_delay_ms=3_000)
    for _ in range(size):
        driver.join()
    return driver


def a_stable_group(size: int) -> GroupDriver:
    driver = a_preparing_group(size)
    driver.pass_time(3_000)
    driver.pass_time(3_000)
    for member_id in list(driver.group.members):
        driver.sync(member_id)
    assert driver.group.state is GroupState.STABLE
    return driver


def in_a_new_rebalance(size: int) -> GroupDriver:
    driver = a_stable_group(size)
    driver.join()
    assert driver.group.state is GroupState.PREPARING_REBALANCE
    return driver


def first_of(driver: GroupDriver) -> str:
    return next(iter(driver.group.members))


def last_of(driver: GroupDriver) -> str:
    return list(driver.group.members)[-1]


EVENTS: dict[str, tuple[Callable[[int], GroupDriver], Callable[[GroupDriver, str, str], object]]] = {
    "a newcomer": (a_preparing_group, lambda driver, first, last: driver.join()),
    "a newcomer that is given its id": (a_stable_group, lambda driver, first, last: driver.join(must_know_id=True)),
    "a member joins again": (in_a_new_rebalance, lambda driver, first, last: driver.join(last)),
    "the leader leaves": (in_a_new_rebalance, lambda driver, first, last: driver.leave(first)),
    "a member leaves": (in_a_new_rebalance, lambda driver, first, last: driver.leave(Leaving(last, None))),
    "a heartbeat": (a_stable_group, lambda driver, first, last: driver.heartbeat(last)),
    "a late sync": (a_stable_group, lambda driver, first, last: driver.sync(last)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVENTS)
def test_an_event_of_one_member_looks_at_no_more_members_in_a_large_group(name: str) -> None:
    a_group, event = EVENTS[name]
    looked_at = []
    for size in SIZES:
        driver = a_group(size)
        first, last = first_of(driver), last_of(driver)
        members = driver.group.members = CountedMembers(driver.group.members)
        members.looked_at = 0
        event(driver, first, last)
        looked_at.append(members.looked_at)
    assert looked_at[0] == looked_at[1] <= 1


def test_the_protocol_is_chosen_without_looking_at_every_member() -> None:
    driver = a_preparing_group(100)
    members = driver.group.members = CountedMembers(driver.group.members)
    members.looked_at = 0
    assert driver.group.select_protocol() == "range"
    assert not members.looked_at


# -- what is done a part at a time -------------------------------------------------------------------------------------------


async def a_rebalance_that_ends(bench: GroupBench, size: int, *, in_turns: bool = False) -> list[list[JoinResult]]:
    """So many members wait for the end of their first rebalance, which has come in this turn of the loop; their answers."""
    await bench.lead()
    answers = [bench.join() for _ in range(size)]
    if in_turns:
        every_pause_waits()
    bench.pass_time(10)
    if not any(answers):
        bench.pass_time(10)
    return answers


def answered(answers: list[list[JoinResult]]) -> int:
    return sum(map(len, answers))


def test_the_end_of_a_rebalance_answers_a_part_of_the_members_in_each_turn_of_the_loop() -> None:
    async def scenario(bench: GroupBench) -> None:
        answers = await a_rebalance_that_ends(bench, 1_000, in_turns=True)
        seen = [0, answered(answers)]
        while seen[-1] < 1_000:
            await asyncio.sleep(0)
            seen.append(answered(answers))
        parts = [after - before for before, after in itertools.pairwise(seen)]
        assert max(parts) == 1

    run(scenario)


def test_other_groups_are_served_while_a_large_one_is_answered() -> None:
    async def scenario(bench: GroupBench) -> None:
        answers = await a_rebalance_that_ends(bench, 1_000)
        refused = bench.join("other", "nobody")
        assert answered(answers) < 1_000
        assert refused[0].error == ErrorCode.UNKNOWN_MEMBER_ID
        await bench.until(lambda: answered(answers) == 1_000)

    run(scenario)


def test_who_is_about_to_be_answered_is_not_put_out_by_the_timer_that_its_answer_arms_anew() -> None:
    async def scenario(bench: GroupBench) -> None:
        answers = await a_rebalance_that_ends(bench, 1_000)
        not_yet = [each for each in answers if not each]
        assert not_yet
        bench.pass_time(5 * 60_000)  # all sessions end, and newcomers are waited for no longer: within one turn of the loop
        await bench.until(lambda: answered(answers) == 1_000)
        _, group = bench.groups.describe("g")
        assert group is not None
        assert {each[0].member_id for each in not_yet} <= group.members.keys()

    run(scenario)


def test_a_coordinator_that_stops_answers_everybody() -> None:
    async def scenario(bench: GroupBench) -> None:
        answers = await a_rebalance_that_ends(bench, 1_000)
        assert answered(answers) < 1_000
        await bench.groups.stop()
        assert answered(answers) == 1_000

    run(scenario)
