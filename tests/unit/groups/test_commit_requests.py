"""OffsetCommit from frame to answer: what is committed, what is written, and what is answered, for every version and shape."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.handlers.groups.offset_commit import handle_offset_commit_frame
from ottla.broker.network.request_channel import Pending
from ottla.broker.request.large_requests import LARGE_BYTES
from ottla.broker.request.running import RunningRequests
from ottla.broker.request.services import Services
from ottla.broker.security.authorizer import AllowAll
from ottla.broker.security.principals import Principal
from ottla.controller.store.memory_store import MemoryEnsemble, MemoryStore
from ottla.coordination.groups.offset_records import OffsetAndMetadata, offset_key, offset_value
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.header import ResponseHeader
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.schema.registry import api
from ottla.protocol.schema.wire import ProtocolError
from ottla.protocol.topic_partition import TopicPartition
from tests.support.connections import ClientConnection
from tests.support.group_bench import GroupBench, a_bench, run
from tests.support.pauses import every_pause_waits
from tests.support.services import services_with

TOPICS = {"t": 100, "u": 3, "ümlaut": 2}
VERSIONS = range(1, 10)
LARGE_TOPIC = {"large": 2000}

Answers = dict[str, list[tuple[int, int]]]
"""By topic, (partition, error code) in order."""


def services_of(bench: GroupBench) -> Services:
    return services_with(
        clock=bench.clock,
        metadata=bench.replica_manager.cluster,
        groups=bench.groups,
        error_counts={},
        running=RunningRequests(),
    )


def ask(services: Services, version: int, request: OffsetCommitRequest, connection: Any = None) -> Any:
    frame = memoryview(bytearray(request.encode(version)))
    return handle_offset_commit_frame(frame, 0, version, 77, connection or ClientConnection(), services)


def content_of(answer: Any) -> bytes | None:
    """None while it waits."""
    if isinstance(answer, Pending):
        if not answer.completed:
            return None
        answer = answer.answer
    return bytes(answer)


def codes_of(answer: Any, version: int = 9) -> dict[tuple[str, int], int]:
    content = content_of(answer)
    assert content is not None
    response, _ = OffsetCommitResponse.decode(content, version, 5 if version >= 8 else 4)
    return {(topic.name, each.partition_index): each.error_code for topic in response.topics for each in topic.partitions}


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
    bench.announce(TOPICS | LARGE_TOPIC)
    await bench.lead(isr=isr)
    return services_of(bench)


async def turns_until(condition: Callable[[], bool]) -> int:
    """How many turns of the loop it takes."""
    for turns in range(1000):
        if condition():
            return turns
        await asyncio.sleep(0)
    raise AssertionError("it never came")


# -- any request, against what the messages and the rules say ----------------------------------------------------------------


def expected_of(
    request: OffsetCommitRequest, now_ms: int
) -> tuple[dict[TopicPartition, OffsetAndMetadata], dict[str, list[tuple[int, int]]]]:
    """What is committed, and what is answered beside that it was."""
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    answers: Answers = {}
    expires = -1 if request.retention_time_ms == -1 else min(now_ms + request.retention_time_ms, 2**63 - 1)
    for topic in request.topics:
        if topic.name not in TOPICS:
            answers.setdefault(topic.name, [])
        for each in topic.partitions:
            if 0 <= each.partition_index < TOPICS.get(topic.name, 0):
                timestamp = now_ms if each.commit_timestamp == -1 else each.commit_timestamp
                metadata = each.committed_metadata or ""
                value = OffsetAndMetadata(each.committed_offset, each.committed_leader_epoch, metadata, timestamp, expires)
                offsets[TopicPartition(topic.name, each.partition_index)] = value
            else:
                answers.setdefault(topic.name, []).append((each.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return offsets, answers


def encoded(answers: Answers, version: int) -> bytes:
    topics = [
        OffsetCommitResponseTopic(
            name=name, partitions=[OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in of_topic]
        )
        for name, of_topic in answers.items()
    ]
    header = ResponseHeader(correlation_id=77).encode(api(ApiKey.OFFSET_COMMIT).response_header_version(version))
    return header + OffsetCommitResponse(topics=topics).encode(version)


def check(request: OffsetCommitRequest, version: int, isr: tuple[int, ...]) -> None:
    """Ask a coordinator that knows nothing of the group yet."""

    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench, isr)
        now_ms = bench.clock.now_ms()
        offsets, answers = expected_of(request, now_ms)
        records_before = len(bench.records())
        answer = ask(services, version, request)

        def is_waiting() -> bool:
            group = bench.groups.groups.get(request.group_id)
            return group is not None and bool(group.offsets.pending)

        await turns_until(lambda: content_of(answer) is not None or is_waiting())  # at once, unless it is a large one
        code, written = ErrorCode.NONE, {}
        if not offsets:
            assert len(bench.records()) == records_before
        elif request.generation_id_or_member_epoch >= 0:
            code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
        else:
            written = {partition: value for partition, value in offsets.items() if len(value.metadata) <= 4096}
        if written and len(isr) > 1:
            assert content_of(answer) is None
            assert all(bench.committed(request.group_id, each, require_stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT for each in written)
            bench.follower_fetches()
            await turns_until(lambda: content_of(answer) is not None)
        for (topic, index), value in offsets.items():
            is_too_large = not code and len(value.metadata) > 4096
            answers.setdefault(topic, []).append((index, ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else code))
        assert content_of(answer) == encoded(answers, version)
        records = {record.key: record.value for record in bench.records()[records_before:]}
        assert records == {offset_key(request.group_id, partition): offset_value(value) for partition, value in written.items()}
        group = bench.groups.groups.get(request.group_id)
        kept = {} if group is None else {each: group.offsets.committed[each].value for each in group.offsets.committed}
        assert {each: value.offset for each, value in kept.items()} == {each: value.offset for each, value in written.items()}
        assert group is None or not group.offsets.pending
        counts = [code for of_topic in answers.values() for _, code in of_topic]
        assert services.error_counts == {ApiKey.OFFSET_COMMIT << 16 | code: counts.count(code) for code in counts}

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isr", [(0,), (0, 1)])
def test_offsets_are_committed_and_answered(version: int, isr: tuple[int, ...]) -> None:
    check(a_commit(("t", 100), ("u", 3), ("ümlaut", 2)), version, isr)


@st.composite
def commits(draw: st.DrawFn) -> tuple[OffsetCommitRequest, int]:
    version = draw(st.sampled_from(VERSIONS))
    entry = st.builds(
        OffsetCommitRequestPartition,
        partition_index=st.integers(-1, 5),
        committed_offset=st.integers(-1, (1 << 63) - 1),
        committed_leader_epoch=st.integers(-1, 5) if version >= 6 else st.just(-1),
        commit_timestamp=st.sampled_from([-1, 5]) if version == 1 else st.just(-1),
        committed_metadata=st.sampled_from(["", "", None, "note", "x" * 5000]),
    )
    topic = st.builds(OffsetCommitRequestTopic, name=st.sampled_from(["t", "u", "ümlaut", "none"]), partitions=st.lists(entry, max_size=30))
    request = st.builds(
        OffsetCommitRequest,
        group_id=st.sampled_from(["g", "größer"]),
        generation_id_or_member_epoch=st.sampled_from([-1, -1, -1, 0]),
        member_id=st.sampled_from(["", "", "somebody"]),
        retention_time_ms=st.sampled_from([-1, 1000, 2**63 - 1]) if 2 <= version <= 4 else st.just(-1),
        topics=st.lists(topic, max_size=4),
    )
    return draw(request), version


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(commits(), st.sampled_from([(0,), (0, 1)]))
def test_any_commit_is_done_and_answered_as_the_rules_say(asked: tuple[OffsetCommitRequest, int], isr: tuple[int, ...]) -> None:
    check(*asked, isr)


# -- single rules ------------------------------------------------------------------------------------------------------------


def test_a_large_commit_takes_turns_and_is_answered_the_same() -> None:
    async def main() -> None:
        async with a_bench() as bench:
            services = await prepared(bench)
            every_pause_waits()
            request = a_commit(("large", 2001))
            assert len(request.encode(9)) > LARGE_BYTES
            answer = ask(services, 9, request)
            assert answer.waiting_bytes
            assert await turns_until(lambda: answer.completed) > 60
            codes = codes_of(answer)
            assert codes.pop(("large", 2000)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert set(codes.values()) == {ErrorCode.NONE}
            assert len(codes) == 2000
            assert bench.committed(partition=TopicPartition("large", 1999)) == 2999

    asyncio.run(main())


def test_a_large_request_that_cannot_be_read_closes_the_connection_and_commits_nothing() -> None:
    async def main() -> None:
        async with a_bench() as bench:
            services = await prepared(bench)
            data = a_commit(("large", 2000)).encode(9)[:-1]
            connection = ClientConnection()
            answer: Any = handle_offset_commit_frame(memoryview(bytearray(data)), 0, 9, 77, connection, services)  # type: ignore[arg-type]  # as much of one as it needs
            await turns_until(lambda: answer.completed)
            assert not isinstance(answer.answer, bytes)
            assert bench.records() == []

    asyncio.run(main())


def test_a_request_with_a_malformed_end_commits_nothing() -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench)
        data = a_commit(("t", 3)).encode(9)[:-1]
        with pytest.raises(ProtocolError):
            handle_offset_commit_frame(memoryview(bytearray(data)), 0, 9, 77, ClientConnection(), services)  # type: ignore[arg-type]  # as above
        assert bench.records() == []

    run(scenario)


@pytest.mark.parametrize(
    ("forbidden", "code"),
    [
        (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_what_is_forbidden_is_not_committed(forbidden: ResourceType, code: ErrorCode) -> None:
    class Forbidding(AllowAll):
        def is_authorized(self, principal: Principal, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
            return resource != forbidden

    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench)
        answer = ask(services, 9, a_commit(("t", 2), ("none", 0)), ClientConnection(Forbidding()))
        assert content_of(answer) == encoded({"t": [(0, code), (1, code)], "none": []}, 9)
        assert bench.records() == []

    run(scenario)


def test_a_member_that_commits_is_heard_of() -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench)
        member_id = bench.a_member()
        commit = a_commit(("t", 2), generation_id_or_member_epoch=1, member_id=member_id)
        for _ in range(5):
            bench.pass_time(9_000)
            assert set(codes_of(ask(services, 9, commit)).values()) == {ErrorCode.NONE}
        bench.pass_time(11_000)
        assert set(codes_of(ask(services, 9, commit)).values()) == {ErrorCode.UNKNOWN_MEMBER_ID}

    run(scenario)


def test_a_commit_that_cannot_be_appended_is_told_so_and_forgotten() -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench, (0, 1))
        bench.commit(1)
        bench.follower_fetches()
        answer = ask(services, 9, a_commit(("t", 2)))
        bench.pass_time(6_000)
        assert set(codes_of(answer).values()) == {ErrorCode.REQUEST_TIMED_OUT}
        assert bench.committed(require_stable=True) == 1
        assert set(codes_of(ask(services, 9, a_commit(("t", 50)))).values()) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert bench.committed(require_stable=True) == 1

    run(scenario, message_max_bytes=1000)


def test_of_two_commits_the_later_one_counts() -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench)
        ask(services, 9, a_commit(("t", 2)))
        assert bench.committed() == 1000
        bench.commit(5)
        assert bench.committed() == 5
        ask(services, 9, a_commit(("t", 2)))
        assert (bench.committed(), bench.committed(partition=TopicPartition("t", 1))) == (1000, 1001)

    run(scenario)


@pytest.mark.parametrize(
    ("metadata", "code"), [("\N{ELEPHANT}" * 2_048, ErrorCode.NONE), ("\N{ELEPHANT}" * 2_049, ErrorCode.OFFSET_METADATA_TOO_LARGE)]
)
def test_text_has_the_same_limit_in_the_store(metadata: str, code: ErrorCode) -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench)
        store = MemoryStore(MemoryEnsemble(bench.clock))
        await store.open_session()
        services.administration.store = store
        answer = ask(services, 0, a_commit(("t", 2), metadata=metadata))
        await turns_until(lambda: content_of(answer) is not None)
        assert codes_of(answer, 0) == {("t", 0): code, ("t", 1): code}
        if not code:
            assert (await store.get("/consumers/g/offsets/t/1"))[0] == b"1001"

    run(scenario)


def test_a_partition_that_is_named_again_is_answered_again_and_stored_once() -> None:
    async def scenario(bench: GroupBench) -> None:
        services = await prepared(bench)
        store = MemoryStore(MemoryEnsemble(bench.clock))
        await store.open_session()
        services.administration.store = store
        offsets = [
            OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="x" * (5_000 if offset == 9 else 1))
            for offset in (5, 6, 7, 9)
        ]
        topics = [OffsetCommitRequestTopic(name="t", partitions=offsets[:1]), OffsetCommitRequestTopic(name="t", partitions=offsets[1:])]
        answer = ask(services, 0, OffsetCommitRequest(group_id="g", topics=topics))
        await turns_until(lambda: content_of(answer) is not None)
        response, _ = OffsetCommitResponse.decode(content_of(answer) or b"", 0, 4)
        codes = [(each.partition_index, each.error_code) for topic in response.topics for each in topic.partitions]
        assert codes == [(0, ErrorCode.NONE)] * 3 + [(0, ErrorCode.OFFSET_METADATA_TOO_LARGE)]
        data, stat = await store.get("/consumers/g/offsets/t/0")
        assert (data, stat.version) == (b"7", 0)

    run(scenario)
