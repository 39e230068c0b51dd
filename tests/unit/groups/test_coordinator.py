"""The shell around the groups: who is coordinator, what is appended and waited for, what is loaded and let go."""

import asyncio
import logging
from collections.abc import Coroutine, Hashable, Iterator, Sequence
from typing import Any

import pytest

from ottla.broker.handlers.groups.list_groups import handle_list_groups
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.request.context import RequestContext
from ottla.coordination.groups.effects import LeaveResult
from ottla.coordination.groups.group import Committer, Expiry, GroupState
from ottla.coordination.groups.membership import Leaving
from ottla.coordination.groups.metadata_bytes import MetadataBytes
from ottla.coordination.groups.offsets import GroupOffsets
from ottla.coordination.groups.rebalance import Join
from ottla.coordination.groups.records import GroupKey, read_group_value, read_key
from ottla.coordination.partitions.effects import Arm
from ottla.coordination.partitions.owned import absolute_hash
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.replication.waiting.timing_wheel import TimerTask
from tests.support.connections import ClientConnection
from tests.support.group_bench import OFFSETS_TOPIC, T0, GroupBench, a_bench, run
from tests.support.groups import RANGE
from tests.support.log_manager import Disks, a_future_log
from tests.support.pauses import Steps, at_once
from tests.support.services import services_with


@pytest.mark.parametrize(
    ("group", "partitions", "partition"),
    # Computed in Java; the hash of "polygenelubricants" is the one that has no absolute value.
    [
        ("g-java", 4, 0),
        ("g-java", 50, 30),
        ("", 50, 0),
        ("console-consumer-1", 50, 24),
        ("gruppe-ä", 50, 48),
        ("\N{ELEPHANT}-group", 50, 25),
        ("polygenelubricants", 50, 0),
    ],
)
def test_the_partition_of_a_group_is_that_of_apache_kafka(group: str, partitions: int, partition: int) -> None:
    assert absolute_hash(group) % partitions == partition


def test_a_broker_that_leads_nothing_coordinates_nothing() -> None:
    async def scenario(bench: GroupBench) -> None:
        assert bench.join()[0].error == ErrorCode.NOT_COORDINATOR
        assert bench.sync("x", 1, {})[0].error == ErrorCode.NOT_COORDINATOR
        assert bench.groups.heartbeat("g", "x", None, 1) == ErrorCode.NOT_COORDINATOR
        assert bench.leave()[0].error == ErrorCode.NOT_COORDINATOR
        assert bench.commit() == [ErrorCode.NOT_COORDINATOR]
        assert bench.groups.offsets.fetch("g", None, require_stable=False) == (ErrorCode.NOT_COORDINATOR, {})
        assert bench.groups.describe("g") == (ErrorCode.NOT_COORDINATOR, None)
        assert listed(bench) == (ErrorCode.NONE, [])
        assert bench.delete("g") == ErrorCode.NOT_COORDINATOR

    run(scenario)


def listed(bench: GroupBench, states: Sequence[str] = (), types: Sequence[str] = ()) -> tuple[int, list[str]]:
    """The answer to ListGroups."""
    response = at_once(list_groups(bench, states, types))
    return response.error_code, [each.group_id for each in response.groups]


def list_groups(bench: GroupBench, states: Sequence[str], types: Sequence[str] = ()) -> Coroutine[Any, Any, ListGroupsResponse]:
    context = RequestContext(ApiKey.LIST_GROUPS, 5, 0, "c", ClientConnection(), services_with(groups=bench.groups), lambda _, __: CLOSE)
    return handle_list_groups(ListGroupsRequest(states_filter=[*states], types_filter=[*types]), context)


def test_groups_that_are_not_listed_are_passed_over_in_steps_and_may_change_meanwhile() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        for number in range(20):
            bench.commit(group=f"g{number}")
        steps = list_groups(bench, ["Stable"])
        taken = 0
        for _ in Steps(steps):
            taken += 1
            bench.delete(f"g{taken}")
        assert taken >= 20
        assert listed(bench) == (ErrorCode.NONE, ["g0"])

    run(scenario)


def test_only_some_requests_know_a_group_without_a_name() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        assert bench.join("")[0].error == ErrorCode.INVALID_GROUP_ID
        assert bench.groups.heartbeat("", "x", None, 1) == ErrorCode.INVALID_GROUP_ID
        assert bench.commit(group="") == [ErrorCode.NONE]
        assert bench.committed("") == 7

    run(scenario)


