"""Offsets that are deleted: with their group, with their topic, or alone."""

import asyncio
import itertools

import pytest

from ottla.broker.handlers.groups import offset_delete
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.request.context import RequestContext
from ottla.coordination.groups import subscriptions
from ottla.coordination.groups.commits import Transaction
from ottla.coordination.groups.offset_commits import OFFSETS_TOGETHER
from ottla.coordination.groups.offset_records import OffsetAndMetadata, OffsetKey
from ottla.coordination.groups.records import GroupKey
from ottla.coordination.supported_operation import SupportedOperation
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.protocol.topic_partition import TopicPartition
from tests.support.connections import ClientConnection
from tests.support.group_bench import T0, T1, GroupBench, run, tombstones
from tests.support.pauses import Steps, at_once, every_pause_waits
from tests.support.services import services_with


def test_deleting_a_group_leaves_tombstones() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        member_id = bench.a_member()
        bench.commit(1, member_id=member_id, generation=1)
        assert (bench.delete("g"), bench.delete("none")) == (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND)
        bench.pass_time(11_000)
        assert bench.delete("g") == ErrorCode.NONE
        assert tombstones(bench) == [OffsetKey("g", T0), GroupKey("g")]
        assert bench.delete("g") == ErrorCode.GROUP_ID_NOT_FOUND

    run(scenario)


def test_tombstones_are_written_that_do_not_fit_into_one_batch() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        topic = "t" * 249
        for first in (0, 2_500):
            partitions = [TopicPartition(topic, index) for index in range(first, first + 2_500)]
            assert set(bench.commit_all(dict.fromkeys(partitions, OffsetAndMetadata(1, -1, "", 0)))) == {ErrorCode.NONE}
        assert bench.delete("g") == ErrorCode.NONE
        assert len(tombstones(bench)) == 5_000

    run(scenario)


def commit_many(bench: GroupBench, count: int) -> list[TopicPartition]:
    partitions = [TopicPartition("t", index) for index in range(count)]
    assert set(bench.commit_all(dict.fromkeys(partitions, OffsetAndMetadata(1, -1, "", bench.clock.now_ms())))) == {ErrorCode.NONE}
    return partitions


def test_a_group_is_deleted_some_offsets_in_a_step_and_its_clients_have_to_wait() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        partitions = commit_many(bench, 3 * OFFSETS_TOGETHER)
        written = [0]
        for _ in Steps(bench.groups.offsets.delete_group("g")):
            written.append(len(tombstones(bench)))
            assert bench.committed() == -1
            assert bench.commit(2) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
            assert bench.join()[0].error == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert bench.delete() == ErrorCode.GROUP_ID_NOT_FOUND
            assert bench.groups.offsets.delete_offsets("g", [T0]) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
            await bench.groups.offsets.expire()
            await bench.groups.on_partitions_deleted([T0])
        assert [after - before for before, after in itertools.pairwise(written)] == [OFFSETS_TOGETHER] * 3
        assert tombstones(bench) == [OffsetKey("g", partition) for partition in partitions]
        assert bench.commit(2) == [ErrorCode.NONE]
        await bench.lead(epoch=1, leader=1)
        await bench.lead(epoch=2)
        await bench.until_loaded()
        assert (bench.committed(), bench.committed(partition=T1)) == (2, -1)

    run(scenario)


def test_all_of_a_group_is_deleted_whose_offsets_are_in_a_transaction_too() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        commit_many(bench, OFFSETS_TOGETHER - 1)
        partitions = [TopicPartition("t", index) for index in range(2 * OFFSETS_TOGETHER)]
        offsets = dict.fromkeys(partitions, OffsetAndMetadata(2, -1, "", bench.clock.now_ms()))
        assert set(bench.commit_all(offsets, transaction=Transaction("tx", 1000, 0, SupportedOperation.GENERIC_ERROR))) == {ErrorCode.NONE}
        assert bench.delete() == ErrorCode.NONE
        assert tombstones(bench) == [OffsetKey("g", partition) for partition in partitions]

    run(scenario)


@pytest.mark.parametrize("whole", [True, False])
def test_a_deleted_offset_that_was_not_replicated_yet_does_not_come_back_with_the_next_load(whole: bool) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead(isr=(0, 1))
        codes = bench.commit(5)
        if whole:
            assert bench.delete() == ErrorCode.NONE
        else:
            assert bench.groups.offsets.delete_offsets("g", [T0, T1]) == (ErrorCode.NONE, [ErrorCode.NONE] * 2)
        assert tombstones(bench) == [OffsetKey("g", T0)]
        bench.follower_fetches()
        assert (codes, bench.committed()) == ([ErrorCode.NONE], -1)
        await bench.lead(epoch=1, leader=1, isr=(0, 1))
        await bench.lead(epoch=2, isr=(0, 1))
        await bench.until_loaded()
        assert (bench.committed(), bench.groups.count()) == (-1, 0)

    run(scenario)


def test_a_group_that_moves_away_during_its_deletion_is_to_be_deleted_by_its_new_coordinator() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        commit_many(bench, 2 * OFFSETS_TOGETHER)
        deletion = bench.groups.offsets.delete_group("g")
        next(Steps(deletion))
        await bench.lead(epoch=1, leader=1)
        assert at_once(deletion) == ErrorCode.NOT_COORDINATOR
        assert len(tombstones(bench)) == OFFSETS_TOGETHER

    run(scenario)


def test_a_group_that_never_had_members_leaves_no_tombstone_of_its_own() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit(1)
        bench.delete("g")
        assert tombstones(bench) == [OffsetKey("g", T0)]

    run(scenario)


