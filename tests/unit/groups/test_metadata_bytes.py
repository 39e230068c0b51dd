"""The metadata of a group's members have a limit, and a member that does not ask for more keeps its place."""

import logging

import pytest

from ottla.coordination.groups.classic_group import Protocols
from ottla.coordination.groups.consumer.effects import Beat, BeatResult
from ottla.coordination.groups.consumer.members import NAME_BYTES
from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.metadata_bytes import GROUP_BYTES, MEMBER_BYTES, MetadataBytes, name_bytes
from ottla.protocol.errors import ErrorCode
from tests.support.group_bench import GroupBench, run
from tests.support.groups import GroupDriver, a_stable_group, settle

EMPTY_SUBSCRIPTION = bytes(2 + 4 + 4)
"""Of the consumer protocol: the version, no topics, and no data of the assignor."""
EMPTY_ASSIGNMENT = bytes(2 + 4 + 4)
SIZE = len("range") + len(b"subscription")
PART = len(b"part of client-1")
NAMES = name_bytes("client-1", "client")
MEMBER = SIZE + NAMES
"""What a member of the driver takes in its group."""
FULL = MEMBER + MEMBER_BYTES
"""What it takes of the budget."""


def metadata(size: int) -> Protocols:
    return (("range", bytes(size - len("range"))),)


def test_a_newcomer_is_refused_and_the_members_notice_nothing(caplog: pytest.LogCaptureFixture) -> None:
    driver, ids = a_stable_group(2, max_metadata_bytes=3 * MEMBER + 2 * PART)
    with caplog.at_level(logging.WARNING):
        refused = [driver.joined[driver.join(protocols=metadata(SIZE + 1))] for _ in range(3)]
    assert [(each.error, each.member_id) for each in refused] == [(ErrorCode.GROUP_MAX_SIZE_REACHED, "")] * 3
    assert [driver.heartbeat(each) for each in ids] == [ErrorCode.NONE] * 2
    assert driver.state is GroupState.STABLE
    [line] = caplog.messages
    assert line.startswith(
        "group g: client client (/127.0.0.1) is refused: the metadata of its members would take 1 bytes more than "
        f"ottla.group.max.metadata.bytes={3 * MEMBER + 2 * PART}"
    )
    driver.join(protocols=metadata(SIZE))
    assert len(driver.group.members) == 3


def test_the_metadata_of_all_protocols_count() -> None:
    driver = GroupDriver(max_metadata_bytes=100 + NAMES)
    assert driver.joined[driver.join(protocols=(("range", bytes(45)), ("sticky", bytes(45))))].error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_member_that_grows_too_large_is_refused_and_stays_a_member() -> None:
    driver, (leader, follower) = a_stable_group(2, max_metadata_bytes=2 * MEMBER + SIZE + 2 * PART)
    refused = driver.joined[driver.join(follower, protocols=metadata(2 * SIZE + 1))]
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, follower)
    assert driver.heartbeat(follower) == ErrorCode.NONE
    waiters = [driver.join(leader), driver.join(follower, protocols=metadata(2 * SIZE))]
    assert [driver.joined[waiter].error for waiter in waiters] == [ErrorCode.NONE] * 2


def test_members_of_a_group_that_is_too_large_already_join_again() -> None:
    driver, ids = a_stable_group(3)
    driver.budget.max_bytes_of_group = 1
    driver.load()
    waiters = [driver.join(each, protocols=metadata(SIZE)) for each in ids]
    assert [driver.joined[waiter].error for waiter in waiters] == [ErrorCode.NONE] * 3
    assert driver.generation == 2


def test_a_static_member_returns_with_the_same_metadata() -> None:
    driver = GroupDriver(max_metadata_bytes=MEMBER)
    first = driver.join(instance="one")
    driver.pass_time(0)
    assert driver.joined[first].error == ErrorCode.NONE
    again = driver.join(instance="one")
    driver.pass_time(0)
    assert driver.joined[again].error == ErrorCode.NONE
    larger = driver.join(instance="one", protocols=metadata(SIZE + 1))
    assert driver.joined[larger].error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_rebalance_does_not_wait_for_a_pending_member_that_was_refused() -> None:
    driver, (leader,) = a_stable_group(1, max_metadata_bytes=MEMBER + PART)
    driver.budget.max_bytes_of_group = 2 * MEMBER + PART
    pending = driver.member_id(driver.join(must_know_id=True))
    waiter = driver.join(leader)
    assert waiter in driver.waiting
    driver.join(pending, protocols=metadata(SIZE + 1), must_know_id=True)
    assert driver.joined[waiter].generation_id == 2


