"""A leader reaches the coordinator of a share partition on this broker or another, and asks again while it moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.coordination.shares.record_states import StateBatch
from ottla.coordination.shares.state.coordinator import StateResult, StateWrite
from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.coordination.shares.state_access import ATTEMPTS, MOST_PARTITIONS, StateAccess
from ottla.coordination.shares.state_questions import ReadState, WriteState
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import read_share_group_state as reading
from ottla.protocol.messages import write_share_group_state as writing
from ottla.protocol.schema.message import Message
from ottla.replication.ports.peer import PeerUnavailable
from tests.support.share_bench import KEY, TOPIC_ID, ShareBench, run_shares

WRITE = StateWrite(1, 0, 0, 5, [StateBatch(0, 4, 2, 1)])


class Peers:
    """Other brokers: each answer is an error code, or an exception."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ApiKey, int, Any]] = []
        self.answers: list[ErrorCode | Exception] = []
        self.left_out = -1
        """A partition that no answer has."""

    async def ask(self, broker_id: int, api_key: ApiKey, version: int, message: Message) -> Any:
        self.asked.append((broker_id, api_key, version, message))
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if isinstance(answer, Exception):
            raise answer
        await asyncio.sleep(0)
        indexes = [each.partition for each in self.asked[-1][3].topics[0].partitions if each.partition != self.left_out]
        if api_key == ApiKey.READ_SHARE_GROUP_STATE:
            batches = [reading.StateBatch(first_offset=3, last_offset=4, delivery_state=2, delivery_count=1)]
            read = [
                reading.PartitionResult(partition=index, error_code=answer, state_epoch=7, start_offset=3, state_batches=batches)
                for index in indexes
            ]
            return reading.ReadShareGroupStateResponse(results=[reading.ReadStateResult(topic_id=TOPIC_ID, partitions=read)])
        written = [writing.PartitionResult(partition=index, error_code=answer, error_message=str(index)) for index in indexes]
        return writing.WriteShareGroupStateResponse(results=[writing.WriteStateResult(topic_id=TOPIC_ID, partitions=written)])


def run(scenario: Callable[[ShareBench, StateAccess, Peers, list[str]], Awaitable[None]]) -> None:
    async def with_access(bench: ShareBench) -> None:
        peers = Peers()
        created: list[str] = []

        async def create() -> None:
            created.append("topic")

        access = StateAccess(bench.shares, 0, bench.replica_manager.cluster, bench.wheel, peers.ask, create)
        await scenario(bench, access, peers, created)
        await access.close()

    run_shares(with_access)


def read(access: StateAccess) -> list[StateResult]:
    results: list[StateResult] = []
    access.ask(ReadState(KEY, 0), results.append)
    return results


def test_this_brokers_coordinator_is_asked_directly() -> None:
    async def scenario(bench: ShareBench, access: StateAccess, peers: Peers, created: list[str]) -> None:
        await bench.coordinate()
        bench.announce_id("__share_group_state", bytes(range(16)), 1)
        bench.initialize()
        written: list[StateResult] = []
        access.ask(WriteState(KEY, WRITE), written.append)
        assert written == [StateResult()]
        assert read(access)[0].batches == ((0, 4, 2, 1),)
        assert peers.asked == []

    run(scenario)


def test_another_broker_gets_a_request() -> None:
    async def scenario(bench: ShareBench, access: StateAccess, peers: Peers, created: list[str]) -> None:
        bench.move({0: 1}, topic="__share_group_state")
        found = read(access)
        await bench.until(lambda: bool(found))
        assert found == [StateResult(state_epoch=7, start_offset=3, batches=(StateBatch(3, 4, 2, 1),))]
        written: list[StateResult] = []
        access.ask(WriteState(KEY, WRITE), written.append)
        await bench.until(lambda: bool(written))
        broker_id, api_key, version, message = peers.asked[-1]
        assert (broker_id, api_key, version) == (1, ApiKey.WRITE_SHARE_GROUP_STATE, 1)
        (partition,) = message.topics[0].partitions
        assert (partition.state_epoch, partition.leader_epoch, partition.start_offset, partition.delivery_complete_count) == (1, 0, 0, 5)
        (batch,) = partition.state_batches
        assert (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count) == (0, 4, 2, 1)

    run(scenario)


