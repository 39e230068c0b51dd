"""Static members (KIP-345): who comes back under a new member id, who is fenced, and what a static leader may skip (KIP-814)."""

import pytest

from ottla.coordination.groups.effects import AfterStaticRejoin, Timer
from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.membership import Leaving
from ottla.coordination.groups.rebalance import LEAST_WAIT_MS, on_timer
from ottla.coordination.partitions.effects import Arm
from ottla.protocol.errors import ErrorCode
from tests.support.groups import RANGE, GroupDriver, settle


def a_static_group(**settings: int) -> tuple[GroupDriver, str, str]:
    """Two static members, a (the leader) and b, with their assignments; and their ids."""
    driver = GroupDriver(**settings)
    waiters = [driver.join(instance="a"), driver.join(instance="b")]
    driver.pass_time(0)
    settle(driver, waiters)
    return driver, driver.member_id(waiters[0]), driver.member_id(waiters[1])


def test_a_static_member_need_not_come_again_and_is_named_after_its_instance() -> None:
    _, a, b = a_static_group()
    assert (a, b) == ("a-1", "b-2")


def test_a_follower_that_comes_back_gets_a_new_id_and_no_rebalance() -> None:
    driver, a, b = a_static_group()
    back = driver.joined[driver.join(instance="b")]
    assert (back.error, back.member_id, back.generation_id, back.leader_id, back.members) == (ErrorCode.NONE, "b-3", 1, a, None)
    assert driver.state is GroupState.STABLE
    assert driver.synced[driver.sync("b-3", instance="b")].assignment == b"part of b-2"
    assert driver.heartbeat(b, instance="b") == ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat(b) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("may_skip", [True, False])
def test_a_leader_that_comes_back_is_leader_but_must_not_assign(may_skip: bool) -> None:
    driver, _, b = a_static_group()
    back = driver.joined[driver.join(instance="a", may_skip=may_skip)]
    assert driver.group.leader_id == "a-3"
    assert driver.state is GroupState.STABLE
    if may_skip:
        assert (back.leader_id, back.skip_assignment) == ("a-3", True)
        assert {member_id for member_id, _, _ in back.members or []} == {"a-3", b}
    else:
        assert (back.leader_id, back.skip_assignment, back.members) == ("a-1", False, None)


def test_the_new_id_is_stored_before_the_member_learns_it() -> None:
    driver, _, _ = a_static_group()
    driver.stores_at_once = False
    waiter = driver.join(instance="b")
    assert isinstance(driver.stored[-1], AfterStaticRejoin)
    assert waiter in driver.waiting
    driver.finish_store()
    assert driver.joined[waiter].member_id == "b-3"


def test_when_the_new_id_cannot_be_stored_the_old_one_goes_on() -> None:
    driver, a, b = a_static_group()
    driver.stores_at_once = False
    waiter = driver.join(instance="b", session_ms=30_000, protocols=(("range", b"other"),))
    driver.finish_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    refused = driver.joined[waiter]
    assert (refused.error, refused.member_id, refused.leader_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "", a)
    assert driver.heartbeat(b, instance="b") == ErrorCode.NONE
    assert (driver.group.members[b].session_timeout_ms, driver.group.members[b].protocols) == (10_000, RANGE)


def test_a_member_that_comes_back_during_a_rebalance_joins_it() -> None:
    driver, a, b = a_static_group()
    driver.join(a, instance="a")
    back = driver.join(instance="b")
    assert driver.joined[back].generation_id == 2
    assert set(driver.group.members) == {a, driver.member_id(back)}
    assert b not in driver.group.members


def test_who_waits_under_the_old_id_is_fenced() -> None:
    driver, _, b = a_static_group()
    driver.join()
    waiting = driver.join(b, instance="b")
    driver.join(instance="b")
    assert driver.joined[waiting].error == ErrorCode.FENCED_INSTANCE_ID
    assert driver.joined[driver.join(b, instance="b")].error == ErrorCode.FENCED_INSTANCE_ID


def test_a_member_that_comes_back_before_the_assignment_begins_the_rebalance_anew() -> None:
    driver = GroupDriver()
    waiters = [driver.join(instance="a"), driver.join(instance="b")]
    driver.pass_time(0)
    a, b = (driver.member_id(waiter) for waiter in waiters)
    syncing = driver.sync(b, instance="b")
    driver.join(instance="b")
    assert driver.synced[syncing].error == ErrorCode.FENCED_INSTANCE_ID
    assert driver.state is GroupState.PREPARING_REBALANCE
    assert driver.heartbeat(a, instance="a") == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_comes_back_with_another_protocol_begins_a_rebalance() -> None:
    driver = GroupDriver()
    both = (("range", b""), ("sticky", b""))
    waiters = [driver.join(instance="a", protocols=both), driver.join(instance="b", protocols=both)]
    driver.pass_time(0)
    settle(driver, waiters)
    driver.join(instance="b", protocols=both[1:])
    assert driver.state is GroupState.PREPARING_REBALANCE