def test_what_a_member_took_is_free_when_it_has_left_but_its_assignment_when_there_are_others() -> None:
    driver, (leader, follower) = a_stable_group(2, max_metadata_bytes=2 * MEMBER + 2 * PART)
    assert driver.joined[driver.join()].error == ErrorCode.GROUP_MAX_SIZE_REACHED
    driver.leave(follower)
    driver.join(leader)
    assert driver.group.metadata.taken == MEMBER + 2 * PART
    assert driver.join() in driver.waiting


# -- all groups together ---------------------------------------------------------------------------------------------------


def test_a_group_has_no_room_that_others_have_taken_and_one_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    driver, ids = a_stable_group(1, max_bytes_of_all=10_000)
    others = MetadataBytes()
    others.count_in(driver.budget)
    others.change(10_000 - 2 * FULL - PART)
    with caplog.at_level(logging.WARNING):
        refused = [driver.joined[driver.join(protocols=metadata(SIZE + 1))] for _ in range(3)]
    assert [each.error for each in refused] == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 3
    assert [driver.heartbeat(each) for each in ids] == [ErrorCode.NONE]
    assert caplog.messages == [
        "group g: client client (/127.0.0.1) is refused, as are others: the metadata of the members of all groups would take 1 bytes more "
        "than ottla.all.groups.max.metadata.bytes=10000; use fewer groups, topics or members, or raise it"
    ]
    others.count_out()
    driver.join(protocols=metadata(SIZE + 1))
    assert len(driver.group.members) == 2


def test_assignments_without_room_are_not_stored() -> None:
    driver = GroupDriver(max_bytes_of_all=FULL + 999)
    waiter = driver.join()
    driver.pass_time(0)
    leader = driver.member_id(waiter)
    refused = driver.sync(leader, {leader: bytes(1000)})
    assert driver.synced[refused].error == ErrorCode.UNKNOWN_SERVER_ERROR
    settle(driver, [waiter])
    assert driver.budget.taken == FULL + PART


def test_assignments_count_while_they_are_being_stored() -> None:
    driver = GroupDriver(stores_at_once=False)
    waiter = driver.join()
    driver.pass_time(0)
    leader = driver.member_id(waiter)
    driver.sync(leader, {leader: bytes(1000), "gone": bytes(9)})
    assert driver.budget.taken == FULL + 1009
    driver.finish_store()
    assert driver.budget.taken == FULL + 1000


def test_a_group_without_members_has_no_assignments() -> None:
    driver, (leader,) = a_stable_group(1)
    driver.leave(leader)
    assert (driver.state, driver.budget.taken) == (GroupState.EMPTY, 0)


def test_with_no_room_at_all_assignments_that_do_not_grow_are_stored_whoever_left_or_failed_before() -> None:
    driver, (leader, follower) = a_stable_group(2)
    driver.budget.max_bytes = 1
    driver.leave(follower)
    for store in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE):
        driver.join(leader)
        driver.stores_at_once = False
        synced = driver.sync(leader, {leader: bytes(2 * PART)})
        driver.finish_store(store)
        assert driver.synced[synced].error == store
    assert driver.budget.taken == FULL + 2 * PART
    driver.join(leader)
    assert driver.synced[driver.sync(leader, {leader: bytes(2 * PART + 1)})].error == ErrorCode.UNKNOWN_SERVER_ERROR


def test_with_no_room_at_all_a_loaded_member_joins_again_with_the_protocols_that_the_log_lacks() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        protocols = (("range", bytes(100)), ("cooperative-sticky", bytes(100)))
        joined = bench.join(protocols=protocols)
        bench.pass_time(3_000)
        member_id = (await bench.answered(joined)).member_id
        bench.sync(member_id, 1, {member_id: b"all"})
        await bench.lead(leader=1, epoch=1)
        await bench.lead(epoch=2)
        await bench.until_loaded()
        bench.groups.groups.metadata.max_bytes = 1
        again = bench.join(member_id=member_id, protocols=protocols)
        assert (await bench.answered(again)).error == ErrorCode.NONE
        larger = bench.join(member_id=member_id, protocols=(*protocols, ("sticky", b"")))
        assert (await bench.answered(larger)).error == ErrorCode.GROUP_MAX_SIZE_REACHED

    run(scenario)


