"""Who sends what no client should: requests with spoiled bytes, frames without meaning, batches whose checksum is wrong.

None of it may harm a broker. What a frame is answered with is its own affair, and tested elsewhere, but a spoiled batch is refused.
"""

from __future__ import annotations

import asyncio
from typing import cast

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.records.batch import ATTRIBUTES_OFFSET
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Record
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api
from ottla.replication.ports.peer import PeerAddress, PeerUnavailable
from tests.simulation.clients import Client, Leaders
from tests.simulation.cluster import PORT, SimulatedCluster
from tests.simulation.network import CLIENT, Exchange

ATTEMPTS_PER_S = 2.0


class Vandal(Client):
    """Of one topic with so many partitions."""

    def __init__(self, cluster: SimulatedCluster, topic: str, partitions: int, leaders: Leaders, seed: int) -> None:
        super().__init__(cluster, topic, seed)
        self.stopping = False
        self._partitions = partitions
        self._leaders = leaders

    async def run(self) -> None:
        """Until `stopping`."""
        while not self.stopping:
            await asyncio.sleep(self.random.expovariate(ATTEMPTS_PER_S))
            broker_id = self.random.choice(list(self.cluster.nodes))
            try:
                if self.random.random() < 0.5:
                    await self._send_spoiled_batch()
                else:
                    await self.random.choice([self._send_spoiled_frame, self._send_noise])(broker_id)
            except PeerUnavailable:
                continue

    async def _send_spoiled_batch(self) -> None:
        batch = build_batch([Record(0, self.cluster.clock.now_ms(), None, b"spoiled")])
        batch[self.random.randrange(ATTRIBUTES_OFFSET, len(batch))] ^= 1 << self.random.randrange(8)
        index = self.random.randrange(self._partitions)
        broker_id = await self._leaders.leader(index)
        data = [TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(index=index, records=memoryview(batch))])]
        answer = await self.ask(broker_id, ApiKey.PRODUCE, 11, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data))
        (result,) = cast("ProduceResponse", answer).responses[0].partition_responses
        self._leaders.forget(index, broker_id)
        assert result.error_code, f"broker {broker_id} took a spoiled batch for {self.topic}-{index}"
        assert result.error_code != ErrorCode.UNKNOWN_SERVER_ERROR

    async def _send_spoiled_frame(self, broker_id: int) -> None:
        """What changes nothing when it arrives whole."""
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        requests: list[tuple[ApiKey, int, Message]] = [
            (ApiKey.FETCH, 12, FetchRequest(max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic=self.topic, partitions=[partition])])),
            (ApiKey.METADATA, 12, MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)),
            (ApiKey.OFFSET_FETCH, 9, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="one", topics=None)])),
        ]
        key, version, request = self.random.choice(requests)
        header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="vandal")
        head = header.encode(api(key).request_header_version(version))
        body = bytearray(request.encode(version))
        for _ in range(self.random.randint(1, 4)):
            body[self.random.randrange(len(body))] = self.random.randrange(256)
        await self._send(broker_id, head + bytes(body[: self.random.randint(1, len(body))]))

    async def _send_noise(self, broker_id: int) -> None:
        """No api has so great a number."""
        await self._send(broker_id, b"\x7f" + self.random.randbytes(self.random.randint(0, 64)))

    async def _send(self, broker_id: int, frame: bytes) -> None:
        address = PeerAddress(self.cluster.nodes[broker_id].host, PORT)
        await Exchange(self.cluster.network, CLIENT, address, frame).take_place(1.0)
