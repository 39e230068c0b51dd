"""Requests to other brokers, and answers, with thousands of elements: others have their turns while they are written and read."""

import asyncio
import struct
from typing import Any
from unittest.mock import patch

import pytest

from ottla.broker.network import peer_connection
from ottla.broker.network.peer_connection import PeerConnection, PeerConnections
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from ottla.replication.ports.peer import PeerUnavailable
from tests.support.pauses import every_pause_waits
from tests.support.scripted_peer import Received, a_peer

SECONDS = 20_000


def test_a_request_with_thousands_of_partitions_is_written_and_its_answer_read_in_several_turns() -> None:
    async def scenario() -> None:
        async def of_all(received: Received) -> bytes:
            topics = received.body.topic_states
            errors = [LeaderAndIsrPartitionError(partition_index=each.partition_index, error_code=3) for each in topics[0].partition_states]
            return received.answer(LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(topic_id=b"t" * 16, partition_errors=errors)]))

        every_pause_waits()
        turns = 0

        def count() -> None:
            nonlocal turns
            turns += 1
            asyncio.get_running_loop().call_soon(count)

        async with a_peer(of_all) as other:
            peer = PeerConnections()(lambda: other.address, "1")
            states = [LeaderAndIsrPartitionState(partition_index=index, replicas=(1, 2)) for index in range(3000)]
            topic = LeaderAndIsrTopicState(topic_name="t", topic_id=b"t" * 16, partition_states=states)
            request = LeaderAndIsrRequest(controller_id=1, topic_states=[topic])
            wire_turns = []
            exchange = peer_connection._Wire.exchange

            async def watched(*arguments: Any) -> memoryview:
                wire_turns.append(turns)
                frame = await exchange(*arguments)
                wire_turns.append(turns)
                return frame

            with patch.object(peer_connection._Wire, "exchange", watched):
                count()
                response = await peer.request(ApiKey.LEADER_AND_ISR, 7, request, timeout_ms=SECONDS)
            assert isinstance(response, LeaderAndIsrResponse)
            assert [each.partition_index for each in response.topics[0].partition_errors] == list(range(3000))
            assert other.requests[0].body == request
            assert wire_turns[0] >= 3000
            assert turns - wire_turns[1] >= 3000
            await peer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("cut", [1, 40_000])
def test_a_large_answer_that_cannot_be_read_closes_the_connection(cut: int) -> None:
    async def scenario() -> None:
        async def damaged(received: Received) -> bytes:
            errors = [LeaderAndIsrPartitionError(partition_index=index) for index in range(10_000)]
            whole = received.answer(LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(partition_errors=errors)]))
            return struct.pack(">i", len(whole) - 4 - cut) + whole[4:-cut]

        async with a_peer(damaged) as other:
            peer = PeerConnections()(lambda: other.address, "1")
            with pytest.raises(PeerUnavailable, match="malformed answer"):
                await peer.request(ApiKey.LEADER_AND_ISR, 7, LeaderAndIsrRequest(), timeout_ms=SECONDS)
            assert isinstance(peer, PeerConnection)
            assert not peer.is_connected
            await peer.close()

    asyncio.run(scenario())
