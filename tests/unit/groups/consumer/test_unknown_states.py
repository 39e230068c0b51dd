"""The log may have a state of a member that only a later release knows: the member has to give up everything, and join again."""

from __future__ import annotations

import pytest

from ottla.coordination.groups.consumer.members import MemberState
from ottla.coordination.groups.consumer.records import CurrentAssignment
from ottla.protocol.errors import ErrorCode
from tests.support.consumer_groups import ConsumerDriver, partitions_of, state_of, topic_id


def a_member_in_an_unknown_state() -> ConsumerDriver:
    driver = ConsumerDriver({"t": 4})
    driver.join("a")
    member = driver.group.members["a"]._replace(state=MemberState.of(9))
    driver.group.apply(CurrentAssignment("a", member))
    return driver


@pytest.mark.parametrize("held", [None, {topic_id("t"): {0}}], ids=["says nothing of its partitions", "has some"])
def test_a_member_in_an_unknown_state_that_may_have_partitions_is_fenced(held: dict[bytes, set[int]] | None) -> None:
    driver = a_member_in_an_unknown_state()
    before = state_of(driver.group)
    assert driver.beat("a", 2, held=held).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert state_of(driver.group) == before


def test_a_member_in_an_unknown_state_that_has_no_partitions_gets_its_own() -> None:
    driver = a_member_in_an_unknown_state()
    answer = driver.beat("a", 2, held={}, topics=("t",), rebalance_timeout_ms=30_000)
    assert (answer.error, partitions_of(answer)) == (ErrorCode.NONE, {"t": [0, 1, 2, 3]})
    assert driver.group.members["a"].state is MemberState.STABLE


def test_a_fenced_member_joins_again() -> None:
    driver = a_member_in_an_unknown_state()
    assert driver.beat("a", 2).error == ErrorCode.FENCED_MEMBER_EPOCH
    answer = driver.join("a")
    assert (answer.error, partitions_of(answer)) == (ErrorCode.NONE, {"t": [0, 1, 2, 3]})
