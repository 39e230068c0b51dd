"""JoinGroup of dynamic members: newcomers, rebalances, and who is refused."""

from typing import Any

import pytest

from ottla.coordination.groups.classic_group import Protocols
from ottla.coordination.groups.effects import Timer
from ottla.coordination.groups.group import GroupState
from ottla.protocol.errors import ErrorCode
from tests.support.groups import RANGE, GroupDriver, a_stable_group, settle

STICKY: Protocols = (("sticky", b"s"),)
BOTH: Protocols = (("range", b"r"), ("sticky", b"s"))


def test_the_first_member_leads_and_is_told_of_all() -> None:
    driver = GroupDriver()
    first, second = driver.join(), driver.join(protocols=BOTH)
    driver.pass_time(0)
    leader, follower = driver.joined[first], driver.joined[second]
    assert (leader.error, leader.generation_id, leader.protocol_type, leader.protocol_name) == (ErrorCode.NONE, 1, "consumer", "range")
    assert leader.leader_id == follower.leader_id == leader.member_id
    assert leader.members is not None
    assert leader.members == [(leader.member_id, None, b"subscription"), (follower.member_id, None, b"r")]
    assert follower.members is None
    assert driver.state is GroupState.COMPLETING_REBALANCE


def test_a_member_id_is_the_client_id_and_a_uuid() -> None:
    driver = GroupDriver()
    waiter = driver.join(client_id="me")
    driver.pass_time(0)
    assert driver.member_id(waiter) == "me-1"


def test_a_newcomer_has_to_come_again_with_the_id_it_was_given() -> None:
    driver = GroupDriver()
    asked = driver.join(must_know_id=True)
    given = driver.joined[asked]
    assert (given.error, given.generation_id, given.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1, "client-1")
    assert not driver.group.members
    assert driver.group.pending_members == {"client-1"}
    again = driver.join("client-1", must_know_id=True)
    driver.pass_time(0)
    assert driver.joined[again].error == ErrorCode.NONE
    assert not driver.group.pending_members


def test_a_pending_member_that_does_not_come_again_is_forgotten() -> None:
    driver = GroupDriver()
    driver.join(must_know_id=True, session_ms=10_000)
    driver.pass_time(9_999)
    assert driver.group.pending_members
    driver.pass_time(1)
    assert not driver.group.pending_members
    late = driver.join("client-1", must_know_id=True)
    assert driver.joined[late].error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_pending_members() -> None:
    driver, (leader,) = a_stable_group()
    driver.join(must_know_id=True, session_ms=10_000)
    waiter = driver.join(leader)
    driver.pass_time(9_999)
    assert waiter in driver.waiting
    driver.pass_time(1)
    assert driver.joined[waiter].generation_id == 2


def test_the_first_rebalance_waits_for_more_members_as_long_as_they_keep_coming() -> None:
    driver = GroupDriver(initial_rebalance_delay_ms=3_000)
    waiters = [driver.join(rebalance_ms=10_000)]
    driver.pass_time(2_900)
    waiters.append(driver.join(rebalance_ms=10_000))
    driver.pass_time(3_000)
    assert driver.state is GroupState.PREPARING_REBALANCE, "the delay was extended by the newcomer"
    driver.pass_time(200)
    assert driver.state is GroupState.COMPLETING_REBALANCE
    assert {driver.joined[waiter].generation_id for waiter in waiters} == {1}


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout() -> None:
    driver = GroupDriver(initial_rebalance_delay_ms=3_000)
    driver.join(rebalance_ms=7_000)
    for _ in range(6):
        driver.pass_time(1_000)
        driver.join(rebalance_ms=7_000)
        assert driver.state is GroupState.PREPARING_REBALANCE
    driver.pass_time(1_000)
    assert driver.state is GroupState.COMPLETING_REBALANCE


def test_a_newcomer_begins_a_rebalance_and_the_others_are_told_by_heartbeats() -> None:
    driver, (leader,) = a_stable_group()
    newcomer = driver.join()
    assert driver.state is GroupState.PREPARING_REBALANCE
    assert driver.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    again = driver.join(leader)
    assert driver.joined[again].generation_id == driver.joined[newcomer].generation_id == 2
    settle(driver, [newcomer, again])


def test_dynamic_members_that_do_not_join_in_time_are_put_out() -> None:
    driver, (leader, other) = a_stable_group(2)
    newcomer = driver.join(rebalance_ms=60_000)
    driver.join(other)
    for _ in range(13):
        driver.pass_time(5_000)
        driver.heartbeat(leader)
    assert driver.joined[newcomer].generation_id == 2
    assert leader not in driver.group.members
    assert driver.group.leader_id == other
    assert driver.heartbeat(leader) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_rebalance_timeout_is_the_longest_of_all_members() -> None:
    driver = GroupDriver()
    driver.join(rebalance_ms=5_000)
    driver.join(rebalance_ms=90_000)
    assert driver.group.rebalance_timeout_ms == 90_000


@pytest.mark.parametrize("member", ["leader", "follower with other metadata"])
def test_a_stable_group_rebalances_when_it_has_to(member: str) -> None:
    driver, (leader, follower) = a_stable_group(2)
    driver.join(*([leader] if member == "leader" else [follower]), protocols=RANGE if member == "leader" else (("range", b"new"),))
    assert driver.state is GroupState.PREPARING_REBALANCE


def test_a_follower_that_joins_again_with_the_same_metadata_gets_the_present_generation() -> None:
    driver, (leader, follower) = a_stable_group(2)
    again = driver.joined[driver.join(follower)]
    assert (again.error, again.generation_id, again.leader_id, again.members) == (ErrorCode.NONE, 1, leader, None)
    assert driver.state is GroupState.STABLE