def test_a_group_whose_name_no_record_can_hold_is_refused() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        assert bench.join("\ufffd" * 11_000)[0].error == ErrorCode.INVALID_GROUP_ID
        assert bench.commit(group="\ufffd" * 11_000) == [ErrorCode.INVALID_GROUP_ID]
        assert bench.groups.count() == 0

    run(scenario)


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_timeout_beyond_the_limits_is_refused(session_ms: int) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        assert bench.join(session_ms=session_ms)[0].error == ErrorCode.INVALID_SESSION_TIMEOUT

    run(scenario)


def test_a_group_begins_with_its_first_newcomer() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        assert bench.join(member_id="somebody")[0].error == ErrorCode.UNKNOWN_MEMBER_ID
        assert bench.groups.describe("g") == (ErrorCode.NONE, None)
        member_id = bench.a_member()
        _, group = bench.groups.describe("g")
        assert group is not None
        assert (group.state, list(group.members), bench.groups.count(GroupState.STABLE)) == (GroupState.STABLE, [member_id], 1)
        assert listed(bench, ["stable", "Dead"], ["Classic"]) == (ErrorCode.NONE, ["g"])
        assert listed(bench, ["Empty"]) == listed(bench, types=["consumer"]) == (ErrorCode.NONE, [])

    run(scenario)


def test_a_session_ends_and_the_empty_group_is_stored() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        member_id = bench.a_member()
        bench.pass_time(9_000)
        assert bench.groups.heartbeat("g", member_id, None, 1) == ErrorCode.NONE
        bench.pass_time(9_000)
        assert bench.groups.count(GroupState.STABLE) == 1
        bench.pass_time(2_000)
        assert bench.groups.count(GroupState.EMPTY) == 1
        keys = [read_key(record.key or b"") for record in bench.records()]
        assert keys == [GroupKey("g"), GroupKey("g")]
        assert read_group_value(bench.records()[-1].value or b"")[1].members == []

    run(scenario)


def test_an_assignment_is_handed_out_when_all_replicas_have_it() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead(isr=(0, 1))
        joined = bench.join()
        bench.pass_time(10)
        member_id = joined[0].member_id
        synced = bench.sync(member_id, 1, {member_id: b"all"})
        assert synced == []
        bench.follower_fetches()
        assert synced[0].assignment == b"all"

    run(scenario)


def test_an_assignment_that_was_loaded_is_handed_out_when_all_replicas_have_it() -> None:
    disks = Disks()

    async def first() -> str:
        async with a_bench(disks) as bench:
            await bench.lead(isr=(0, 1))
            joined = bench.join()
            bench.pass_time(10)
            member_id = joined[0].member_id
            bench.sync(member_id, 1, {member_id: b"all"})
            return member_id

    async def second(member_id: str) -> None:
        async with a_bench(disks) as bench:
            await bench.lead(epoch=1, isr=(0, 1))
            await bench.until_loaded()
            assert bench.sync(member_id, 1, {})[0].error == ErrorCode.REBALANCE_IN_PROGRESS
            bench.follower_fetches()
            assert bench.sync(member_id, 1, {})[0].assignment == b"all"

    asyncio.run(second(asyncio.run(first())))


def test_when_replicas_are_too_slow_the_members_join_again() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead(isr=(0, 1))
        joined = bench.join()
        bench.pass_time(10)
        synced = bench.sync(joined[0].member_id, 1, {})
        bench.pass_time(6_000)
        assert synced[0].error == ErrorCode.REBALANCE_IN_PROGRESS
        assert bench.groups.count(GroupState.PREPARING_REBALANCE) == 1

    run(scenario)


def test_whoever_waits_is_sent_away_when_another_broker_leads() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        member_id = bench.a_member()
        waiting = bench.join(protocols=(("range", b"other"),))
        await bench.lead(epoch=1, leader=1)
        assert waiting[0].error == ErrorCode.NOT_COORDINATOR
        assert bench.groups.heartbeat("g", member_id, None, 1) == ErrorCode.NOT_COORDINATOR
        assert bench.wheel.count == 1, "only the look for expired offsets is armed"

    run(scenario)


