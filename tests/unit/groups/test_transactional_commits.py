"""Offsets committed in transactions: when they count, who may commit them, and what is kept when a group is loaded, deleted or expires."""

import asyncio

import pytest

from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.offset_records import OffsetKey
from ottla.coordination.groups.records import read_key
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.topic_partition import TopicPartition
from tests.support.group_bench import T0, T1, GroupBench, run
from tests.support.logs import read_all

MINUTE = 60_000
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.mark.parametrize(("is_commit", "expected"), [(True, 8), (False, 7)])
def test_the_marker_decides(is_commit: bool, expected: int) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit(7)
        assert bench.commit_in_transaction(8) == [ErrorCode.NONE]
        assert (bench.committed(), bench.committed(require_stable=True)) == (7, UNSTABLE)
        assert bench.committed(partition=T1, require_stable=True) == -1
        bench.end_transaction(is_commit=is_commit)
        assert (bench.committed(), bench.committed(require_stable=True)) == (expected, expected)

    run(scenario)


def test_the_batch_is_the_producers_and_transactional() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit_in_transaction(8, producer_id=12, epoch=3)
        ((_, header),) = iter_batches(read_all(bench.partition().log))
        assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (12, 3, 0, True)
        (record,) = bench.records()
        assert read_key(record.key or b"") == OffsetKey("g", T0)

    run(scenario)


def test_of_two_transactions_the_later_in_the_log_wins_whichever_ends_first() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit_in_transaction(10, producer_id=1)
        bench.commit_in_transaction(20, producer_id=2)
        bench.end_transaction(2)
        assert (bench.committed(), bench.committed(require_stable=True)) == (20, UNSTABLE)
        bench.end_transaction(1)
        assert bench.committed(require_stable=True) == 20

    run(scenario)