def test_a_member_that_missed_the_answer_gets_it_again_before_the_assignment() -> None:
    driver = GroupDriver()
    first, second = driver.join(), driver.join()
    driver.pass_time(0)
    again = driver.joined[driver.join(driver.member_id(first))]
    assert (again.generation_id, len(again.members or [])) == (1, 2)
    again = driver.joined[driver.join(driver.member_id(second))]
    assert (again.generation_id, again.members) == (1, None)
    assert driver.state is GroupState.COMPLETING_REBALANCE


def test_other_metadata_before_the_assignment_begins_the_rebalance_anew() -> None:
    driver = GroupDriver()
    first, second = driver.join(), driver.join()
    driver.pass_time(0)
    waiting = driver.sync(driver.member_id(second))
    driver.join(driver.member_id(first), protocols=(("range", b"new"),))
    assert driver.synced[waiting].error == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.state is GroupState.PREPARING_REBALANCE


def test_a_second_join_of_a_member_answers_the_first() -> None:
    driver, (leader, _) = a_stable_group(2)
    first = driver.join(leader)
    driver.join(leader)
    assert driver.joined[first].error == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(driver.group.join_waiters) == 1


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", RANGE), ("consumer", STICKY), ("consumer", ()), ("", RANGE)],
    ids=["another type", "no common protocol", "no protocol", "no type"],
)
def test_a_member_has_to_speak_what_all_others_speak(protocol_type: str, protocols: Protocols) -> None:
    driver, (leader,) = a_stable_group()
    refused = driver.join(protocol_type=protocol_type, protocols=protocols)
    assert driver.joined[refused].error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert list(driver.group.members) == [leader]


def test_an_empty_group_takes_any_protocol_type() -> None:
    driver, (leader,) = a_stable_group()
    driver.leave(leader)
    waiter = driver.join(protocol_type="connect", protocols=STICKY)
    driver.pass_time(0)
    assert (driver.joined[waiter].protocol_type, driver.joined[waiter].protocol_name) == ("connect", "sticky")


def test_the_protocol_that_most_members_like_best_is_chosen() -> None:
    driver = GroupDriver()
    driver.join(protocols=BOTH)
    driver.join(protocols=BOTH[::-1])
    last = driver.join(protocols=(("other", b""), *BOTH[::-1]))
    driver.pass_time(0)
    assert driver.joined[last].protocol_name == "sticky"


def test_a_member_that_nobody_knows_is_refused() -> None:
    driver, _ = a_stable_group()
    assert driver.joined[driver.join("nobody")].error == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.joined[driver.join("nobody")].member_id == "nobody"


def test_a_full_group_takes_no_newcomers() -> None:
    driver, (leader, _) = a_stable_group(2, max_size=2)
    refused = driver.joined[driver.join()]
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert driver.heartbeat(leader) == ErrorCode.NONE


def test_in_a_rebalance_of_a_group_that_is_too_large_those_who_come_last_are_put_out() -> None:
    driver, (first, second, third) = a_stable_group(3)
    driver.group.settings = driver.settings._replace(max_size=2)
    driver.load()
    waiters = [driver.join(first), driver.join(second)]
    assert driver.joined[driver.join(third)].error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {driver.joined[waiter].generation_id for waiter in waiters} == {2}
    assert set(driver.group.members) == {first, second}


def test_a_newcomer_that_went_away_holds_up_the_first_rebalance_for_five_minutes_at_most() -> None:
    driver = GroupDriver(initial_rebalance_delay_ms=600_000)
    gone = driver.join(rebalance_ms=1_200_000)
    driver.pass_time(300_000)
    assert driver.joined[gone].error == ErrorCode.UNKNOWN_MEMBER_ID
    assert not driver.group.members


def test_nobody_joins_a_dead_group() -> None:
    driver, (leader,) = a_stable_group()
    driver.unload()
    assert driver.joined[driver.join()].error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.joined[driver.join(leader)].error == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.slow
def test_five_thousand_members_are_one_rebalance() -> None:
    driver = GroupDriver(initial_rebalance_delay_ms=3_000)
    waiters = [driver.join() for _ in range(5_000)]
    driver.pass_time(3_000)
    driver.pass_time(3_000)
    assert {driver.joined[waiter].generation_id for waiter in waiters} == {1}
    assert sum(1 for waiter in waiters if driver.joined[waiter].members is not None) == 1
    assert Timer.JOIN not in driver.timers


LONG = "\ufffd" * 11_000
"""What 11,000 bytes that are no UTF-8 become."""


@pytest.mark.parametrize(
    "join",
    [
        {"client_id": LONG, "instance": "i"},
        {"protocol_type": LONG},
        {"protocols": (*RANGE, (LONG, b""))},
    ],
)
def test_a_name_that_no_record_can_hold_is_refused(join: dict[str, Any]) -> None:
    driver = GroupDriver()
    refused = driver.join(**join)
    driver.pass_time(0)
    assert driver.joined[refused].error == ErrorCode.INVALID_REQUEST
    assert not driver.group.members
    assert driver.state is GroupState.EMPTY


@pytest.mark.parametrize(("client_id", "is_taken"), [("x" * 32_765, True), ("x" * 32_766, False), ("\N{ELEPHANT}" * 8_200, False)])
def test_a_member_id_that_no_record_can_hold_is_not_given(client_id: str, is_taken: bool) -> None:
    driver = GroupDriver()
    waiter = driver.join(client_id=client_id)
    driver.pass_time(0)
    assert driver.joined[waiter].error == (ErrorCode.NONE if is_taken else ErrorCode.INVALID_REQUEST)
    assert bool(driver.group.members) is is_taken
