"""Simulates the machines around a controller for `benchmarks.controllers.scale`: the metadata store and the other brokers, with their time
measured apart."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from time import thread_time
from typing import TypeVar

from ottla.controller.errors import SessionExpired, StoreError
from ottla.controller.store.memory_store import MemoryEnsemble, MemoryStore
from ottla.controller.store.metadata_store import Request, Result
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla.protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.wire import ANY_ELEMENTS
from ottla.replication.ports.cluster import MetadataCache

_M = TypeVar("_M", bound=Message)

_RESPONSE_HEAD = bytes(5)
"""Correlation id and the empty section of tagged fields."""


class Meter:
    """Adds up the processor seconds that are not the controller's, and the bytes that it sends."""

    def __init__(self) -> None:
        self.store_s = 0.0
        self.brokers_s: dict[int, float] = {}
        self.sent_bytes = 0

    def reset(self) -> None:
        """Begin anew."""
        self.store_s = 0.0
        self.brokers_s = {}
        self.sent_bytes = 0

    @property
    def slowest_s(self) -> float:
        """The seconds of the broker that took longest."""
        return max(self.brokers_s.values(), default=0.0)

    def add(self, broker_id: int, seconds: float) -> None:
        """A broker worked."""
        self.brokers_s[broker_id] = self.brokers_s.get(broker_id, 0.0) + seconds


class MeteredStore(MemoryStore):
    """A client of the store in memory."""

    def __init__(self, ensemble: MemoryEnsemble, meter: Meter) -> None:
        super().__init__(ensemble)
        self._meter = meter

    async def pipeline(self, requests: Sequence[Request]) -> list[Result | StoreError]:
        """See MetadataStore."""
        if not self.session_id:
            raise SessionExpired("")
        began = thread_time()
        outcomes = [self.carry_out(request) for request in requests]
        self._meter.store_s += thread_time() - began
        await asyncio.sleep(0)
        return outcomes

    async def close(self) -> None:
        """See MetadataStore."""
        began = thread_time()
        await super().close()
        self._meter.store_s += thread_time() - began


class NearBroker:
    """The broker in the controller's process: a metadata cache, and replicas that need no work."""

    def __init__(self, meter: Meter, broker_id: int) -> None:
        self.cluster = MetadataCache()
        self._meter = meter
        self._broker_id = broker_id

    async def on_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """See Receiver."""
        began = thread_time()
        answer = answer_to_leader_and_isr(request)
        self._meter.add(self._broker_id, thread_time() - began)
        return answer

    async def on_update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """See Receiver."""
        began = thread_time()
        self.cluster.update(request)
        self._meter.add(self._broker_id, thread_time() - began)
        return UpdateMetadataResponse()

    async def on_stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """See Receiver."""
        return answer_to_stop_replica(request)


class FarBroker:
    """The far end of the connection to another broker, in the place of `ottla.broker.network.peer_wire.Wire`."""

    is_lost = False

    def __init__(self, meter: Meter, broker_id: int, applies_metadata: bool) -> None:
        self.cluster = MetadataCache()
        self._meter = meter
        self._broker_id = broker_id
        self._applies_metadata = applies_metadata

    async def exchange(
        self, api_key: int, version: int, client_id: bytes, body: Sequence[bytes | memoryview], deadline: float
    ) -> memoryview:
        """See Wire."""
        self._meter.sent_bytes += len(client_id) + sum(map(len, body))
        await asyncio.sleep(0)
        began = thread_time()
        answer = self._answer(api_key, version, body)
        frame = memoryview(_RESPONSE_HEAD + answer.encode(version))
        self._meter.add(self._broker_id, thread_time() - began)
        return frame

    def lose(self, why: str) -> None:
        """See Wire."""

    def _answer(self, api_key: int, version: int, body: Sequence[bytes | memoryview]) -> Message:
        if api_key == ApiKey.UPDATE_METADATA:
            if self._applies_metadata:
                self.cluster.update(_decoded(UpdateMetadataRequest, body, version))
            return UpdateMetadataResponse()
        if api_key == ApiKey.LEADER_AND_ISR:
            return answer_to_leader_and_isr(_decoded(LeaderAndIsrRequest, body, version))
        return answer_to_stop_replica(_decoded(StopReplicaRequest, body, version))


def _decoded(cls: type[_M], body: Sequence[bytes | memoryview], version: int) -> _M:
    return cls.decode(b"".join(body), version, 0, ANY_ELEMENTS)[0]


def answer_to_leader_and_isr(request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    """No error for any partition."""
    return LeaderAndIsrResponse(
        topics=[
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[LeaderAndIsrPartitionError(partition_index=each.partition_index) for each in topic.partition_states],
            )
            for topic in request.topic_states
        ]
    )


def answer_to_stop_replica(request: StopReplicaRequest) -> StopReplicaResponse:
    """No error for any partition."""
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(topic_name=topic.topic_name, partition_index=each.partition_index)
            for topic in request.topic_states
            for each in topic.partition_states
        ]
    )


def bytes_of(*roots: object) -> int:
    """Memory of these objects and of all that they contain, each object once; without small integers."""
    seen: set[int] = set()
    pending: list[object] = [*roots]
    total = 0
    while pending:
        each = pending.pop()
        if isinstance(each, int) or id(each) in seen:
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        if isinstance(each, dict):
            pending += each.keys()
            pending += each.values()
        elif isinstance(each, tuple | list | set | frozenset):
            pending += each
    return total