def test_a_commit_of_a_consumer_after_one_in_a_transaction_stays(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit_in_transaction(10)
        bench.commit(20)
        assert "both consumers and transactional producers commit offsets" in caplog.text
        bench.end_transaction()
        assert bench.committed() == 20

    run(scenario)


def test_a_marker_is_about_its_producer_and_its_partition_only() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit_in_transaction(10, producer_id=1)
        bench.groups.on_transaction_completed(2, 0, True)
        bench.groups.on_transaction_completed(1, 1, True)
        assert bench.committed(require_stable=True) == UNSTABLE
        bench.end_transaction(1)
        bench.groups.on_transaction_completed(1, 0, False)
        assert bench.committed(require_stable=True) == 10

    run(scenario)


def test_one_marker_ends_the_transaction_in_all_groups_of_the_partition() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        for number, group in enumerate(("g", "h")):
            bench.commit_in_transaction(number, group=group)
        bench.commit_in_transaction(7, group="i", producer_id=2)
        bench.end_transaction()
        assert [bench.committed(group, require_stable=True) for group in ("g", "h", "i")] == [0, 1, UNSTABLE]

    run(scenario)


def test_offsets_whose_replicas_are_late_count_with_the_marker_all_the_same() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead(isr=(0, 1))
        codes = bench.commit_in_transaction(8)
        assert (codes, bench.committed(require_stable=True)) == ([], UNSTABLE)
        bench.pass_time(6_000)
        assert (codes, bench.committed(require_stable=True)) == ([ErrorCode.REQUEST_TIMED_OUT], UNSTABLE)
        bench.end_transaction()
        assert bench.committed() == 8, "a new coordinator reads the same from the log"

    run(scenario)


def test_what_the_log_refuses_is_not_pending() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit(1)
        bench.commit_in_transaction(2, epoch=5)
        bench.end_transaction(epoch=5)
        assert bench.commit_in_transaction(3, epoch=4) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert bench.committed(require_stable=True) == 2

    run(scenario)


@pytest.mark.parametrize("producer_id", [-1, -2])
def test_offsets_of_no_producer_count_at_once_as_no_marker_follows(producer_id: int) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        assert bench.commit_in_transaction(8, producer_id=producer_id) == [ErrorCode.NONE]
        assert bench.committed(require_stable=True) == 8
        await hand_over(bench, 1)
        await bench.until_loaded()
        assert bench.committed(require_stable=True) == 8

    run(scenario)


# -- who may commit ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("committer", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"member_id": "m"}, ErrorCode.NONE),
        ({"instance_id": "i"}, ErrorCode.NONE),
        ({"generation": 0}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "m", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_a_group_without_members_takes_offsets_without_a_generation(committer: dict[str, object], code: ErrorCode) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.level = 0
        for _ in range(2):
            assert bench.commit_in_transaction(8, **committer) == [code]  # type: ignore[arg-type]  # the columns of the table
            assert bench.groups.count() == (0 if code else 1)
        assert len(bench.records()) == (0 if code else 2)

    run(scenario)


@pytest.mark.parametrize(
    ("member_id", "instance_id", "generation", "code"),
    [
        ("the member", None, 1, ErrorCode.NONE),
        ("", None, -1, ErrorCode.NONE),
        ("the member", None, 0, ErrorCode.ILLEGAL_GENERATION),
        ("the member", None, 2, ErrorCode.ILLEGAL_GENERATION),
        ("the member", None, -1, ErrorCode.ILLEGAL_GENERATION),
        ("zombie", None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("the member", "unknown", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_group_with_members_fences_zombies(member_id: str, instance_id: str | None, generation: int, code: ErrorCode) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        known = bench.a_member()
        records = len(bench.records())
        sender = known if member_id == "the member" else member_id
        assert bench.commit_in_transaction(8, member_id=sender, instance_id=instance_id, generation=generation) == [code]
        assert (bench.committed(require_stable=True) == UNSTABLE) == (not code)
        assert (len(bench.records()) == records) == bool(code)

    run(scenario)


def test_an_instance_that_was_replaced_is_fenced() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        known = bench.a_member()
        group = bench.groups.groups.get("g")
        assert group is not None
        group.static_members["i"] = "another"  # type: ignore[attr-defined]  # a classic group
        assert bench.commit_in_transaction(8, member_id=known, instance_id="i", generation=1) == [ErrorCode.FENCED_INSTANCE_ID]
        del group.static_members["i"]  # type: ignore[attr-defined]  # as above

    run(scenario)


def test_a_rebalance_does_not_hold_a_transaction_up_and_its_commit_is_no_sign_of_life() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.join()
        bench.pass_time(10)
        group = bench.groups.groups.get("g")
        assert group is not None
        assert group.state is GroupState.COMPLETING_REBALANCE
        (member_id,) = group.members  # type: ignore[attr-defined]  # a classic group
        for _ in range(2):
            bench.pass_time(6_000)
            code = bench.commit_in_transaction(8, member_id=member_id, generation=1)[0]
        assert code == ErrorCode.UNKNOWN_MEMBER_ID
        assert bench.committed(require_stable=True) == UNSTABLE

    run(scenario)


# -- loading and letting go ----------------------------------------------------------------------------------------------------


async def hand_over(bench: GroupBench, epoch: int) -> None:
    """Broker 1 leads for a while."""
    await bench.lead(epoch=epoch, leader=1)
    assert bench.commit_in_transaction(1) == [ErrorCode.NOT_COORDINATOR]
    await bench.lead(epoch=epoch + 1)


@pytest.mark.parametrize(("is_commit", "expected"), [(True, 8), (False, 7)])
def test_a_group_is_handed_over_with_an_open_transaction(is_commit: bool, expected: int) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit(7)
        bench.commit_in_transaction(8)
        await hand_over(bench, 1)
        await bench.until_loaded()
        assert (bench.committed(), bench.committed(require_stable=True)) == (7, UNSTABLE)
        bench.end_transaction(is_commit=is_commit)
        assert bench.committed(require_stable=True) == expected

    run(scenario)


def test_a_marker_that_comes_while_the_group_loads_is_kept_until_then() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit_in_transaction(8)
        await hand_over(bench, 1)
        assert bench.commit_in_transaction(9) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        bench.groups.on_transaction_completed(1000, 0, True)
        await bench.until_loaded()
        assert bench.committed(require_stable=True) == 8

    run(scenario)


def test_a_marker_for_a_partition_that_is_lost_while_it_loads_is_left_to_the_log() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit_in_transaction(8)
        await hand_over(bench, 1)
        bench.groups.on_transaction_completed(1000, 0, True)
        await hand_over(bench, 3)
        await bench.until_loaded()
        assert bench.committed(require_stable=True) == UNSTABLE, "nothing in the log ends the transaction"

    run(scenario)


def test_nothing_is_remembered_of_the_transactions_of_groups_that_are_gone() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit_in_transaction(8)
        bench.commit_in_transaction(8, group="h")
        assert bench.delete("h") == ErrorCode.NONE
        await bench.lead(epoch=1, leader=1)
        assert bench.groups.groups.end_transaction(1000, 0) == []
        assert not bench.groups.groups._in_transactions

    run(scenario)


# -- deleting and expiry -------------------------------------------------------------------------------------------------------


def test_offsets_that_are_deleted_in_an_open_transaction_do_not_come_with_its_marker() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit_in_transaction(8)
        bench.commit_in_transaction(9, partition=T1)
        assert bench.groups.offsets.delete_offsets("g", [T0]) == (ErrorCode.NONE, [ErrorCode.NONE])
        assert bench.committed(require_stable=True) == -1
        bench.end_transaction()
        assert (bench.committed(), bench.committed(partition=T1)) == (-1, 9)

    run(scenario)


def test_offsets_of_a_deleted_topic_leave_an_open_transaction() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        other = TopicPartition("other", 0)
        bench.commit_in_transaction(8)
        bench.commit_in_transaction(9, partition=other)
        await bench.groups.on_partitions_deleted([T0, T1])
        bench.end_transaction()
        assert (bench.committed(), bench.committed(partition=other)) == (-1, 9)

    run(scenario)


def test_a_group_that_is_deleted_in_an_open_transaction_stays_deleted() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit(7)
        bench.commit_in_transaction(8)
        assert bench.delete("g") == ErrorCode.NONE
        bench.end_transaction()
        assert (bench.groups.count(), bench.committed()) == (0, -1)

    run(scenario)


@pytest.mark.parametrize("is_handed_over_first", [False, True])
def test_deleted_offsets_of_an_open_transaction_stay_deleted_after_a_handover(is_handed_over_first: bool) -> None:
    async def scenario(bench: GroupBench) -> None:
        async def hand_over(epoch: int) -> None:
            await bench.lead(epoch=epoch, leader=1)
            await bench.lead(epoch=epoch + 1)
            await bench.until_loaded()

        await bench.lead()
        bench.commit_in_transaction(7)
        bench.commit_in_transaction(8, partition=T1)
        bench.commit_in_transaction(9, group="h")
        assert bench.groups.offsets.delete_offsets("g", [T0]) == (ErrorCode.NONE, [ErrorCode.NONE])
        assert bench.delete("h") == ErrorCode.NONE
        if is_handed_over_first:
            await hand_over(1)
            assert bench.committed(require_stable=True) == -1
        bench.end_transaction()
        await hand_over(3)
        assert (bench.committed(), bench.committed(partition=T1), bench.committed("h")) == (-1, 8, -1)
        assert bench.groups.count() == 1

    run(scenario)


def test_expiry_leaves_offsets_alone_that_a_transaction_is_about_to_replace() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit(7)
        bench.commit(7, partition=T1)
        bench.commit_in_transaction(8)
        bench.clock.move(2 * MINUTE)
        await bench.groups.offsets.expire()
        assert (bench.committed(), bench.committed(partition=T1)) == (7, -1)
        bench.end_transaction(is_commit=False)
        await bench.groups.offsets.expire()
        await asyncio.sleep(0)
        assert (bench.committed(), bench.groups.count()) == (-1, 0)
        assert [read_key(record.key or b"") for record in bench.records() if record.value is None][:2] == [
            OffsetKey("g", T1),
            OffsetKey("g", T0),
        ]

    run(scenario, offsets_retention_minutes=1)


def test_a_group_with_nothing_but_an_open_transaction_does_not_expire() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit_in_transaction(8)
        bench.clock.move(2 * MINUTE)
        await bench.groups.offsets.expire()
        bench.end_transaction()
        assert bench.committed() == 8

    run(scenario, offsets_retention_minutes=1)
