"""A commit by hand from frame to answer does what the ordinary way does, to the byte of the log and of the answer, or leaves it to that."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.handlers.groups.offset_commit import handle_offset_commit, handle_offset_commit_frame
from broker.network.request_channel import Pending
from broker.request.context import RequestContext
from broker.request.services import Services
from broker.request.turns import Turns
from broker.security.authorizer import AllowAll, Operation, ResourceType
from broker.security.principals import Principal
from broker.serving.route import Route
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.schema.message import Message
from protocol.schema.registry import api
from storage.disk.topic_partition import TopicPartition
from tests.support.connections import ClientConnection
from tests.support.group_bench import GroupBench, a_bench, run
from tests.support.logs import read_all

CONNECTION: Any = ClientConnection()
TOPICS = {"t": 100, "u": 3, "ümlaut": 2}
VERSIONS = range(2, 10)


def services_of(bench: GroupBench) -> Services:
    services = Services()
    services.clock = bench.clock
    services.cluster = bench.replica_manager.cluster
    services.groups = bench.groups
    services.turns = Turns(asyncio.get_running_loop().call_soon, slice_ns=10**12)
    return services


def by_hand(services: Services, version: int, data: bytes, connection: Any = CONNECTION) -> Any:
    return handle_offset_commit_frame(memoryview(data), 0, version, 77, connection, services)


def ordinarily(services: Services, version: int, data: bytes) -> Any:
    route = Route(api(ApiKey.OFFSET_COMMIT), version, handle_offset_commit, None)
    context = RequestContext(ApiKey.OFFSET_COMMIT, version, 77, "client", CONNECTION, services, route.encode)
    answer = services.turns.first_slice(handle_offset_commit(OffsetCommitRequest.decode(data, version)[0], context))
    return route.encode(77, answer) if isinstance(answer, Message) else answer


def content_of(answer: Any) -> bytes | None:
    """None while it waits."""
    if isinstance(answer, Pending):
        if not answer.completed:
            return None
        answer = answer.answer
    return b"".join(answer) if isinstance(answer, list) else bytes(answer)


def error_codes(answer: Any, version: int) -> set[int]:
    content = content_of(answer)
    assert content is not None
    response, _ = OffsetCommitResponse.decode(content, version, 5 if version >= 8 else 4)
    return {partition.error_code for topic in response.topics for partition in topic.partitions}


def a_commit(*named: tuple[str, int], group: str = "g", metadata: str | None = "", **more: Any) -> OffsetCommitRequest:
    """`named` are topics with how many of their partitions."""
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(partition_index=index, committed_offset=1000 + index, committed_metadata=metadata)
                for index in range(count)
            ],
        )
        for name, count in named
    ]
    return OffsetCommitRequest(group_id=group, topics=topics, **more)


async def prepared(bench: GroupBench, isr: tuple[int, ...] = (0,)) -> Services:
    """The group is known, as by hand nobody makes one."""
    bench.announce(TOPICS)
    await bench.lead(isr=isr)
    bench.commit(1)
    if len(isr) > 1:
        bench.follower_fetches()
    return services_of(bench)


def state_of(bench: GroupBench) -> object:
    """Everything that a commit changes: the bytes of the log, what is committed, and what is on its way."""
    group = bench.groups.groups.get("g")
    assert group is not None
    offsets = group.offsets
    return bytes(read_all(bench.partition().log)), offsets.committed.by_topic, offsets.pending, offsets.by_consumers, sorted(group.timers)


def compare(data: bytes, version: int, isr: tuple[int, ...] = (0,)) -> bool:
    """The same commit by hand and ordinarily, to coordinators that are alike; whether it could be done by hand."""

    async def main() -> bool:
        async with a_bench() as bench, a_bench() as other:
            services, others = await prepared(bench, isr), await prepared(other, isr)
            before = state_of(bench)
            answer = by_hand(services, version, data)
            if answer is None:
                assert state_of(bench) == before
                return False
            expected = ordinarily(others, version, data)
            assert content_of(answer) == content_of(expected)
            assert state_of(bench) == state_of(other)
            if len(isr) > 1:
                assert content_of(answer) is None
                bench.follower_fetches()
                other.follower_fetches()
                assert content_of(answer) == content_of(expected) is not None
                assert state_of(bench) == state_of(other)
            return True

    return asyncio.run(main())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isr", [(0,), (0, 1)])
def test_the_same_answer_and_the_same_log(version: int, isr: tuple[int, ...]) -> None:
    assert compare(a_commit(("t", 100), ("u", 3), ("ümlaut", 2)).encode(version), version, isr)


@st.composite
def commits(draw: st.DrawFn) -> tuple[bytes, int]:
    version = draw(st.sampled_from(VERSIONS))
    entry = st.builds(
        OffsetCommitRequestPartition,
        partition_index=st.integers(-1, 80),
        committed_offset=st.integers(-1, (1 << 63) - 1),
        committed_leader_epoch=st.integers(-1, 5) if version >= 6 else st.just(-1),
        committed_metadata=st.sampled_from(["", "", "", None, "note"]),
    )
    topic = st.builds(OffsetCommitRequestTopic, name=st.sampled_from(["t", "t", "ümlaut", "none"]), partitions=st.lists(entry, max_size=80))
    request = draw(
        st.builds(
            OffsetCommitRequest,
            group_id=st.sampled_from(["g", "g", "g", "other"]),
            generation_id_or_member_epoch=st.sampled_from([-1, -1, -1, 0]),
            member_id=st.sampled_from(["", "", "somebody"]),
            topics=st.lists(topic, max_size=3),
        )
    )
    return request.encode(version), version


@settings(max_examples=40, deadline=None)
@given(commits(), st.sampled_from([(0,), (0, 1)]))
def test_any_commit_is_done_alike_or_left_to_the_ordinary_way(asked: tuple[bytes, int], isr: tuple[int, ...]) -> None:
    compare(*asked, isr)


@pytest.mark.parametrize(
    "request_",
    [
        a_commit(("t", 1), group="unknown"),
        a_commit(("none", 1)),
        a_commit(("u", 4)),
        a_commit(("t", 1), ("t", 2)),
        a_commit(("t", 1), metadata="note"),
        a_commit(("t", 1), generation_id_or_member_epoch=3, member_id="nobody"),
        a_commit(),
        OffsetCommitRequest(
            group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(committed_metadata="")] * 2)]
        ),
    ],
    ids=["group", "topic", "partition", "topic twice", "metadata", "member", "nothing", "partition twice"],
)
def test_what_is_unusual_is_left_to_the_ordinary_way(request_: OffsetCommitRequest) -> None:
    assert not compare(request_.encode(9), 9)


def test_what_is_forbidden_is_left_to_the_ordinary_way() -> None:
    class Forbidding(AllowAll):
        def __init__(self, forbidden: ResourceType) -> None:
            self.forbidden = forbidden

        def is_authorized(self, principal: Principal, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
            return resource != self.forbidden

    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench)
        for forbidden in (ResourceType.GROUP, ResourceType.TOPIC):
            connection = ClientConnection(Forbidding(forbidden))
            assert by_hand(services, 9, a_commit(("t", 1)).encode(9), connection) is None

    run(scenario)


def test_a_member_that_commits_is_heard_of() -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench)
        member_id = bench.a_member()
        commit = a_commit(("t", 2), generation_id_or_member_epoch=1, member_id=member_id).encode(9)
        for _ in range(5):
            bench.pass_time(9_000)
            assert error_codes(by_hand(services, 9, commit), 9) == {ErrorCode.NONE}
        bench.pass_time(11_000)
        assert by_hand(services, 9, commit) is None
        assert error_codes(ordinarily(services, 9, commit), 9) == {ErrorCode.UNKNOWN_MEMBER_ID}

    run(scenario)


def test_a_commit_that_cannot_be_appended_is_told_so_and_forgotten() -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench, (0, 1))
        answer = by_hand(services, 9, a_commit(("t", 2)).encode(9))
        bench.pass_time(6_000)
        assert error_codes(answer, 9) == {ErrorCode.REQUEST_TIMED_OUT}
        assert bench.committed(require_stable=True) == 1
        assert error_codes(by_hand(services, 9, a_commit(("t", 50)).encode(9)), 9) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert bench.committed(require_stable=True) == 1

    run(scenario, message_max_bytes=1000)


def test_of_two_commits_the_later_one_counts_whichever_way_they_came() -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench)
        by_hand(services, 9, a_commit(("t", 2)).encode(9))
        assert bench.committed() == 1000
        bench.commit(5)
        assert bench.committed() == 5
        by_hand(services, 9, a_commit(("t", 2)).encode(9))
        assert (bench.committed(), bench.committed(partition=TopicPartition("t", 1))) == (1000, 1001)

    run(scenario)