def test_offsets_that_a_member_uses_cannot_be_deleted() -> None:
    subscription = b"\x00\x01" + b"\x00\x00\x00\x01\x00\x01t" + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x00"

    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        other = T0._replace(topic="other")
        bench.commit(1)
        bench.commit(1, partition=other)
        joined = bench.join(protocols=(("range", subscription),))
        bench.pass_time(10)
        delete = bench.groups.offsets.delete_offsets
        assert delete("g", [T0, other]) == (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE])
        assert (bench.committed(), bench.committed(partition=other)) == (1, -1)
        bench.leave()
        bench.pass_time(20_000)
        assert joined
        assert delete("g", [T0]) == (ErrorCode.NONE, [ErrorCode.NONE])
        assert delete("none", [T0]) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        assert tombstones(bench) == [OffsetKey("g", other), OffsetKey("g", T0), GroupKey("g")]

    run(scenario)


@pytest.mark.parametrize(("named", "is_known"), [(5_000, True), (10_000, False)])
def test_many_subscribed_topics_are_read_in_steps_up_to_a_limit(named: int, is_known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_TOPICS", 8_000)
    of_members = [
        b"\0\0" + ConsumerProtocolSubscription(topics=[f"{name}{number}" for number in range(named // 2 + 1)]).encode(0) for name in "ab"
    ]
    both = [(("range", data),) for data in of_members]

    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit(1)
        bench.commit(1, partition=TopicPartition("a1", 0))
        first = bench.join(protocols=both[0])
        bench.pass_time(10)
        bench.join(protocols=both[1])
        bench.join(member_id=first[0].member_id, protocols=both[0])
        group = bench.groups.groups.get("g")
        assert group is not None
        assert group.subscribed_topics() is None, "not read yet"
        steps = sum(1 for _ in group.read_subscriptions())
        assert steps >= named
        topics = group.subscribed_topics()
        assert (topics is not None) is is_known
        asked = [T0, TopicPartition("a1", 0)]
        codes = [ErrorCode.NONE if is_known else ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
        assert bench.groups.offsets.delete_offsets("g", asked) == (ErrorCode.NONE, codes)
        group.forget_subscriptions()
        assert group.subscribed_topics() is None

    run(scenario)


def test_offsets_of_members_with_an_unreadable_subscription_cannot_be_deleted() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit(1)
        bench.a_member()
        assert bench.groups.offsets.delete_offsets("g", [T0]) == (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])

    run(scenario)


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 2})
        bench.commit(1)
        bench.commit(1, partition=T1)
        bench.commit(1, partition=T0._replace(topic="other"))
        bench.delete_topic("t", 2)
        await bench.until(lambda: len(tombstones(bench)) == 2)
        assert bench.committed(partition=T0._replace(topic="other")) == 1

    run(scenario)


def test_a_topic_that_is_deleted_while_the_groups_are_loaded_takes_its_offsets_along() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 2})
        other = T0._replace(topic="other")
        for partition in (T0, other):
            bench.commit(1, partition=partition)
        await bench.lead(epoch=1, leader=1)
        await bench.lead(epoch=2)
        assert bench.groups.groups.is_loading
        bench.delete_topic("t", 2)
        await bench.until_loaded()
        assert (bench.committed(), bench.committed(partition=other)) == (-1, 1)
        assert tombstones(bench) == [OffsetKey("g", T0)]

    run(scenario)


def test_offsets_are_deleted_some_in_a_step_and_the_group_ends_with_its_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_delete, "PARTITIONS_TOGETHER", 1)

    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 2})
        bench.commit(1)
        partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in range(2)]
        request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=partitions)])
        services = services_with(groups=bench.groups, metadata=bench.replica_manager.cluster)
        context = RequestContext(ApiKey.OFFSET_DELETE, 0, 0, None, ClientConnection(), services, lambda _, __: CLOSE)
        response = at_once(offset_delete.handle_offset_delete(request, context))
        (topic,) = response.topics
        assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, 0), (1, 0)]
        assert (bench.committed(), bench.groups.count()) == (-1, 0)
        assert at_once(offset_delete.handle_offset_delete(request, context)).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    run(scenario)


def test_offsets_are_removed_by_batches_that_the_topic_accepts() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        partitions = [TopicPartition("t", index) for index in range(40)]
        for partition in partitions:
            assert bench.commit(1, partition=partition) == [ErrorCode.NONE]
        bench.delete("g")
        assert tombstones(bench) == [OffsetKey("g", partition) for partition in partitions]

    run(scenario, message_max_bytes=400)


@pytest.mark.parametrize("gives_up", [False, True])
def test_offsets_of_a_deleted_topic_are_deleted_in_some_groups_per_turn(gives_up: bool) -> None:
    count = 20

    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.announce({"t": 2})
        for number in range(count):
            bench.commit(1, group=f"g{number}")

        def left() -> int:
            return sum(bench.committed(group=f"g{number}") == 1 for number in range(count))

        every_pause_waits()
        deletion = asyncio.ensure_future(bench.groups.on_partitions_deleted([T0, T1]))
        seen = []
        while not deletion.done():
            await asyncio.sleep(0)
            seen.append(left())
            if gives_up and seen[-1] < count:
                deletion.cancel()
        assert left() == 0
        assert len(tombstones(bench)) == count
        if not gives_up:
            assert len(set(seen)) >= 3

    run(scenario)


def test_many_offsets_that_one_group_has_of_a_deleted_topic_are_deleted_in_steps() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        partitions = commit_many(bench, 3 * OFFSETS_TOGETHER)
        steps = bench.groups.offsets.delete_of_partitions(partitions)
        written = [0, *(len(tombstones(bench)) for _ in steps)]
        assert [size for before, after in itertools.pairwise(written) if (size := after - before)] == [OFFSETS_TOGETHER] * 3
        assert bench.groups.count() == 0

    run(scenario)
