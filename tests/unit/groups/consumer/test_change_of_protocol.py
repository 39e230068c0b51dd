"""Groups that change between the classic and the new protocol while commits and answers wait, or while they are loaded."""

from __future__ import annotations

from ottla.config.keys.groups import OFFSETS_RETENTION_CHECK_INTERVAL_MS
from ottla.coordination.groups.classic_group import ClassicGroup
from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.consumer.members import LEAVING
from ottla.coordination.groups.offset_commits import OFFSETS_TOGETHER
from ottla.coordination.groups.offset_records import OffsetAndMetadata
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from tests.support.group_bench import GroupBench, run


def is_classic(bench: GroupBench, name: str = "g") -> bool:
    return isinstance(bench.groups.groups.get(name), ClassicGroup)


async def an_empty_group(bench: GroupBench) -> None:
    """A consumer group that its only member has left, with an offset; all replicas have its records."""
    await bench.lead(isr=(0, 1))
    bench.announce({"t": 1})
    joined = bench.beat("m")
    await bench.until(lambda: bench.groups.consumer.machine.members == 1)
    left = bench.beat("m", LEAVING)
    await bench.until(lambda: bench.groups.consumer.machine.members == 0)
    bench.follower_fetches()
    assert ((await bench.answered(joined)).error, (await bench.answered(left)).error) == (ErrorCode.NONE, ErrorCode.NONE)
    codes = bench.commit(3)
    bench.follower_fetches()
    assert codes == [ErrorCode.NONE]


def lower(bench: GroupBench) -> None:
    """The level falls; the next members would be refused."""
    bench.level = 0
    bench.groups.on_levels_changed()


def test_a_commit_that_waits_for_replicas_counts_in_the_consumer_group_that_a_classic_one_becomes() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead(isr=(0, 1))
        bench.announce({"t": 1})
        codes = bench.commit(5)
        bench.beat("m")
        await bench.until(lambda: bench.groups.consumer.machine.members == 1)
        assert (codes, bench.committed(require_stable=True)) == ([], ErrorCode.UNSTABLE_OFFSET_COMMIT)
        bench.follower_fetches()
        assert (codes, bench.committed(), bench.committed(require_stable=True)) == ([ErrorCode.NONE], 5, 5)

    run(scenario)


def test_a_commit_that_waits_for_replicas_counts_in_the_classic_group_that_a_consumer_group_becomes() -> None:
    async def scenario(bench: GroupBench) -> None:
        await an_empty_group(bench)
        codes = bench.commit(5)
        lower(bench)
        await bench.until(lambda: is_classic(bench))
        assert codes == []
        bench.follower_fetches()
        assert (codes, bench.committed(), bench.committed(require_stable=True)) == ([ErrorCode.NONE], 5, 5)

    run(scenario)


def test_a_group_whose_last_answer_waits_for_replicas_leaves_the_protocol_when_the_level_falls() -> None:
    async def scenario(bench: GroupBench) -> None:
        await an_empty_group(bench)
        bench.beat("m")
        await bench.until(lambda: bench.groups.consumer.machine.members == 1)
        bench.follower_fetches()
        left = bench.beat("m", LEAVING)
        assert not left
        lower(bench)
        await bench.until(lambda: is_classic(bench))
        bench.follower_fetches()
        assert (await bench.answered(left)).error == ErrorCode.NONE
        assert bench.committed() == 3

    run(scenario)


def test_the_periodic_check_finds_groups_that_are_loaded_after_the_level_fell() -> None:
    async def scenario(bench: GroupBench) -> None:
        await an_empty_group(bench)
        await bench.lead(leader=1, epoch=1)
        lower(bench)
        await bench.lead(epoch=2, isr=(0, 1))
        await bench.until_loaded()
        assert isinstance(bench.groups.groups.get("g"), ConsumerGroup)
        bench.pass_time(bench.disks.broker[OFFSETS_RETENTION_CHECK_INTERVAL_MS])
        await bench.until(lambda: is_classic(bench))
        assert bench.committed() == 3

    run(scenario)


def test_all_offsets_of_a_deleted_topic_go_although_the_protocol_changes_between_two_of_the_steps() -> None:
    async def scenario(bench: GroupBench) -> None:
        await an_empty_group(bench)
        gone = [TopicPartition("t", index) for index in range(2 * OFFSETS_TOGETHER)]
        codes = bench.commit_all(dict.fromkeys(gone, OffsetAndMetadata(5, 3, "", bench.clock.now_ms())))
        bench.follower_fetches()
        assert set(codes) == {ErrorCode.NONE}
        steps = bench.groups.offsets.delete_of_partitions(gone)
        while len(bench.groups.offsets.committed("g")["t"]) == len(gone):
            next(steps)
        bench.level = 0
        await bench.groups.consumer.leave_protocol()
        assert is_classic(bench)
        assert sum(1 for _ in steps)
        assert not bench.groups.offsets.committed("g")

    run(scenario)


def test_a_group_that_is_being_loaded_stays_as_it_is() -> None:
    async def scenario(bench: GroupBench) -> None:
        await an_empty_group(bench)
        owned = bench.groups.groups.partitions[0]
        owned.is_loading = True
        bench.level = 0
        await bench.groups.consumer.leave_protocol()
        assert not is_classic(bench)
        owned.end_loading()
        await bench.groups.consumer.leave_protocol()
        assert is_classic(bench)

    run(scenario)
