"""Committed offsets: what is stored, when it counts, who is refused, and when it is forgotten."""

import asyncio
import itertools

import pytest

from ottla.coordination.groups.commits import Transaction
from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.offset_records import OffsetAndMetadata, OffsetKey, read_offset_value
from ottla.coordination.groups.offsets import GroupOffsets
from ottla.coordination.groups.records import GroupKey, read_key
from ottla.coordination.supported_operation import SupportedOperation
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.topic_partition import TopicPartition
from tests.support.group_bench import T0, T1, GroupBench, a_bench, a_commit, run, tombstones
from tests.support.logs import read_all
from tests.support.pauses import every_pause_waits

MINUTE = 60_000
A_TRANSACTION = Transaction("tx", 1000, 0, SupportedOperation.GENERIC_ERROR)


def test_a_commit_is_one_batch_as_apache_kafka_writes_it() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        assert bench.commit(42, metadata="note") == [ErrorCode.NONE]
        (record,) = bench.records()
        assert read_key(record.key or b"") == OffsetKey("g", T0)
        assert read_offset_value(record.value or b"") == OffsetAndMetadata(42, 3, "note", bench.clock.now_ms())
        ((_, header),) = iter_batches(read_all(bench.partition().log))
        assert (header.producer_id, header.base_sequence, header.is_transactional) == (-1, 0, False)

    run(scenario)


def test_a_commit_with_a_retention_time_of_its_own_is_stored_in_version_1() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit(1, expires_ms=bench.clock.now_ms() + MINUTE)
        value = bench.records()[0].value or b""
        assert value[:2] == b"\x00\x01"
        assert read_offset_value(value).expire_timestamp == bench.clock.now_ms() + MINUTE

    run(scenario)


def test_commits_are_compressed_when_asked() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit(1)
        ((_, header),) = iter_batches(read_all(bench.partition().log))
        assert header.compression_codec == 4
        assert len(bench.records()) == 1

    run(scenario, offsets_topic_compression_codec=4)


def test_an_offset_counts_when_all_replicas_have_it() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead(isr=(0, 1))
        codes = bench.commit(5)
        assert (codes, bench.committed()) == ([], -1)
        assert bench.committed(require_stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert bench.committed(partition=T1, require_stable=True) == -1
        bench.follower_fetches()
        assert (codes, bench.committed(require_stable=True)) == ([ErrorCode.NONE], 5)

    run(scenario)


def test_with_acks_1_nobody_waits_for_replicas() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead(isr=(0, 1))
        assert bench.commit(5) == [ErrorCode.NONE]
        assert bench.committed() == 5

    run(scenario, offsets_commit_required_acks=1)


def test_a_commit_that_is_not_replicated_in_time_does_not_count() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead(isr=(0, 1))
        codes = bench.commit(5)
        bench.pass_time(6_000)
        assert codes == [ErrorCode.REQUEST_TIMED_OUT]
        assert bench.committed(require_stable=True) == -1

    run(scenario)


def test_a_commit_fails_when_the_leader_changes_meanwhile() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead(isr=(0, 1))
        codes = bench.commit(5)
        await bench.lead(epoch=1, leader=1)
        assert codes == [ErrorCode.NOT_COORDINATOR]

    run(scenario)


def test_too_few_replicas_refuse_a_commit() -> None:
    async def scenario(bench: GroupBench) -> None:
        bench.disks.topics["__consumer_offsets"]["min.insync.replicas"] = "2"
        await bench.lead(isr=(0, 1))
        await bench.lead(epoch=1, isr=(0,))
        bench.partition().effective_min_isr = 2
        assert bench.commit(5) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    run(scenario)


def test_text_beyond_the_limit_is_refused_and_the_rest_committed() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        long, short = OffsetAndMetadata(1, -1, "x" * 4_097, 0), OffsetAndMetadata(2, -1, "x" * 4_096, 0)
        assert bench.commit_all({T0: long, T1: short}) == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
        assert (bench.committed(), bench.committed(partition=T1)) == (-1, 2)
        elephants = OffsetAndMetadata(1, -1, "\N{ELEPHANT}" * 2_049, 0)
        assert bench.commit_all({T0: elephants}) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]

    run(scenario)


