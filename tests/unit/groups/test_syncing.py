"""SyncGroup: the assignment is stored, then handed out; who never asks for it is put out."""

import pytest

from ottla.coordination.groups.effects import AfterEmpty, AfterSync, Timer
from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.rebalance import on_timer
from ottla.coordination.groups.records import read_group_value
from ottla.protocol.errors import ErrorCode
from tests.support.groups import GroupDriver, a_stable_group


def a_joined_group(members: int = 2, *, stores_at_once: bool = True) -> tuple[GroupDriver, list[str]]:
    """Members that have joined and not asked for their assignments yet; the leader first."""
    driver = GroupDriver(stores_at_once=stores_at_once)
    waiters = [driver.join() for _ in range(members)]
    driver.pass_time(0)
    return driver, [driver.member_id(waiter) for waiter in waiters]


def test_everybody_gets_the_leaders_assignment_once_it_is_stored() -> None:
    driver, (leader, follower) = a_joined_group(stores_at_once=False)
    early = driver.sync(follower)
    assert early in driver.waiting
    waiter = driver.sync(leader, {leader: b"mine", follower: b"yours"})
    assert waiter in driver.waiting, "nobody is told before the next coordinator could know it too"
    driver.finish_store()
    assert (driver.synced[waiter].assignment, driver.synced[early].assignment) == (b"mine", b"yours")
    assert (driver.synced[early].protocol_type, driver.synced[early].protocol_name) == ("consumer", "range")
    assert driver.state is GroupState.STABLE


def test_what_is_stored_has_every_member_with_its_assignment() -> None:
    driver, (leader, follower) = a_joined_group(stores_at_once=False)
    driver.sync(leader, {leader: b"mine", "somebody else": b"?"})
    version, stored = read_group_value(driver.stores[0].value)
    assert (version, stored.generation, stored.protocol, stored.leader) == (3, 1, "range", leader)
    assert {member.member_id: member.assignment for member in stored.members} == {leader: b"mine", follower: b""}


def test_a_member_that_asks_late_gets_its_part_from_the_stable_group() -> None:
    driver, (leader, follower) = a_joined_group()
    driver.sync(leader, {follower: b"yours"})
    assert driver.synced[driver.sync(follower)].assignment == b"yours"
    assert Timer.SYNC not in driver.timers


def test_who_does_not_ask_within_the_rebalance_timeout_is_put_out() -> None:
    driver, (leader, follower) = a_joined_group()
    driver.sync(leader, {})
    for _ in range(12):
        driver.pass_time(5_000)
        driver.heartbeat(leader)
        driver.heartbeat(follower)
    assert list(driver.group.members) == [leader]
    assert driver.state is GroupState.PREPARING_REBALANCE


@pytest.mark.parametrize("rebalance_ms", [0, -1, -(2**31)])
def test_who_gives_no_time_to_rebalance_is_put_out_as_soon_as_it_has_joined(rebalance_ms: int) -> None:
    driver = GroupDriver()
    waiter = driver.join(rebalance_ms=rebalance_ms)
    driver.run(on_timer(driver.group, Timer.JOIN, driver.now_ms))
    assert (driver.joined[waiter].error, driver.joined[waiter].generation_id) == (ErrorCode.NONE, 1)
    member = driver.member_id(waiter)
    assert driver.synced[driver.sync(member, {member: b"all"})].error == ErrorCode.UNKNOWN_MEMBER_ID
    assert (driver.state, driver.generation, driver.group.members) == (GroupState.EMPTY, 2, {})


def test_one_member_that_gives_time_gives_it_to_all() -> None:
    driver = GroupDriver()
    waiters = driver.join(rebalance_ms=0), driver.join(rebalance_ms=1_000)
    driver.pass_time(0)
    leader, follower = map(driver.member_id, waiters)
    driver.pass_time(999)
    driver.sync(leader, {leader: b"mine", follower: b"yours"})
    assert driver.synced[driver.sync(follower)].assignment == b"yours"


