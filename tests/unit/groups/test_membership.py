"""Heartbeats and sessions, leaving, committing, and groups that are loaded and unloaded."""

import pytest

from ottla.coordination.groups.group import Committer, GroupState
from ottla.coordination.groups.membership import Leaving
from ottla.protocol.errors import ErrorCode
from tests.support.groups import GroupDriver, a_stable_group, deadlines


def test_heartbeats_keep_a_session_alive() -> None:
    driver, (leader,) = a_stable_group()
    for _ in range(5):
        driver.pass_time(9_999)
        assert driver.heartbeat(leader) == ErrorCode.NONE
    driver.pass_time(10_000)
    assert driver.state is GroupState.EMPTY
    assert driver.heartbeat(leader) == ErrorCode.UNKNOWN_MEMBER_ID


def test_when_a_session_ends_the_others_rebalance() -> None:
    driver, (leader, follower) = a_stable_group(2)
    driver.pass_time(9_000)
    driver.heartbeat(leader)
    driver.pass_time(1_000)
    assert driver.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert follower not in driver.group.members


def test_the_session_of_a_member_that_waits_for_an_answer_does_not_end() -> None:
    driver, (leader, follower) = a_stable_group(2)
    waiter = driver.join(leader)
    for _ in range(10):
        driver.pass_time(5_000)
        driver.heartbeat(follower)
    assert waiter in driver.waiting
    driver.pass_time(10_000)
    assert driver.joined[waiter].generation_id == 2


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"instance": "static"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_heartbeat_of_the_wrong_member_or_generation_is_refused(change: dict[str, object], error: ErrorCode) -> None:
    driver, (leader,) = a_stable_group()
    arguments = {"member_id": leader, **change}
    assert driver.heartbeat(**arguments) == error  # type: ignore[arg-type]  # a table of keyword arguments


def test_several_members_leave_at_once_and_each_has_its_own_error() -> None:
    driver, (leader, follower) = a_stable_group(2)
    driver.join(must_know_id=True)
    codes = driver.leave(follower, "nobody", "client-3", Leaving("", "static"), Leaving(leader, "static"))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert codes == [ErrorCode.NONE, unknown, ErrorCode.NONE, unknown, unknown]
    assert list(driver.group.members) == [leader]
    assert not driver.group.pending_members


def test_a_member_that_is_put_out_while_it_waits_is_told() -> None:
    driver, (leader, follower) = a_stable_group(2)
    joining = driver.join(leader)
    driver.leave(leader)
    assert driver.joined[joining].error == ErrorCode.UNKNOWN_MEMBER_ID
    again = driver.join(follower)
    assert driver.joined[again].generation_id == 2
    other = driver.join()
    again = driver.join(follower)
    syncing = driver.sync(driver.member_id(other))
    driver.leave(driver.member_id(other))
    assert driver.synced[syncing].error == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_to_leave_a_rebalance_ends_it() -> None:
    driver, (leader, follower) = a_stable_group(2)
    driver.join(leader)
    driver.leave(follower)
    assert driver.state is GroupState.COMPLETING_REBALANCE


def test_a_group_that_all_have_left_is_empty_and_has_no_timers() -> None:
    driver, ids = a_stable_group(3)
    driver.leave(*ids)
    driver.pass_time(60_000)
    assert driver.state is GroupState.EMPTY
    assert driver.group.leader_id is None
    assert deadlines(driver) == []


@pytest.mark.parametrize(
    ("state", "member", "generation", "error"),
    [
        (GroupState.EMPTY, "", -1, ErrorCode.NONE),
        (GroupState.EMPTY, "x", -1, ErrorCode.NONE),
        (GroupState.EMPTY, "x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        (GroupState.STABLE, "", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        (GroupState.STABLE, "leader", 1, ErrorCode.NONE),
        (GroupState.STABLE, "leader", 0, ErrorCode.ILLEGAL_GENERATION),
        (GroupState.STABLE, "leader", -1, ErrorCode.ILLEGAL_GENERATION),
        (GroupState.PREPARING_REBALANCE, "leader", 1, ErrorCode.NONE),
        (GroupState.COMPLETING_REBALANCE, "leader", 2, ErrorCode.REBALANCE_IN_PROGRESS),
        (GroupState.DEAD, "leader", 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_members_commit_in_their_generation_and_others_while_there_are_no_members(
    state: GroupState, member: str, generation: int, error: ErrorCode
) -> None:
    driver, (leader, follower) = a_stable_group(2)
    if state is GroupState.EMPTY:
        driver = GroupDriver()
    elif state is GroupState.DEAD:
        driver.unload()
    elif state is not GroupState.STABLE:
        driver.join(leader)
        if state is GroupState.COMPLETING_REBALANCE:
            driver.join(follower)
    assert driver.state is state
    assert driver.group.on_commit(Committer(leader if member == "leader" else member, None, generation, False, 9))[0] == error


def test_a_commit_keeps_a_session_alive() -> None:
    driver, (leader,) = a_stable_group()
    driver.pass_time(9_000)
    driver.run(driver.group.on_commit(Committer(leader, None, 1, False, 9))[1])
    driver.pass_time(9_000)
    assert driver.heartbeat(leader) == ErrorCode.NONE


def test_whoever_waits_when_the_group_moves_is_sent_away() -> None:
    driver, (leader, _) = a_stable_group(2)
    joining = driver.join(leader)
    driver.unload()
    assert driver.joined[joining].error == ErrorCode.NOT_COORDINATOR
    driver = GroupDriver(stores_at_once=False)
    first = driver.join()
    driver.pass_time(0)
    syncing = driver.sync(driver.member_id(first), {})
    driver.unload()
    assert driver.synced[syncing].error == ErrorCode.NOT_COORDINATOR
    driver.finish_store()
    assert not driver.waiting


def test_members_of_a_loaded_group_have_a_session_timeout_to_be_heard_of() -> None:
    driver, (leader, follower) = a_stable_group(2)
    driver.timers.clear()
    driver.load()
    driver.pass_time(9_000)
    driver.heartbeat(leader)
    driver.pass_time(2_000)
    assert list(driver.group.members) == [leader]
    assert follower not in driver.timers