@pytest.mark.parametrize("trouble", [PeerUnavailable("gone"), ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_question_is_repeated_after_a_passing_error(trouble: ErrorCode | Exception) -> None:
    async def scenario(bench: ShareBench, access: StateAccess, peers: Peers, created: list[str]) -> None:
        bench.move({0: 1}, topic="__share_group_state")
        peers.answers = [trouble, trouble]
        found = read(access)
        for _ in range(3):
            await asyncio.sleep(0.01)
            bench.pass_time(1_000)
        await bench.until(lambda: bool(found))
        assert found[0].error == ErrorCode.NONE
        assert len(peers.asked) == 3

    run(scenario)


def write_all(access: StateAccess, *keys: SharePartitionKey) -> list[tuple[SharePartitionKey, StateResult]]:
    results: list[tuple[SharePartitionKey, StateResult]] = []
    for key in keys:
        access.ask(WriteState(key, WRITE), lambda result, key=key: results.append((key, result)))
    return results


def asked_of(peers: Peers) -> list[tuple[ApiKey, str, list[int]]]:
    """API, group and partitions of each request."""
    return [
        (api_key, message.group_id, [each.partition for topic in message.topics for each in topic.partitions])
        for _, api_key, _, message in peers.asked
    ]


def keys(*indexes: int, group: str = "g") -> list[SharePartitionKey]:
    return [SharePartitionKey(group, TOPIC_ID, index) for index in indexes]


def test_questions_that_wait_for_a_broker_are_one_request_for_each_api_and_group() -> None:
    async def scenario(bench: ShareBench, access: StateAccess, peers: Peers, created: list[str]) -> None:
        bench.move({0: 1}, topic="__share_group_state")
        first = write_all(access, *keys(0))
        await bench.until(lambda: bool(peers.asked))
        later = write_all(access, *keys(1, 2), *keys(0, group="h"), *keys(0))
        found = read(access)
        await bench.until(lambda: len(later) == 4 and bool(found))
        assert first == [(key, StateResult(message="0")) for key in keys(0)]
        assert dict(later) == {key: StateResult(message=str(key.partition)) for key in (*keys(0, 1, 2), *keys(0, group="h"))}
        writes = ApiKey.WRITE_SHARE_GROUP_STATE
        assert asked_of(peers) == [
            (writes, "g", [0]), (writes, "g", [1, 2, 0]), (writes, "h", [0]), (ApiKey.READ_SHARE_GROUP_STATE, "g", [0]),
        ]  # fmt: skip

    run(scenario)


def test_a_request_has_a_limit_and_each_share_partition_once() -> None:
    async def scenario(bench: ShareBench, access: StateAccess, peers: Peers, created: list[str]) -> None:
        bench.move({0: 1}, topic="__share_group_state")
        written = write_all(access, *keys(*range(MOST_PARTITIONS + 1)), *keys(0))
        again = write_all(access, *keys(MOST_PARTITIONS))
        await bench.until(lambda: len(written) == MOST_PARTITIONS + 2 and bool(again))
        asked = [partitions for _, _, partitions in asked_of(peers)]
        assert asked == [list(range(MOST_PARTITIONS)), [MOST_PARTITIONS, 0], [MOST_PARTITIONS]]

    run(scenario)


def test_all_questions_of_a_request_without_an_answer_are_repeated() -> None:
    async def scenario(bench: ShareBench, access: StateAccess, peers: Peers, created: list[str]) -> None:
        bench.move({0: 1}, topic="__share_group_state")
        peers.answers = [PeerUnavailable("gone")]
        written = write_all(access, *keys(0, 1))
        await bench.until(lambda: bool(peers.asked))
        for _ in range(3):
            await asyncio.sleep(0.01)
            bench.pass_time(1_000)
        await bench.until(lambda: len(written) == 2)
        assert [partitions for _, _, partitions in asked_of(peers)] == [[0, 1], [0, 1]]

    run(scenario)


def test_a_share_partition_that_an_answer_leaves_out_has_an_error() -> None:
    async def scenario(bench: ShareBench, access: StateAccess, peers: Peers, created: list[str]) -> None:
        bench.move({0: 1}, topic="__share_group_state")
        peers.left_out = 1
        written = write_all(access, *keys(0, 1))
        await bench.until(lambda: len(written) == 2)
        assert [result.error for _, result in written] == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR]

    run(scenario)


def test_a_reply_that_fails_stops_no_other() -> None:
    async def scenario(bench: ShareBench, access: StateAccess, peers: Peers, created: list[str]) -> None:
        bench.move({0: 1}, topic="__share_group_state")
        faulty: list[StateResult] = []
        access.ask(WriteState(keys(0)[0], WRITE), lambda result: faulty[5])
        written = write_all(access, *keys(1))
        await bench.until(lambda: bool(written))

    run(scenario)


def test_a_fenced_leader_is_not_asked_for_again() -> None:
    async def scenario(bench: ShareBench, access: StateAccess, peers: Peers, created: list[str]) -> None:
        bench.move({0: 1}, topic="__share_group_state")
        peers.answers = [ErrorCode.FENCED_LEADER_EPOCH]
        found = read(access)
        await bench.until(lambda: bool(found))
        assert found[0].error == ErrorCode.FENCED_LEADER_EPOCH
        assert len(peers.asked) == 1

    run(scenario)


def test_a_missing_topic_is_created_and_a_question_without_an_answer_ends() -> None:
    async def scenario(bench: ShareBench, access: StateAccess, peers: Peers, created: list[str]) -> None:
        found = read(access)
        for _ in range(ATTEMPTS - 1):
            assert found == []
            await asyncio.sleep(0)
            bench.pass_time(1_000)
        assert found[0].error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert created

    run(scenario)
