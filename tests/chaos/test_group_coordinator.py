"""The group coordinator in trouble: killed during a rebalance, members that do half of what they should, and thousands at once."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import uvloop

from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.crowd import CrowdMember, a_crowd, assignment_of, disperse, leave_again, settle
from tests.support.rebalance_history import History, are_shared, check_offsets_topic
from tests.support.rebalance_kinds import AIOKAFKA, CONFIG, COOPERATIVE, RANGE, RECORDS, Kind, all_of, fill
from tests.support.rebalance_members import SECONDS
from tests.support.wire_client import a_wire_client

TOPIC = "t"
GROUP = "g"
MEMBERS = 5_000
MEMORY_PER_MEMBER = 20_000  # bytes: a connection and a member with its subscription, twice over
FOR_EVER_MS = 1_800_000
"""A session and rebalance timeout (the longest that a broker allows): what must last lasts until somebody ends it."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def state_of(broker: BrokerProcess) -> str:
    """As DescribeGroups has it."""
    with a_wire_client(broker.port) as client:
        (group,) = client.ask(DescribeGroupsRequest(groups=[GROUP]), 5).groups
        return str(group.group_state)


async def with_a_rebalance_held_up(port: int, protocol: str, before: Callable[[], None], then: Callable[[], None]) -> None:
    """`then` runs while somebody joins the group and a member, who joined while `before` ran, does not join again until it leaves."""
    (idle,) = await a_crowd(port, GROUP, 1, FOR_EVER_MS, protocol)
    await asyncio.gather(idle.settle(), asyncio.to_thread(before))
    (newcomer,) = await a_crowd(port, GROUP, 1, FOR_EVER_MS, protocol)
    joining = asyncio.create_task(newcomer.join())
    await asyncio.to_thread(then)
    await given_up(joining)
    await leave(port, idle, newcomer)


async def with_an_idle_leader(port: int, protocol: str, then: Callable[[], None]) -> None:
    """`then` runs while the group has a leader that joins every rebalance and assigns nothing; at the end it leaves."""
    (leader,) = await a_crowd(port, GROUP, 1, FOR_EVER_MS, protocol)
    await leader.settle()

    async def join_again_and_again() -> None:
        while True:
            if await leader.heartbeat():
                await leader.join()
            await asyncio.sleep(0.02)

    joining = asyncio.create_task(join_again_and_again())
    await asyncio.to_thread(then)
    await given_up(joining)
    await leave(port, leader)


async def given_up(work: asyncio.Task[object]) -> None:
    """It asks a broker that was killed, if it still asks."""
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def leave(port: int, *members: CrowdMember) -> None:
    """The broker that was started again waits for none of them any more."""
    for member in members:
        member.close()
        await leave_again(port, member)


def has_seen(history: History, count: int) -> bool:
    return len(history.values()) == count


