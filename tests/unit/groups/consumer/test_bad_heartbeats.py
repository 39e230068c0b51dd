"""Heartbeats that no client sends are answered with Kafka's codes, and leave nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from tests.support.consumer_groups import ConsumerDriver, partitions_of, state_of, topic_id
from tests.support.groups import quiet

LONG = "x" * 100_000


def a_group() -> ConsumerDriver:
    """Member `a` has all four partitions."""
    driver = ConsumerDriver({"t": 4})
    assert partitions_of(driver.join("a")) == {"t": [0, 1, 2, 3]}
    return driver


@pytest.mark.parametrize(
    "held",
    [
        {topic_id("t"): {0, 1, 2, 3, 99}},
        {topic_id("t"): {0, 1, 2, 3}, topic_id("nowhere"): {0}, bytes(16): {2**31 - 1}},
        {topic_id("t"): set(range(500_000))},
    ],
)
def test_partitions_that_a_member_cannot_have_change_nothing(held: dict[bytes, set[int]]) -> None:
    driver = a_group()
    before, written = state_of(driver.group), len(driver.written)
    answer = driver.beat("a", 2, held=held)
    assert (answer.error, answer.epoch) == (ErrorCode.NONE, 2)
    assert (state_of(driver.group), len(driver.written)) == (before, written)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"epoch": 2**31 - 1}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "member_id": LONG}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "regex": LONG}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "regex": "|".join(f"topic-{number}" for number in range(10_000))}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "instance_id": LONG}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "rack_id": LONG}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 2, "instance_id": "another"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_heartbeat_without_sense_is_refused(fields: dict[str, Any], error: ErrorCode) -> None:
    driver = a_group()
    before = state_of(driver.group)
    given: dict[str, Any] = {"member_id": "a", **fields}
    if not given["epoch"]:
        given = {"rebalance_timeout_ms": 1_000, "topics": ("t",), "held": {}, **given}
    assert driver.beat(**given).error == error
    assert state_of(driver.group) == before


def test_a_member_may_fall_back_by_one_epoch_and_not_by_two() -> None:
    driver = a_group()
    for number in range(2):
        driver.pass_time(2_000)
        driver.grow("t", 5 + number)
        assert driver.beat("a", 2 + number).epoch == 3 + number
    before = state_of(driver.group)
    held = {topic_id("t"): {0}}
    assert driver.beat("a", 3, held=held).epoch == 4, "the answer may have been lost"
    assert driver.beat("a", 2, held=held).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert state_of(driver.group) == before


def test_an_instance_id_that_moves_from_member_to_member_has_one_owner() -> None:
    with quiet():
        driver = ConsumerDriver({"t": 4})
        driver.join("a", instance_id="i")
        assert driver.join("b", instance_id="i").error == ErrorCode.UNRELEASED_INSTANCE_ID
        driver.beat("a", -2, instance_id="i")
        for number in range(50):
            member_id = f"m{number}"
            assert partitions_of(driver.join(member_id, instance_id="i")) == {"t": [0, 1, 2, 3]}
            assert list(driver.group.members) == [member_id]
            assert driver.beat("a", 2, instance_id="i").error == ErrorCode.FENCED_INSTANCE_ID
            driver.beat(member_id, -2, instance_id="i")
        driver.pass_time(100_000)
        assert not driver.group.members
        assert not driver.timers