def test_text_that_no_record_can_hold_is_refused_whatever_the_limit() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        assert bench.commit(metadata="x" * 32_768) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert bench.commit(metadata="\N{ELEPHANT}" * 8_192) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert bench.commit(metadata="\N{ELEPHANT}" * 8_191) == [ErrorCode.NONE]

    run(scenario, offset_metadata_max_bytes=100_000)


def test_a_member_of_a_group_that_is_gone_commits_in_no_generation() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.level = 0
        assert bench.commit(member_id="x", generation=3) == [ErrorCode.ILLEGAL_GENERATION]
        assert bench.commit_in_transaction(member_id="x", generation=3) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert bench.groups.count() == 0

    run(scenario)


@pytest.mark.parametrize(
    ("transaction", "version", "code"),
    [
        (None, 8, ErrorCode.ILLEGAL_GENERATION),
        (None, 9, ErrorCode.GROUP_ID_NOT_FOUND),
        (A_TRANSACTION, 5, ErrorCode.ILLEGAL_GENERATION),
        (A_TRANSACTION, 6, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_with_the_new_protocol_versions_that_know_the_error_are_told_that_the_group_is_gone(
    transaction: Transaction | None, version: int, code: ErrorCode
) -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        value = OffsetAndMetadata(7, 3, "", bench.clock.now_ms())
        assert bench.commit_all({T0: value}, member_id="x", generation=3, transaction=transaction, version=version) == [code]
        assert bench.groups.count() == 0

    run(scenario)


def test_of_two_commits_the_later_in_the_log_wins() -> None:
    offsets = GroupOffsets()
    first, second = (a_commit({T0: OffsetAndMetadata(offset, -1, "", 0)}) for offset in (1, 2))
    offsets.prepare(first)
    offsets.prepare(second)
    offsets.on_appended(second, 11)
    offsets.on_appended(first, 10)
    assert offsets.committed[T0].value.offset == 2
    assert not offsets.is_unstable(T0)


def test_offsets_of_a_transaction_count_when_it_is_committed() -> None:
    offsets = GroupOffsets()
    for producer_id, offset in ((1, 10), (2, 20)):
        offsets.on_appended_in_transaction(producer_id, a_commit({T0: OffsetAndMetadata(offset, -1, "", 0)}), offset)
    assert offsets.is_unstable(T0)
    offsets.complete_transaction(2, is_commit=True)
    offsets.complete_transaction(1, is_commit=True)
    assert offsets.committed[T0].value.offset == 20, "the other was earlier in the log"
    assert not offsets.is_unstable(T0)
    offsets.on_appended_in_transaction(4, a_commit({T0: OffsetAndMetadata(30, -1, "", 0)}), 40)
    offsets.complete_transaction(4, is_commit=False)
    assert offsets.committed[T0].value.offset == 20
    assert not offsets.transactional


def test_offsets_of_a_lone_consumer_expire_after_its_last_commit() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit(1)
        bench.pass_time(6 * MINUTE)
        bench.commit(2, partition=T1)
        bench.pass_time(5 * MINUTE)
        await bench.until(lambda: tombstones(bench) == [OffsetKey("g", T0)])
        assert (bench.committed(), bench.committed(partition=T1)) == (-1, 2)
        bench.pass_time(6 * MINUTE)
        await bench.until(lambda: bench.groups.count() == 0)

    run(scenario, offsets_retention_minutes=10, offsets_retention_check_interval_ms=MINUTE)


def test_offsets_of_a_group_expire_after_it_became_empty() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        member_id = bench.a_member()
        bench.commit(1, member_id=member_id, generation=1)
        for _ in range(180):
            bench.pass_time(5_000)
            bench.groups.heartbeat("g", member_id, None, 1)
        await asyncio.sleep(0.01)
        assert bench.committed() == 1, "nobody can tell what its members subscribe to"
        bench.pass_time(12 * MINUTE)
        await bench.until(lambda: bench.groups.count() == 0)
        assert tombstones(bench) == [OffsetKey("g", T0), GroupKey("g")]

    run(scenario, offsets_retention_minutes=10, offsets_retention_check_interval_ms=MINUTE)


def test_offsets_of_topics_that_no_member_subscribes_to_expire_while_the_group_is_stable() -> None:
    subscription = b"\x00\x01" + b"\x00\x00\x00\x01\x00\x01t" + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x00"

    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        other = T0._replace(topic="other")
        joined = bench.join(protocols=(("range", subscription),), session_ms=29 * MINUTE)
        bench.pass_time(10)
        member_id = joined[0].member_id
        assert bench.sync(member_id, 1, {member_id: b"all"})[0].error == ErrorCode.NONE
        for partition in (T0, other):
            bench.commit(1, member_id=member_id, generation=1, partition=partition)
        bench.pass_time(9 * MINUTE)
        await asyncio.sleep(0.01)
        assert (bench.committed(), bench.committed(partition=other)) == (1, 1)
        bench.pass_time(2 * MINUTE)
        await bench.until(lambda: bench.committed(partition=other) == -1)
        assert bench.committed() == 1
        assert tombstones(bench) == [OffsetKey("g", other)]

    run(scenario, offsets_retention_minutes=10, offsets_retention_check_interval_ms=MINUTE)


def test_offsets_are_kept_while_a_rebalance_goes_on() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit(1)
        bench.pass_time(59_000)
        bench.join(session_ms=29 * MINUTE)
        bench.pass_time(10)
        bench.pass_time(30_000)
        _, group = bench.groups.describe("g")
        assert group is not None
        assert group.state is GroupState.COMPLETING_REBALANCE  # the leader has not assigned yet
        await bench.groups.offsets.expire()
        assert bench.committed() == 1

    run(scenario, offsets_retention_minutes=1, offsets_retention_check_interval_ms=60 * MINUTE)


def test_a_client_may_give_its_offsets_another_time() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit(1, expires_ms=bench.clock.now_ms() + 3 * MINUTE)
        bench.pass_time(2 * MINUTE)
        assert bench.committed() == 1
        bench.pass_time(2 * MINUTE)
        await bench.until(lambda: bench.committed() == -1)

    run(scenario, offsets_retention_check_interval_ms=MINUTE)


def test_expiry_survives_a_partition_that_is_lost_meanwhile() -> None:
    async def scenario() -> None:
        async with a_bench(offsets_retention_minutes=1, offsets_retention_check_interval_ms=MINUTE) as bench:
            await bench.lead()
            for number in range(600):
                bench.commit(1, group=f"g{number}")
            bench.pass_time(MINUTE)
            await asyncio.sleep(0)
            await bench.lead(epoch=1, leader=1)
            await asyncio.sleep(0.01)
            assert bench.groups.count() == 0

    asyncio.run(scenario())


def test_others_have_their_turn_while_many_offsets_expire_and_what_they_commit_stays() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        old = OffsetAndMetadata(1, -1, "", bench.clock.now_ms())
        for topic in ("a", "b", "c"):
            bench.commit_all({TopicPartition(topic, index): old for index in range(50)})
        bench.pass_time(MINUTE)
        every_pause_waits()
        expiring = asyncio.get_running_loop().create_task(bench.groups.offsets.expire())
        await asyncio.sleep(0)
        seen = [bench.committed(partition=TopicPartition(topic, 0)) for topic in ("a", "b", "c")]
        assert seen == [-1, 1, 1]
        bench.commit(2, partition=TopicPartition("a", 0))
        await expiring
        assert [bench.committed(partition=TopicPartition(topic, 0)) for topic in ("a", "b", "c")] == [2, -1, -1]
        await bench.lead(epoch=1, leader=1)
        await bench.lead(epoch=2)
        await bench.until_loaded()
        _, group = bench.groups.describe("g")
        assert group is not None
        assert list(group.offsets.committed) == [TopicPartition("a", 0)]

    run(scenario, offsets_retention_minutes=1, offsets_retention_check_interval_ms=60 * MINUTE)


def test_groups_that_are_coordinated_elsewhere_are_forgotten_a_few_at_a_time() -> None:
    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        for number in range(100):
            bench.commit(1, group=f"g{number}")
        groups = bench.groups.groups.partitions[0].states
        every_pause_waits()
        await bench.lead(epoch=1, leader=1)
        assert bench.groups.count() == 0
        left = [len(groups)]
        while groups:
            await asyncio.sleep(0)
            left.append(len(groups))
        assert max(before - after for before, after in itertools.pairwise(left)) == 1

    run(scenario)