def interrupt(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


kinds = pytest.mark.parametrize("kind", [RANGE, AIOKAFKA], ids=str)
"""Without cooperative-sticky: librdkafka 2.16 itself crashes (SIGSEGV) when the coordinator goes away in the middle of such a rebalance."""


@kinds
def test_a_group_gets_over_a_coordinator_that_is_killed_while_its_members_join(kind: Kind, tmp_path: Path) -> None:
    with a_broker(tmp_path, **CONFIG) as broker, History() as history:
        values = fill(broker, TOPIC)
        first, second = (kind.member(broker, GROUP, TOPIC) for _ in range(2))
        history.poll_until(lambda: are_shared(all_of(TOPIC), first, second), first, second)
        history.poll_until(lambda: history.values() == values, first, second)

        def take_in_another() -> None:
            history.poll_until(lambda: len(members_of(broker)) == 3 and state_of(broker) == "Stable", first, second)

        def kill_in_the_middle() -> None:
            # It needs no poll of theirs, and lasts: the third member does not join again.
            eventually(lambda: state_of(broker) == "PreparingRebalance", SECONDS)
            if kind is not AIOKAFKA:  # which joins by itself, while a poll would wait for the end of the rebalance
                for _ in range(3):
                    history.poll(first, second)
            assert state_of(broker) == "PreparingRebalance"
            interrupt(broker)

        asyncio.run(with_a_rebalance_held_up(broker.port, kind.protocol, take_in_another, kill_in_the_middle))
        values |= fill(broker, TOPIC, len(values))
        history.poll_until(lambda: history.values() == values and are_shared(all_of(TOPIC), first, second), first, second)
    history.check(values)
    check_offsets_topic(broker.data, GROUP)


@kinds
def test_a_group_gets_over_a_coordinator_that_is_killed_while_its_members_wait_for_the_leader(kind: Kind, tmp_path: Path) -> None:
    with a_broker(tmp_path, **CONFIG) as broker, History() as history:
        values = fill(broker, TOPIC)
        ready(broker)
        members = []

        def kill_in_the_middle() -> None:
            members.extend(kind.member(broker, GROUP, TOPIC) for _ in range(2))
            history.poll_until(lambda: state_of(broker) == "CompletingRebalance" and len(members_of(broker)) == 3, *members)
            interrupt(broker)

        asyncio.run(with_an_idle_leader(broker.port, kind.protocol, kill_in_the_middle))
        history.poll_until(lambda: history.values() == values and are_shared(all_of(TOPIC), *members), *members)
    history.check(values)
    check_offsets_topic(broker.data, GROUP)


def test_a_group_goes_on_from_what_was_committed_when_the_broker_was_killed(tmp_path: Path) -> None:
    with a_broker(tmp_path, **CONFIG) as broker, History() as history:
        values = fill(broker, TOPIC)
        first = RANGE.member(broker, GROUP, TOPIC)
        history.poll_until(lambda: history.values() == values, first)
        first.close()
        for count in (2 * RECORDS, 3 * RECORDS, 4 * RECORDS):
            interrupt(broker)
            values |= fill(broker, TOPIC, len(values))
            next_one = COOPERATIVE.member(broker, GROUP, TOPIC)
            history.poll_until(partial(has_seen, history, count), next_one)
            next_one.close()
    history.check(values)
    assert len(history.seen) == len(values)
    check_offsets_topic(broker.data, GROUP)


def test_a_member_that_joins_and_never_asks_for_its_assignment_is_put_out(tmp_path: Path) -> None:
    with a_broker(tmp_path, **CONFIG) as broker:
        ready(broker)

        async def scenario() -> None:
            (idle,) = await a_crowd(broker.port, GROUP, 1, timeout_ms=1_500)
            joined = await idle.join()
            assert joined.leader == idle.member_id
            while (error := await idle.heartbeat()) != UNKNOWN_MEMBER_ID:  # it lives, which does not help
                assert error == 0
                await asyncio.sleep(0.05)
            others = await a_crowd(broker.port, GROUP, 3, FOR_EVER_MS)
            await settle(others)
            assert len({member.assignment for member in others}) == 3
            disperse([idle, *others])

        asyncio.run(timed(scenario))
        assert len(members_of(broker)) == 3


def test_thousands_of_members_join_at_once_and_leave_at_once(tmp_path: Path) -> None:
    # The first rebalance begins when nobody has come for a while, however slow the machine is.
    with a_broker(tmp_path, **{**CONFIG, "group_max_size": MEMBERS, "group_initial_rebalance_delay_ms": 1_000}) as broker:
        ready(broker)
        before = broker.rss_bytes()

        async def scenario() -> None:
            members = await a_crowd(broker.port, GROUP, MEMBERS, FOR_EVER_MS)
            await settle(members)
            assert len({member.assignment for member in members}) == MEMBERS
            assert [member.assignment == assignment_of(member.member_id) for member in members] == [True] * MEMBERS
            assert broker.rss_bytes() - before < MEMBERS * MEMORY_PER_MEMBER
            (late,) = await a_crowd(broker.port, GROUP, 1)
            assert (await late.join()).error_code == GROUP_MAX_SIZE_REACHED
            await asyncio.gather(*(member.leave() for member in members[1:]))
            await members[0].settle()
            disperse([late, *members])

        uvloop.run(timed(scenario))
        assert state_of(broker) == "Stable"
        assert len(members_of(broker)) == 1


UNKNOWN_MEMBER_ID = 25
GROUP_MAX_SIZE_REACHED = 81


async def timed(scenario: Callable[[], object]) -> None:
    """Not for ever."""
    work = scenario()
    assert asyncio.iscoroutine(work)
    await asyncio.wait_for(work, SECONDS)


def ready(broker: BrokerProcess) -> None:
    """Has a coordinator for the group."""
    with a_wire_client(broker.port) as client:
        eventually(lambda: client.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4).coordinators[0].error_code == 0)


def members_of(broker: BrokerProcess) -> list[object]:
    """As DescribeGroups has them."""
    with a_wire_client(broker.port) as client:
        (group,) = client.ask(DescribeGroupsRequest(groups=[GROUP]), 5).groups
        return list(group.members)