MODERN = name_bytes("a", "client") + NAME_BYTES + len("t") + MEMBER_BYTES
"""What a member of the new protocol takes that subscribes to `t`."""


@pytest.mark.parametrize(("protocol", "of_group"), [("consumer", GROUP_BYTES + name_bytes("a")), ("share", 0)])
def test_members_that_ask_together_share_the_room_although_threads_compute_their_parts(protocol: str, of_group: int) -> None:
    topics = tuple("abcdefghij")
    size = name_bytes("a", "client") + len(topics) * (NAME_BYTES + 1) + MEMBER_BYTES
    assert size > of_group, "a group that is refused leaves no room for a member"

    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        answers: list[BeatResult] = []
        for name in "abc":
            beat = Beat(answers.append, name, 0, client_id="client", client_host="/", rebalance_timeout_ms=1, topics=topics, held={})
            if protocol == "share":
                bench.groups.share.heartbeat(name, beat)
            else:
                bench.groups.consumer.heartbeat(name, beat, requires_member_id=True)
        await bench.until(lambda: len(answers) == 3)
        assert sorted(each.error for each in answers) == [ErrorCode.NONE, *[ErrorCode.GROUP_MAX_SIZE_REACHED] * 2]
        assert bench.groups.groups.metadata.taken == size + of_group
        assert bench.groups.count() == 1

    run(scenario, ottla_all_groups_max_metadata_bytes=size + 3 * of_group)


def test_a_group_that_is_not_found_any_more_has_returned_all_bytes() -> None:
    driver, _ = a_stable_group(3)
    assert driver.group.metadata.taken == 3 * (MEMBER + PART)
    assert driver.budget.taken == 3 * (FULL + PART)
    driver.group.metadata.count_out()
    driver.group.metadata.count_out()
    assert driver.budget.taken == 0


def test_groups_of_both_protocols_share_the_memory_and_return_it() -> None:
    of_classic = FULL + GROUP_BYTES + name_bytes("classic")
    of_new = MODERN + GROUP_BYTES + name_bytes("new")

    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        budget = bench.groups.groups.metadata
        first = bench.join("classic")
        bench.pass_time(3_000)
        assert (await bench.answered(first)).error == ErrorCode.NONE
        assert budget.taken == of_classic
        joined = await bench.answered(bench.beat("a", group="new"))
        assert joined.error == ErrorCode.NONE
        assert budget.taken == of_classic + of_new
        full = [await bench.answered(bench.beat("b", group="new")), (await bench.answered(bench.join("classic", protocols=metadata(300))))]
        assert [each.error for each in full] == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
        assert (await bench.answered(bench.beat("a", joined.epoch, group="new", topics=("t",)))).error == ErrorCode.NONE
        await bench.answered(bench.beat("a", -1, group="new"))
        assert budget.taken == of_classic + of_new - MODERN
        await bench.stop_replica()
        assert budget.taken == 0

    run(scenario, ottla_all_groups_max_metadata_bytes=of_classic + of_new + 60)


def test_a_group_that_changes_its_protocol_is_counted_once() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        budget = bench.groups.groups.metadata
        protocols = (("range", EMPTY_SUBSCRIPTION),)
        first = bench.join(protocols=protocols)
        bench.pass_time(3_000)
        member_id = (await bench.answered(first)).member_id
        before = budget.taken
        of_group = GROUP_BYTES + name_bytes("g")
        assert before == len("range") + len(EMPTY_SUBSCRIPTION) + NAMES + MEMBER_BYTES + of_group
        bench.sync(member_id, 1, {member_id: EMPTY_ASSIGNMENT})
        assert (await bench.answered(bench.beat("a"))).error == ErrorCode.NONE
        assert budget.taken == before + MODERN

    run(scenario)
