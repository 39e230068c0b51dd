"""Plays a cluster for its clients, whose leaders answer ListOffsets and Fetch, are dead, or do not exist."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, cast

from ottla.client.cluster import NO_LEADER, Cluster
from ottla.client.connection import Address, Connection
from ottla.client.errors import ConnectionLost
from ottla.client.offsets import EARLIEST
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.schema.message import Message
from tests.support.batches import a_batch

RECORDS: Final = 2
"""In each partition."""
ALIVE, DEAD, LEADERLESS = 1, 2, NO_LEADER
SECONDS: Final = 0.4
"""The timeout of the clients; no test waits for much longer."""


class Leader:
    """A connection to a broker that answers for every partition, but with errors for some."""

    def __init__(self, errors: dict[int, ErrorCode], partitions_at_once: int | None) -> None:
        self.address = Address("127.0.0.1", 1)
        self.timeout_seconds = SECONDS
        self._errors = errors
        self._partitions_at_once = partitions_at_once
        self._answers: deque[Message] = deque()

    @property
    def has_received(self) -> bool:
        return bool(self._answers)

    def ask(self, request: Message, response: type[Message], **_: object) -> Message:
        assert isinstance(request, ListOffsetsRequest)
        topics = [
            ListOffsetsTopicResponse(name=topic.name, partitions=[self._offset(each) for each in topic.partitions])
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    def _offset(self, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=self._errors.get(asked.partition_index, ErrorCode.NONE),
            offset=0 if asked.timestamp == EARLIEST else RECORDS,
        )

    def send(self, request: Message) -> None:
        assert isinstance(request, FetchRequest)
        (topic,) = request.topics
        full = [each.partition for each in topic.partitions if each.fetch_offset < RECORDS][: self._partitions_at_once]
        data = [
            PartitionData(partition_index=each.partition, records=bytes(a_batch(RECORDS)) if each.partition in full else b"")
            for each in topic.partitions
        ]
        self._answers.append(FetchResponse(responses=[FetchableTopicResponse(topic=topic.topic, partitions=data)]))

    def receive(self, timeout_seconds: float) -> Message | None:
        return self._answers.popleft()

    def close(self) -> None:
        """See Connection."""


class ClusterOfTest(Cluster):
    """A cluster with one topic, whose partitions have these leaders. Those in `cannot_fetch` die after they have told their offsets.

    An answer to Fetch has the records of all partitions, or of some.
    """

    def __init__(self, *leaders: int, errors: dict[int, ErrorCode] | None = None, partitions_at_once: int | None = None) -> None:
        super().__init__("127.0.0.1:1", timeout_seconds=SECONDS)
        self.leaders = leaders
        self.cannot_fetch: set[int] = set()
        self.metadata_requests = 0
        self.connections = 0
        self._errors = errors or {}
        self._partitions_at_once = partitions_at_once

    def refresh(self, topics: Iterable[str] | None, *, may_create: bool = False) -> MetadataResponse:
        """See Cluster."""
        self.metadata_requests += 1
        partitions = [
            MetadataResponsePartition(partition_index=number, leader_id=leader, replica_nodes=[1], isr_nodes=[1])
            for number, leader in enumerate(self.leaders)
        ]
        self._brokers = {ALIVE: Address("127.0.0.1", ALIVE), DEAD: Address("127.0.0.1", DEAD)}
        self._topics["t"] = MetadataResponseTopic(name="t", partitions=partitions)
        brokers = [MetadataResponseBroker(node_id=number, host="127.0.0.1", port=number) for number in (ALIVE, DEAD)]
        return MetadataResponse(brokers=brokers, topics=[self._topics["t"]])

    def broker(self, broker_id: int) -> Connection:
        """See Cluster."""
        return self._connected(broker_id, frozenset({DEAD}))

    def new_connection(self, address: Address) -> Connection:
        """See Cluster; the fetcher calls it."""
        return self._connected(address.port, frozenset({DEAD, *self.cannot_fetch}))

    def _connected(self, broker_id: int, dead: frozenset[int]) -> Connection:
        if broker_id in dead:
            raise ConnectionLost(f"no broker can be reached at 127.0.0.1:{broker_id}")
        self.connections += 1
        return cast("Connection", Leader(self._errors, self._partitions_at_once))
