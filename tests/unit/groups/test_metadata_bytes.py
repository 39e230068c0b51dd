"""The metadata of a group's members have a limit, and a member that does not ask for more keeps its place."""

import logging

import pytest

from ottla.coordination.groups.classic_group import Protocols
from ottla.coordination.groups.group import GroupState
from ottla.protocol.errors import ErrorCode
from tests.support.groups import GroupDriver, a_stable_group

SIZE = len("range") + len(b"subscription")


def metadata(size: int) -> Protocols:
    return (("range", bytes(size - len("range"))),)


def test_a_newcomer_is_refused_and_the_members_notice_nothing(caplog: pytest.LogCaptureFixture) -> None:
    driver, ids = a_stable_group(2, max_metadata_bytes=3 * SIZE)
    with caplog.at_level(logging.WARNING):
        refused = [driver.joined[driver.join(protocols=metadata(SIZE + 1))] for _ in range(3)]
    assert [(each.error, each.member_id) for each in refused] == [(ErrorCode.GROUP_MAX_SIZE_REACHED, "")] * 3
    assert [driver.heartbeat(each) for each in ids] == [ErrorCode.NONE] * 2
    assert driver.state is GroupState.STABLE
    [line] = caplog.messages
    assert line.startswith(
        "group g: client client (/127.0.0.1) is refused: the metadata of its members would take 1 bytes more than "
        f"ottla.group.max.metadata.bytes={3 * SIZE}"
    )
    driver.join(protocols=metadata(SIZE))
    assert len(driver.group.members) == 3


def test_the_metadata_of_all_protocols_count() -> None:
    driver = GroupDriver(max_metadata_bytes=100)
    assert driver.joined[driver.join(protocols=(("range", bytes(45)), ("sticky", bytes(45))))].error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_member_that_grows_too_large_is_refused_and_stays_a_member() -> None:
    driver, (leader, follower) = a_stable_group(2, max_metadata_bytes=3 * SIZE)
    refused = driver.joined[driver.join(follower, protocols=metadata(2 * SIZE + 1))]
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, follower)
    assert driver.heartbeat(follower) == ErrorCode.NONE
    waiters = [driver.join(leader), driver.join(follower, protocols=metadata(2 * SIZE))]
    assert [driver.joined[waiter].error for waiter in waiters] == [ErrorCode.NONE] * 2


def test_members_of_a_group_that_is_too_large_already_join_again() -> None:
    driver, ids = a_stable_group(3)
    driver.group.settings = driver.settings._replace(max_metadata_bytes=1)
    driver.load()
    waiters = [driver.join(each, protocols=metadata(SIZE)) for each in ids]
    assert [driver.joined[waiter].error for waiter in waiters] == [ErrorCode.NONE] * 3
    assert driver.generation == 2


def test_a_static_member_returns_with_the_same_metadata() -> None:
    driver = GroupDriver(max_metadata_bytes=SIZE)
    first = driver.join(instance="one")
    driver.pass_time(0)
    assert driver.joined[first].error == ErrorCode.NONE
    again = driver.join(instance="one")
    driver.pass_time(0)
    assert driver.joined[again].error == ErrorCode.NONE
    larger = driver.join(instance="one", protocols=metadata(SIZE + 1))
    assert driver.joined[larger].error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_rebalance_does_not_wait_for_a_pending_member_that_was_refused() -> None:
    driver, (leader,) = a_stable_group(1, max_metadata_bytes=SIZE)
    driver.group.settings = driver.settings._replace(max_metadata_bytes=2 * SIZE)
    pending = driver.member_id(driver.join(must_know_id=True))
    waiter = driver.join(leader)
    assert waiter in driver.waiting
    driver.join(pending, protocols=metadata(SIZE + 1), must_know_id=True)
    assert driver.joined[waiter].generation_id == 2


def test_what_a_member_took_is_free_when_it_has_left() -> None:
    driver, (leader, follower) = a_stable_group(2, max_metadata_bytes=2 * SIZE)
    assert driver.joined[driver.join()].error == ErrorCode.GROUP_MAX_SIZE_REACHED
    driver.leave(follower)
    driver.join(leader)
    assert driver.group.metadata_bytes == SIZE
    assert driver.join() in driver.waiting
