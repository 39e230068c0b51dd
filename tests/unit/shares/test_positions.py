"""The lag of share groups is asked of the leaders, each of which has a time limit of its own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla.coordination.shares.positions import NO_LAG, Position, Positions
from ottla.coordination.shares.state.coordinator import StateResult
from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.pauses import begin
from ottla.protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse
from ottla.protocol.topic_partition import TopicPartition

PLACES = [TopicPartition("t", index) for index in range(3)]


async def ask(broker_id: int, key: object, version: int, request: Any) -> Any:
    """Broker 2 does not answer."""
    async with asyncio.timeout(0.05):
        await asyncio.sleep(60 if broker_id == 2 else 0)
    partitions = [ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=10) for each in request.topics[0].partitions]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions)])


def test_the_leaders_are_asked_although_the_state_is_here_at_once() -> None:
    access: Any = SimpleNamespace(ask=lambda question, then: then(StateResult(start_offset=3, complete_count=1)))
    cluster: Any = SimpleNamespace(leader_of=lambda name, index: (index, 0), brokers={0, 1, 2})
    positions = Positions(access, ask, cluster)

    async def find() -> dict[TopicPartition, Position]:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[dict[TopicPartition, Position]] = loop.create_future()

        async def run() -> None:
            try:
                found.set_result(await positions.find({place: SharePartitionKey("g", bytes(16), place.partition) for place in PLACES}))
            except RuntimeError as error:
                found.set_exception(error)

        loop.call_soon(begin, run())  # outside of a task, as a handler begins
        return await found

    found = asyncio.run(find())
    assert [each.lag for each in found.values()] == [6, 6, NO_LAG]