def test_when_the_leader_does_not_assign_the_others_get_another_leader() -> None:
    driver, (leader, follower) = a_joined_group()
    waiter = driver.sync(follower)
    for _ in range(12):
        driver.pass_time(5_000)
        driver.heartbeat(leader)
    assert driver.synced[waiter].error == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.group.leader_id == follower


def test_a_newcomer_that_cannot_join_in_time_does_not_keep_others_from_their_assignment() -> None:
    driver, (leader, follower) = a_joined_group(stores_at_once=False)
    waiter = driver.sync(leader, {})
    driver.join()
    assert driver.synced[waiter].error == ErrorCode.REBALANCE_IN_PROGRESS
    driver.finish_store()
    assert driver.state is GroupState.PREPARING_REBALANCE, "what was stored belongs to a generation that is over"
    assert driver.group.members[follower].assignment == b""


@pytest.mark.parametrize("error", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REBALANCE_IN_PROGRESS])
def test_when_the_assignment_cannot_be_stored_everybody_joins_again(error: ErrorCode) -> None:
    driver, (leader, follower) = a_joined_group(stores_at_once=False)
    waiters = [driver.sync(follower), driver.sync(leader, {})]
    driver.finish_store(error)
    assert {driver.synced[waiter].error for waiter in waiters} == {error}
    assert driver.state is GroupState.PREPARING_REBALANCE


def test_a_second_sync_of_a_member_answers_the_first() -> None:
    driver, (leader, follower) = a_joined_group()
    first = driver.sync(follower)
    second = driver.sync(follower)
    assert driver.synced[first].error == ErrorCode.REBALANCE_IN_PROGRESS
    driver.sync(leader, {follower: b"yours"})
    assert driver.synced[second].assignment == b"yours"


def test_a_generation_has_one_assignment_though_the_leader_hands_in_another_while_the_first_is_stored() -> None:
    driver, (leader, follower) = a_joined_group(stores_at_once=False)
    driver.sync(leader, {leader: b"first"})
    again = driver.sync(leader, {follower: b"second"})
    driver.finish_store()
    assert driver.synced[again].assignment == b"first"
    assert driver.stored == [AfterSync(1, {leader: b"first", follower: b""})]


def test_the_next_generation_gets_an_assignment_after_one_that_could_not_be_stored() -> None:
    driver, (leader, follower) = a_joined_group(stores_at_once=False)
    driver.sync(leader, {})
    driver.finish_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    for member_id in (leader, follower):
        driver.join(member_id)
    driver.pass_time(0)
    waiter = driver.sync(leader, {leader: b"mine"})
    driver.finish_store()
    assert driver.synced[waiter].assignment == b"mine"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance": "static"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_sync_of_the_wrong_member_generation_or_protocol_is_refused(change: dict[str, object], error: ErrorCode) -> None:
    driver, (leader, _) = a_joined_group()
    arguments = {"member_id": leader, **change}
    assert driver.synced[driver.sync(**arguments)].error == error  # type: ignore[arg-type]  # a table of keyword arguments


def test_there_is_no_assignment_while_a_rebalance_is_prepared() -> None:
    driver, (leader, _) = a_stable_group(2)
    driver.join(leader)
    assert driver.synced[driver.sync(leader)].error == ErrorCode.REBALANCE_IN_PROGRESS


def test_that_a_group_is_empty_is_stored_without_anybody_waiting() -> None:
    driver, (leader,) = a_stable_group()
    driver.stores_at_once = False
    driver.leave(leader)
    assert driver.stored[-1] == AfterEmpty()
    _, stored = read_group_value(driver.stores[0].value)
    assert (stored.protocol_type, stored.generation, stored.protocol, stored.leader, stored.members) == ("consumer", 2, None, None, [])
    driver.finish_store(ErrorCode.NOT_COORDINATOR)
    assert driver.state is GroupState.EMPTY
