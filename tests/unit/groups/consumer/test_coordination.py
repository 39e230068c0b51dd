"""The shell around consumer groups: appends, failures, loads, groups that end; events wait for each other, and for threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ottla.coordination.groups.consumer.effects import Write
from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.consumer.machine import Event
from ottla.coordination.groups.consumer.members import LEAVING, Member
from ottla.coordination.groups.consumer.records import MemberMetadata
from ottla.coordination.groups.consumer.settings import GroupTimes
from ottla.coordination.groups.group import GroupState
from ottla.pauses import begin_slices
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from tests.support.consumer_groups import partitions_of, state_of, topic_id
from tests.support.group_bench import OFFSETS_TOPIC, T0, GroupBench, run


def group_of(bench: GroupBench, name: str = "g") -> ConsumerGroup:
    group = bench.groups.groups.get(name)
    assert isinstance(group, ConsumerGroup)
    return group


async def refuse_appends(bench: GroupBench) -> None:
    """There are too few replicas from now on."""
    bench.follower_fetches()
    await bench.lead(epoch=1, isr=(0,), replicas=(0, 1))


async def lead_with_two(bench: GroupBench) -> None:
    """Lead a partition that needs two replicas."""
    bench.disks.topics[OFFSETS_TOPIC] |= {"min.insync.replicas": "2"}
    await bench.lead(isr=(0, 1))


async def a_member(bench: GroupBench, member_id: str = "m", partitions: int = 4) -> None:
    """The only member of a group that has a topic."""
    await bench.lead()
    bench.announce({"t": partitions})
    answer = await bench.answered(bench.beat(member_id))
    assert (answer.error, answer.epoch, partitions_of(answer)) == (ErrorCode.NONE, 2, {"t": list(range(partitions))})


def test_a_member_gets_its_partitions_when_they_are_in_the_log() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_member(bench)
        assert [int.from_bytes((record.key or b"")[:2], "big") for record in bench.records()] == [5, 3, 7, 6, 8]
        assert bench.groups.describe("g") == (ErrorCode.NONE, None), "it is no classic group"
        assert bench.groups.consumer.describe("g")[2] is group_of(bench)

    run(scenario)


def test_an_answer_waits_for_the_replicas_and_so_does_the_next_which_tells_of_the_same_records() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead(isr=(0, 1))
        bench.announce({"t": 4})
        first = bench.beat("m")
        await bench.until(lambda: len(bench.records()) == 5)
        second = bench.beat("m", 2)
        assert (first, second) == ([], [])
        bench.follower_fetches()
        assert (first[0].epoch, second[0].epoch) == (2, 2)
        assert bench.beat("m", 2)[0].epoch == 2, "a heartbeat without records is answered at once"

    run(scenario)


def test_answers_that_wait_for_records_that_are_lost_are_errors() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead(isr=(0, 1))
        bench.announce({"t": 4})
        first = bench.beat("m")
        await bench.until(lambda: len(bench.records()) == 5)
        second = bench.beat("m", 2)
        await bench.lead(leader=1, epoch=1)
        assert [each.error for each in (*first, *second)] == [ErrorCode.NOT_COORDINATOR] * 2

    run(scenario)


def test_a_member_whose_records_are_not_replicated_in_time_looks_for_the_coordinator_and_does_not_end() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead(isr=(0, 1))
        bench.announce({"t": 4})
        joining = bench.beat("m")
        await bench.until(lambda: len(bench.records()) == 5)
        bench.pass_time(6_000)
        assert [each.error for each in joining] == [ErrorCode.COORDINATOR_NOT_AVAILABLE], "clients take REBALANCE_IN_PROGRESS for fatal"

    run(scenario)


def test_events_of_a_group_wait_for_its_target_and_those_of_others_do_not() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_member(bench)
        bench.pass_time(2_000)
        joining = bench.beat("n")
        beat = bench.beat("m", 2)
        other = bench.beat("o", 1, group="other")
        assert (joining, beat, other[0].error) == ([], [], ErrorCode.GROUP_ID_NOT_FOUND)
        assert (await bench.answered(joining)).epoch == 3
        assert partitions_of(beat[0]) == {"t": [0, 1]}

    run(scenario)


def test_other_groups_are_served_while_the_thread_has_an_expression_that_takes_long() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_member(bench)
        is_over = threading.Event()
        bench.workers.submit(is_over.wait)  # in the place of a long check; the one below waits behind it
        try:
            joining = bench.beat("n", group="slow", topics=None, regex="(a|b)*c")
            waits = bench.beat("n", 1, group="slow")
            assert bench.beat("m", 2)[0].error == ErrorCode.NONE
            assert (joining, waits) == ([], [])
        finally:
            is_over.set()
        await bench.answered(joining)
        assert waits

    run(scenario)


def test_events_that_waited_for_a_target_are_decided_in_slices_and_in_order() -> None:
    async def scenario(bench: GroupBench) -> None:
        begin_slices(asyncio.get_running_loop(), slice_ns=0)
        await a_member(bench)
        bench.pass_time(2_000)
        joining = bench.beat("n")
        beats = [bench.beat("m", 2) for _ in range(5)]
        answered = [0]
        while answered[-1] < len(beats):
            await asyncio.sleep(0)
            answered.append(sum(map(bool, beats)))
            assert all(beats[: answered[-1]]), "in order"
            assert answered[-1] - answered[-2] <= 1, "one in a turn"
        assert joining

    run(scenario)


def test_a_group_that_cannot_be_written_is_as_it_was_before() -> None:
    async def scenario(bench: GroupBench) -> None:
        await lead_with_two(bench)
        bench.announce({"t": 4})
        bench.beat("m")
        await bench.until(lambda: len(bench.records()) == 5)
        before = state_of(group_of(bench))
        bench.pass_time(2_000)
        await refuse_appends(bench)
        assert (await bench.answered(bench.beat("n"))).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert bench.beat("m", LEAVING)[0].error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        bench.pass_time(60_000)
        assert state_of(group_of(bench)) == before

    run(scenario)


def test_a_member_lives_while_the_log_does_not_take_what_it_says() -> None:
    async def scenario(bench: GroupBench) -> None:
        await lead_with_two(bench)
        bench.announce({"t": 4})
        bench.beat("m")
        await bench.until(lambda: len(bench.records()) == 5)
        bench.pass_time(2_000)
        await refuse_appends(bench)
        for _ in range(10):
            bench.pass_time(5_000)
            refused = await bench.answered(bench.beat("m", 2, topics=("t", "u")))
            assert refused.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await bench.lead(epoch=2, isr=(0, 1))
        bench.pass_time(5_000)
        assert group_of(bench).members.keys() == {"m"}

    run(scenario)


def test_an_event_whose_records_cannot_be_encoded_does_not_hold_up_the_next_ones() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_member(bench)
        refused: list[ErrorCode] = []
        damaged = MemberMetadata("m", Member("m", rebalance_timeout_ms=2**40))
        bench.groups.consumer.machine.submit(group_of(bench), Event(lambda context: [Write((damaged,))], refused.append))
        assert refused == [ErrorCode.UNKNOWN_SERVER_ERROR]
        bench.pass_time(2_000)
        assert (await bench.answered(bench.beat("n"))).error == ErrorCode.NONE

    run(scenario)


def test_a_group_is_loaded_as_it_was() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_member(bench)
        bench.pass_time(2_000)
        await bench.answered(bench.beat("n", instance_id="i", rack_id="r", assignor="range"))
        bench.commit(11, member_id="m", generation=2)
        before = state_of(group_of(bench))
        await bench.lead(leader=1, epoch=1)
        assert bench.groups.groups.get("g") is None
        await bench.lead(epoch=2)
        await bench.until_loaded()
        assert state_of(group_of(bench)) == before
        assert bench.committed() == 11
        answer = await bench.answered(bench.beat("m", 2, held={topic_id("t"): {2, 3}}))
        assert (answer.error, answer.epoch) == (ErrorCode.NONE, 3)

    run(scenario)


def test_members_of_a_loaded_group_have_a_session() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_member(bench)
        await bench.lead(leader=1, epoch=1)
        await bench.lead(epoch=2)
        await bench.until_loaded()
        bench.pass_time(44_000)
        assert group_of(bench).members
        bench.pass_time(2_000)
        assert not group_of(bench).members
        assert group_of(bench).state is GroupState.EMPTY

    run(scenario)


def test_a_target_for_a_group_that_moved_is_dropped() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_member(bench)
        bench.pass_time(2_000)
        answers, waiting = bench.beat("n"), bench.beat("m", 2)
        await bench.lead(leader=1, epoch=1)
        assert (await bench.answered(answers)).error == ErrorCode.NOT_COORDINATOR
        assert waiting[0].error == ErrorCode.NOT_COORDINATOR

    run(scenario)


@pytest.mark.parametrize("epoch", [3, -1])
def test_a_heartbeat_makes_no_group_unless_it_joins(epoch: int) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        assert bench.beat("m", epoch)[0].error == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await bench.answered(bench.beat("m", 0, regex="a.*", topics=None, held=None))).error == ErrorCode.INVALID_REQUEST
        assert bench.groups.count() == 0

    run(scenario)


def test_a_heartbeat_to_a_wrong_or_loading_coordinator_is_sent_on() -> None:
    async def scenario(bench: GroupBench) -> None:
        assert bench.beat("m")[0].error == ErrorCode.NOT_COORDINATOR
        await a_member(bench)
        await bench.lead(leader=1, epoch=1)
        await bench.lead(epoch=2)
        assert bench.beat("m", 2)[0].error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert bench.beat("m", 2)[0].message == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.message
        await bench.until_loaded()

    run(scenario)


def test_a_group_whose_first_join_fails_is_forgotten() -> None:
    async def scenario(bench: GroupBench) -> None:
        await lead_with_two(bench)
        await refuse_appends(bench)
        assert (await bench.answered(bench.beat("m"))).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert bench.groups.count() == 0

    run(scenario)


def test_a_group_without_members_is_deleted_with_its_records() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_member(bench)
        assert bench.delete() == ErrorCode.NON_EMPTY_GROUP
        await bench.answered(bench.beat("m", LEAVING))
        bench.commit(3)
        assert bench.delete() == ErrorCode.NONE
        await bench.lead(leader=1, epoch=1)
        await bench.lead(epoch=2)
        await bench.until_loaded()
        assert bench.groups.count() == 0

    run(scenario)


def test_offsets_of_subscribed_topics_cannot_be_deleted_and_do_not_expire() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_member(bench)
        bench.announce({"u": 1})
        for partition in (T0, TopicPartition("u", 0)):
            assert bench.commit(5, member_id="m", generation=2, partition=partition) == [ErrorCode.NONE]
        error, codes = bench.groups.offsets.delete_offsets("g", [T0, TopicPartition("u", 0)])
        assert (error, codes) == (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE])
        for _ in range(3):
            bench.clock.move(4 * 24 * 3_600_000)
            await bench.groups.offsets.expire()
        assert bench.committed() == 5

    run(scenario)


def test_members_fetch_offsets_in_their_epoch() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_member(bench)
        check = bench.groups.offsets.check_fetch
        assert check("g", None, -1) == check("g", "m", 2) == ErrorCode.NONE
        assert check("g", "m", 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert check("g", "n", 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert check("none", "n", 1) == ErrorCode.NONE

    run(scenario)


def test_a_session_ends_early_when_a_test_wants_it() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_member(bench)
        assert not bench.groups.expire_member("g", "n")
        assert bench.groups.expire_member("g", "m")
        assert not group_of(bench).members

    run(scenario)


@pytest.mark.slow
def test_five_thousand_members_that_join_at_once_are_served() -> None:
    async def scenario(bench: GroupBench) -> None:
        bench.groups.consumer.machine.settings = bench.groups.consumer.settings._replace(
            max_size=4_900, times_of=lambda group_id: GroupTimes(assignment_interval_ms=1_000)
        )
        await bench.lead()
        bench.announce({"t": 10_000})
        answers = [bench.beat(f"m{number}") for number in range(5_000)]
        for each in answers:
            await bench.answered(each)
        assert [each[0].error for each in answers] == [ErrorCode.NONE] * 4_900 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 100
        bench.pass_time(1_100)
        await bench.answered(bench.beat("m0", answers[0][0].epoch))
        assert group_of(bench).target_epoch == group_of(bench).epoch
        await asyncio.sleep(0)

    run(scenario)


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.STALE_MEMBER_EPOCH)])
def test_a_transactional_commit_of_another_epoch_gets_an_error_that_its_version_knows(version: int, error: ErrorCode) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 4})
        await bench.answered(bench.beat("m"))
        assert bench.commit_in_transaction(member_id="m", generation=9, version=version) == [error]

    run(scenario)


def types_of_tombstones(bench: GroupBench) -> set[int]:
    """The versions of the keys, which are the types of the records."""
    return {int.from_bytes((record.key or b"")[:2], "big") for record in bench.records() if record.value is None}


def test_without_the_feature_groups_without_members_become_classic_and_keep_their_offsets() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_member(bench)
        assert bench.commit(7, member_id="m", generation=2) == [ErrorCode.NONE]
        await bench.answered(bench.beat("m", LEAVING))
        await bench.answered(bench.beat("other", group="without offsets"))
        await bench.answered(bench.beat("other", LEAVING, group="without offsets"))
        bench.groups.on_levels_changed()
        assert isinstance(group_of(bench), ConsumerGroup)
        bench.level = 0
        bench.groups.on_levels_changed()
        await bench.until(lambda: not isinstance(bench.groups.groups.get("g"), ConsumerGroup))
        assert bench.committed() == 7
        await bench.until(lambda: bench.groups.groups.get("without offsets") is None)
        assert {3, 6} <= types_of_tombstones(bench)
        await bench.lead(leader=1, epoch=1)
        await bench.lead(epoch=2)
        await bench.until_loaded()
        assert bench.committed() == 7
        assert not isinstance(bench.groups.groups.get("g"), ConsumerGroup)

    run(scenario)


def test_without_the_feature_a_group_becomes_classic_when_the_session_of_its_last_member_is_over() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_member(bench)
        assert bench.commit(7, member_id="m", generation=2) == [ErrorCode.NONE]
        bench.level = 0
        bench.groups.on_levels_changed()
        assert list(group_of(bench).members) == ["m"]
        bench.pass_time(100_000)
        await bench.until(lambda: not isinstance(bench.groups.groups.get("g"), ConsumerGroup))
        assert bench.committed() == 7

    run(scenario)
