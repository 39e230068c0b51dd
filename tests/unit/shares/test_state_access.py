"""A leader reaches the coordinator of a share partition on this broker or another, and asks again while it moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.broker.shares.record_states import StateBatch
from ottla.broker.shares.state.coordinator import StateResult, StateWrite
from ottla.broker.shares.state_access import ATTEMPTS, ReadState, StateAccess, WriteState
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

    async def ask(self, broker_id: int, api_key: ApiKey, version: int, message: Message) -> Any:
        self.asked.append((broker_id, api_key, version, message))
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if isinstance(answer, Exception):
            raise answer
        if api_key == ApiKey.READ_SHARE_GROUP_STATE:
            batches = [reading.StateBatch(first_offset=3, last_offset=4, delivery_state=2, delivery_count=1)]
            read = reading.PartitionResult(partition=0, error_code=answer, state_epoch=7, start_offset=3, state_batches=batches)
            return reading.ReadShareGroupStateResponse(results=[reading.ReadStateResult(topic_id=TOPIC_ID, partitions=[read])])
        written = writing.PartitionResult(partition=0, error_code=answer)
        return writing.WriteShareGroupStateResponse(results=[writing.WriteStateResult(topic_id=TOPIC_ID, partitions=[written])])


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