def test_the_next_coordinator_goes_on_with_groups_and_offsets() -> None:
    disks = Disks()

    async def first() -> str:
        async with a_bench(disks) as bench:
            await bench.lead()
            member_id = bench.a_member()
            assert bench.commit(9, member_id=member_id, generation=1, metadata="note") == [ErrorCode.NONE]
            assert bench.commit(5, group="simple") == [ErrorCode.NONE]
            return member_id

    async def second(member_id: str) -> None:
        async with a_bench(disks) as bench:
            await bench.lead(epoch=1)
            assert bench.join()[0].error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert bench.groups.heartbeat("g", member_id, None, 1) == ErrorCode.NONE
            assert bench.sync(member_id, 1, {})[0].error == ErrorCode.REBALANCE_IN_PROGRESS
            assert listed(bench)[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert bench.commit(10, member_id=member_id, generation=1) == [loading]
            assert bench.commit(6, group="simple") == [loading]
            assert bench.groups.offsets.fetch("g", {"t": [0]}, require_stable=False) == (loading, {})
            assert bench.groups.offsets.delete_offsets("g", [T0]) == (loading, [])
            assert bench.delete("g") == loading
            assert bench.leave()[0].error == loading
            assert bench.groups.describe("g") == (loading, None)
            await bench.until_loaded()
            assert bench.groups.heartbeat("g", member_id, None, 1) == ErrorCode.NONE
            assert bench.sync(member_id, 1, {})[0].assignment == b"all"
            assert (bench.committed(), bench.committed("simple"), bench.committed("other")) == (9, 5, -1)
            bench.pass_time(11_000)
            assert bench.groups.count(GroupState.EMPTY) == 2

    asyncio.run(second(asyncio.run(first())))


def test_a_log_that_moves_to_another_directory_while_it_is_loaded_is_read_on_there() -> None:
    disks = Disks(log_dirs="/a,/b")
    commits = 20

    async def first() -> None:
        async with a_bench(disks) as bench:
            await bench.lead()
            for group in range(commits):
                assert bench.commit(group, group=f"g{group}") == [ErrorCode.NONE]

    async def second() -> None:
        async with a_bench(disks, offsets_load_buffer_size=1) as bench:
            await bench.lead(epoch=1)
            await asyncio.sleep(0)  # a thread reads the first of many batches
            before = bench.partition().log
            a_future_log(bench.manager, before, "/b" if before.log_dir == "/a" else "/a")
            bench.manager.moves.start(before.topic_partition)
            disks.background.advance(1_000)
            disks.background.advance(120_000)  # until its files are deleted
            assert before.is_closed
            assert bench.groups.groups.is_loading
            await bench.until_loaded()
            assert [bench.committed(f"g{group}") for group in range(commits)] == list(range(commits))

    asyncio.run(first())
    asyncio.run(second())


def test_a_partition_that_is_lost_while_it_loads_is_not_installed() -> None:
    disks = Disks()

    async def first() -> None:
        async with a_bench(disks) as bench:
            await bench.lead()
            for number in range(300):
                bench.commit(number, group=f"g{number}")

    async def second() -> None:
        async with a_bench(disks) as bench:
            await bench.lead(epoch=1)
            await bench.lead(epoch=2, leader=1)
            await asyncio.sleep(0.05)
            assert bench.groups.count() == 0
            await bench.lead(epoch=3)
            await bench.until_loaded()
            assert bench.groups.count() == 300

    asyncio.run(first())
    asyncio.run(second())


def test_a_new_epoch_of_the_same_leader_changes_nothing() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        member_id = bench.a_member()
        await bench.lead(epoch=4)
        assert bench.groups.heartbeat("g", member_id, None, 1) == ErrorCode.NONE
        assert bench.commit(1, member_id=member_id, generation=1) == [ErrorCode.NONE]

    run(scenario)


def test_a_deleted_offsets_topic_takes_its_groups_along() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.a_member()
        await bench.stop_replica()
        assert bench.groups.count() == 0
        assert bench.join()[0].error == ErrorCode.NOT_COORDINATOR

    run(scenario)


def test_the_number_of_partitions_is_that_of_the_topic_when_it_was_first_seen() -> None:
    async def scenario(bench: GroupBench) -> None:
        assert bench.groups.groups.partition_count == 1
        bench.announce({"__consumer_offsets": 3})
        assert bench.groups.groups.partition_count == 3
        bench.announce({"__consumer_offsets": 5})
        assert bench.groups.groups.partition_count == 3

    run(scenario)


def test_a_stopped_coordinator_answers_that_it_is_not_available() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.a_member()
        waiting = bench.join(protocols=(("range", b"x"),))
        await bench.groups.stop()
        assert waiting[0].error == ErrorCode.NOT_COORDINATOR
        assert bench.join()[0].error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert listed(bench)[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(scenario)


def test_a_group_that_does_not_fit_into_a_record_cannot_assign() -> None:
    async def scenario(bench: GroupBench) -> None:
        bench.disks.topics["__consumer_offsets"]["max.message.bytes"] = "500"
        await bench.lead()
        joined = bench.join(protocols=(("range", bytes(1_000)),))
        bench.pass_time(10)
        assert bench.sync(joined[0].member_id, 1, {})[0].error == ErrorCode.UNKNOWN_SERVER_ERROR

    run(scenario)


def test_that_commits_are_refused_is_said_once_and_again_when_they_are_not(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: GroupBench) -> None:
        bench.disks.topics[OFFSETS_TOPIC] |= {"min.insync.replicas": "2"}
        await bench.lead(isr=(0, 1))
        await bench.lead(epoch=1, isr=(0,), replicas=(0, 1))
        for _ in range(3):
            assert bench.commit() == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        await bench.lead(epoch=2, isr=(0, 1))
        bench.commit()
        bench.commit()

    with caplog.at_level(logging.INFO):
        run(scenario)
    assert caplog.text.count("cannot be appended to (NOT_ENOUGH_REPLICAS)") == 1
    assert caplog.text.count("can be appended to again") == 1


def test_an_answer_that_fails_keeps_nobody_else_from_theirs(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()

        def fail(result: object) -> None:
            raise RuntimeError("cannot be sent")

        bench.groups.join("g", Join(fail, "", None, "bad", "/127.0.0.1", 60_000, 10_000, "consumer", RANGE))
        other = bench.join()
        bench.pass_time(10)
        bench.pass_time(10)
        assert other[0].generation_id == 1
        assert "cannot be sent" in caplog.text

    run(scenario)


@pytest.mark.slow
def test_five_thousand_members_join_sync_and_beat() -> None:
    async def scenario(bench: GroupBench) -> None:
        bench.disks.topics["__consumer_offsets"]["max.message.bytes"] = "10000000"
        await bench.lead()
        answers = [bench.join() for _ in range(5_000)]
        bench.pass_time(10)
        bench.pass_time(10)  # newcomers extend the delay once
        await bench.until(lambda: all(answers))
        ids = [answer[0].member_id for answer in answers]
        generation = answers[0][0].generation_id
        parts = dict.fromkeys(ids, b"x")
        synced = [bench.sync(member_id, generation, parts) for member_id in ids]
        await bench.until(lambda: all(synced))
        assert {each[0].error for each in synced} == {ErrorCode.NONE}
        assert {bench.groups.heartbeat("g", member_id, None, generation) for member_id in ids} == {ErrorCode.NONE}

    run(scenario)


class AGroupOfAnotherType:
    """Keeps to `Group` and is no classic group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.generation_id = 3
        self.protocol_type = "consumer"
        self.state = GroupState.STABLE
        self.metadata = MetadataBytes()
        self.offsets = GroupOffsets()
        self.timers: dict[Hashable, TimerTask] = {}

    group_type = "another"
    is_dead = False

    def end(self, now_ms: int) -> None:
        self.state = GroupState.DEAD
        self.is_dead = True

    def tombstones(self) -> list[bytes]:
        return [b"key"]

    def session_key(self, member_id: str) -> Hashable:
        return member_id

    def on_commit(self, committer: Committer) -> tuple[ErrorCode, list[Arm]]:
        return (ErrorCode.NONE, []) if committer.member_id == "m" else (ErrorCode.UNKNOWN_MEMBER_ID, [])

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def check_offset_deletion(self) -> ErrorCode:
        return ErrorCode.NONE

    def subscribed_topics(self) -> frozenset[str] | None:
        return frozenset({T0.topic})

    def read_subscriptions(self) -> Iterator[None]:
        return iter(())

    def forget_subscriptions(self) -> None:
        pass

    def expiry(self) -> Expiry | None:
        return None


def test_requests_of_members_do_not_know_a_group_of_another_type() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.groups.groups.add("g", AGroupOfAnotherType("g"))
        assert [bench.join(member_id=member_id)[0].error for member_id in ("", "m")] == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL] * 2
        assert bench.sync("m", 3, {})[0].error == ErrorCode.UNKNOWN_MEMBER_ID
        assert bench.groups.heartbeat("g", "m", None, 3) == ErrorCode.UNKNOWN_MEMBER_ID
        assert bench.leave(Leaving("m", None)) == [LeaveResult(ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID])]
        assert bench.groups.describe("g") == (ErrorCode.NONE, None)
        assert listed(bench, ["stable"], ["another"])[1] == ["g"]
        assert listed(bench, types=["classic"])[1] == []
        bench.groups.groups.partitions[0].states.clear()

    run(scenario)


def test_a_group_of_another_type_has_offsets_by_its_own_rules() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        group = AGroupOfAnotherType("g")
        bench.groups.groups.add("g", group)
        assert bench.commit(9, member_id="x", generation=3) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert bench.commit(9, member_id="m", generation=3) == [ErrorCode.NONE]
        assert bench.committed() == 9
        assert bench.groups.offsets.delete_offsets("g", [T0]) == (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
        assert bench.delete("g") == ErrorCode.NON_EMPTY_GROUP
        group.state = GroupState.EMPTY
        assert bench.delete("g") == ErrorCode.NONE
        assert [record.key for record in bench.records()][-1] == b"key"
        bench.groups.groups.partitions[0].states.clear()

    run(scenario)
