"""TxnOffsetCommit from frame to answer, on the road of OffsetCommit: what is committed, and what is answered, for every version."""

import asyncio
from typing import Any

import pytest

from ottla.broker.handlers.groups.txn_offset_commit import handle_txn_offset_commit_frame
from ottla.broker.request.large_requests import LARGE_BYTES
from ottla.broker.request.services import Services
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.protocol.schema.wire import ProtocolError
from ottla.protocol.topic_partition import TopicPartition
from tests.support.connections import ClientConnection
from tests.support.group_bench import T0, GroupBench, a_bench, run
from tests.support.pauses import every_pause_waits
from tests.unit.groups.test_commit_requests import content_of, prepared, turns_until

VERSIONS = range(5)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def a_request(*named: tuple[str, int], metadata: str = "", **more: Any) -> TxnOffsetCommitRequest:
    """`named` are topics with how many of their partitions."""
    topics = [
        TxnOffsetCommitRequestTopic(
            name=name,
            partitions=[
                TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1000 + index, committed_metadata=metadata)
                for index in range(count)
            ],
        )
        for name, count in named
    ]
    return TxnOffsetCommitRequest(transactional_id="tx", group_id="g", producer_id=1000, producer_epoch=0, topics=topics, **more)


def ask(services: Services, version: int, request: TxnOffsetCommitRequest) -> Any:
    frame = memoryview(bytearray(request.encode(version)))
    return handle_txn_offset_commit_frame(frame, 0, version, 77, ClientConnection(), services)  # type: ignore[arg-type]  # as much of one as it needs


def answered(answer: Any, version: int) -> dict[str, list[tuple[int, int]]]:
    """By topic, (partition, error code) in order."""
    content = content_of(answer)
    assert content is not None
    response, end = TxnOffsetCommitResponse.decode(content, version, 5 if version >= 3 else 4)
    assert end == len(content)
    return {topic.name: [(each.partition_index, each.error_code) for each in topic.partitions] for topic in response.topics}


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_are_answered_when_all_replicas_have_them_and_count_with_the_marker(version: int) -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench, (0, 1))
        answer = ask(services, version, a_request(("t", 2), ("ümlaut", 1), metadata="note"))
        assert content_of(answer) is None
        assert bench.committed(require_stable=True) == UNSTABLE
        bench.follower_fetches()
        assert answered(answer, version) == {"t": [(0, 0), (1, 0)], "ümlaut": [(0, 0)]}
        assert services.error_counts == {ApiKey.TXN_OFFSET_COMMIT << 16: 3}
        bench.end_transaction()
        assert bench.committed(partition=TopicPartition("t", 1)) == 1001

    run(scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_and_partitions_that_do_not_exist_are_refused_and_the_rest_committed(version: int) -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench)
        answer = ask(services, version, a_request(("gone", 2), ("u", 4), ("empty", 0)))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answered(answer, version) == {"gone": [(0, unknown), (1, unknown)], "u": [(3, unknown), (0, 0), (1, 0), (2, 0)], "empty": []}
        assert len(bench.records()) == 3

    run(scenario)


def test_metadata_beyond_the_limit_is_refused() -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench)
        answer = ask(services, 3, a_request(("t", 1), metadata="x" * 4097))
        assert answered(answer, 3) == {"t": [(0, ErrorCode.OFFSET_METADATA_TOO_LARGE)]}
        assert bench.records() == []

    run(scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_old_producers_do_not_hear_that_a_group_loads(version: int) -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench)
        bench.commit()
        await bench.lead(epoch=1, leader=1)
        assert answered(ask(services, version, a_request(("t", 1))), version) == {"t": [(0, ErrorCode.NOT_COORDINATOR)]}
        await bench.lead(epoch=2)
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if version < 2 else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert answered(ask(services, version, a_request(("t", 1))), version) == {"t": [(0, code)]}
        await bench.until_loaded()

    run(scenario)


def test_generation_member_and_instance_fence() -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench)
        member_id = bench.a_member()
        for member, instance, generation, code in (
            (member_id, None, 1, ErrorCode.NONE),
            (member_id, None, 0, ErrorCode.ILLEGAL_GENERATION),
            (member_id, "i", 1, ErrorCode.UNKNOWN_MEMBER_ID),
            ("zombie", None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            request = a_request(("t", 1), member_id=member, group_instance_id=instance, generation_id_or_member_epoch=generation)
            assert answered(ask(services, 3, request), 3) == {"t": [(0, code)]}

    run(scenario)


def test_a_large_request_takes_turns_and_is_answered_the_same() -> None:
    async def main() -> None:
        async with a_bench() as bench:
            services = await prepared(bench)
            every_pause_waits()
            request = a_request(("large", 2000))
            assert len(request.encode(4)) > LARGE_BYTES
            answer = ask(services, 4, request)
            assert await turns_until(lambda: answer.completed) > 60
            assert answered(answer, 4) == {"large": [(index, 0) for index in range(2000)]}
            bench.end_transaction()
            assert bench.committed(partition=TopicPartition("large", 1999)) == 2999

    asyncio.run(main())


def test_a_request_with_a_malformed_end_commits_nothing() -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench)
        data = a_request(("t", 3)).encode(4)[:-1]
        with pytest.raises(ProtocolError):
            handle_txn_offset_commit_frame(memoryview(bytearray(data)), 0, 4, 77, ClientConnection(), services)  # type: ignore[arg-type]  # as above
        assert bench.records() == []
        assert bench.committed(partition=T0, require_stable=True) == -1

    run(scenario)