def test_static_members_that_do_not_join_a_rebalance_stay_until_their_session_ends() -> None:
    driver = GroupDriver()
    waiters = [driver.join(instance="a", session_ms=300_000), driver.join(rebalance_ms=30_000)]
    driver.pass_time(0)
    settle(driver, waiters)
    static, dynamic = (driver.member_id(waiter) for waiter in waiters)
    again = driver.join(dynamic, protocols=(("range", b"new"),), rebalance_ms=30_000)
    driver.pass_time(60_000)
    assert driver.joined[again].generation_id == 2
    assert driver.joined[again].leader_id == dynamic, "a leader that did not join makes way for one that did"
    assert static in driver.group.members


def test_a_rebalance_that_no_static_member_joined_is_waited_for_once_more() -> None:
    driver, a, b = a_static_group()
    driver.leave(Leaving("", "b"))
    driver.group.members[a].session_timeout_ms = 300_000
    driver.heartbeat(a, instance="a")
    assert driver.state is GroupState.PREPARING_REBALANCE
    driver.pass_time(61_000)
    assert driver.state is GroupState.PREPARING_REBALANCE
    back = driver.join(a, instance="a")
    assert driver.joined[back].generation_id == 2
    assert b not in driver.group.members


def test_static_members_without_a_rebalance_timeout_are_waited_for_at_intervals() -> None:
    driver, a, _ = a_static_group()
    for member in driver.group.members.values():
        member.rebalance_timeout_ms = 0
    driver.leave(Leaving("", "b"))
    assert on_timer(driver.group, Timer.JOIN, driver.now_ms) == [Arm(Timer.JOIN, LEAST_WAIT_MS)]
    back = driver.join(a, instance="a")
    assert driver.joined[back].generation_id == 2


def test_an_operator_puts_a_static_member_out_by_its_instance_id() -> None:
    driver, a, _ = a_static_group()
    assert driver.leave(Leaving("", "b"), Leaving("a-0", "a")) == [ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID]
    assert set(driver.group.members) == {a}


def test_a_rebalance_that_begins_while_the_new_id_is_stored_answers_the_member() -> None:
    driver, a, _ = a_static_group()
    driver.stores_at_once = False
    back = driver.join(instance="b")
    driver.join(a, instance="a")
    driver.finish_store()
    assert driver.joined[back].generation_id == 2
    assert not driver.waiting


def test_a_new_id_that_could_not_be_stored_stays_in_a_rebalance_that_began_meanwhile() -> None:
    driver, a, _ = a_static_group()
    driver.stores_at_once = False
    back = driver.join(instance="b")
    driver.join(a, instance="a")
    new = driver.member_id(back)
    synced = [driver.sync(new, instance="b"), driver.sync(a, {a: b"of a", new: b"of b"}, instance="a")]

    driver.finish_store(ErrorCode.REBALANCE_IN_PROGRESS)
    driver.finish_store()

    assert [driver.synced[waiter].assignment for waiter in synced] == [b"of b", b"of a"]
    assert set(driver.group.members) == {a, new}
    assert driver.state is GroupState.STABLE


def test_a_member_that_comes_back_is_answered_if_its_time_to_ask_for_the_assignment_ends_while_the_new_id_is_stored() -> None:
    driver = GroupDriver()
    waiters = [driver.join(instance=each, session_ms=300_000, rebalance_ms=30_000) for each in ("a", "b")]
    driver.pass_time(0)
    a, b = map(driver.member_id, waiters)
    driver.sync(a, {a: b"of a", b: b"of b"}, instance="a")
    driver.stores_at_once = False
    back = driver.join(instance="b", session_ms=300_000, rebalance_ms=30_000)
    driver.pass_time(31_000)
    assert driver.joined[back].error == ErrorCode.UNKNOWN_MEMBER_ID
    driver.finish_store()
    assert set(driver.group.members) == {a}
    assert not driver.waiting


def test_a_static_member_is_never_pending() -> None:
    driver, _, _ = a_static_group()
    driver.join(must_know_id=True)
    (pending,) = driver.group.pending_members
    refused = driver.joined[driver.join(pending, instance="c")]
    assert (refused.error, refused.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
