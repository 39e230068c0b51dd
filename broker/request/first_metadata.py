"""Delays requests for metadata until this broker has the cluster's metadata from the controller.

Metadata, DescribeCluster and DescribeTopicPartitions wait. FindCoordinator answers COORDINATOR_NOT_AVAILABLE meanwhile, and clients retry.

Apache Kafka answers at once with the metadata it has. But an answer without brokers or topics harms clients. librdkafka (2.16) removes
every broker that an answer leaves out; without any broker it may never send another request. If librdkafka has known a topic for 30 s, a
single answer without the topic makes its records fail.

A new controller sends the brokers first. Partitions follow when this broker has applied its LeaderAndIsr. So metadata without topics is
complete only if the metadata store has no topics. `MissedDeletions` finds that out after the first request of a controller.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.broker.network.request_channel import CLOSE
from ottla.pauses import COROUTINES

if TYPE_CHECKING:
    from ottla.broker.request.context import RequestContext
    from ottla.controller.admin.metadata_waits import MetadataWaits
    from ottla.replication.control.replica_manager import ReplicaManager
    from ottla.replication.ports.cluster import MetadataCache

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")

WAIT_MS = 3_000
"""The longest wait of a request, ms. After some seconds clients give up a request, and all requests behind it."""


class FirstMetadata:
    """Knows whether this broker has received the cluster's metadata. Once received, it stays received."""

    __slots__ = ("_cluster", "_is_there", "_replicas", "_waits", "has_no_topics")

    def __init__(self, cluster: MetadataCache, waits: MetadataWaits, replicas: ReplicaManager) -> None:
        self._cluster = cluster
        self._waits = waits
        self._replicas = replicas
        self._is_there = False
        self.has_no_topics = False
        """Whether the metadata store had no topics, except those being deleted, after a controller had sent metadata."""

    @property
    def is_there(self) -> bool:
        """Whether the metadata is complete enough for an answer."""
        if not self._is_there:
            cluster = self._cluster
            self._is_there = bool(cluster.brokers) and (bool(cluster.topics) or self.has_no_topics)
        return self._is_there

    async def wait(self) -> bool:
        """Wait for the metadata, at most WAIT_MS. Returns whether it is there.

        Metadata without topics is enough after the wait if this broker hosts no partition either: then the store is out of reach, or no
        partition has a leader.
        """
        if not await self._waits.until(lambda: self.is_there, WAIT_MS):
            self._is_there = bool(self._cluster.brokers) and not self._replicas.partitions
            if self._is_there:
                self._waits.notify()  # later requests need not wait as long
        return self._is_there


def after_first_metadata(
    handler: Callable[[_Request, RequestContext], _Answer],
) -> Callable[[_Request, RequestContext], _Answer | Coroutine[Any, Any, Any]]:
    """Make a handler of metadata wait for the first metadata. The connection closes if WAIT_MS pass without metadata."""

    @wraps(handler)
    def handle(request: _Request, context: RequestContext) -> _Answer | Coroutine[Any, Any, Any]:
        return handler(request, context) if context.broker.cluster.first_metadata.is_there else _later(handler, request, context)

    return handle


async def _later(handler: Callable[[_Request, RequestContext], Any], request: _Request, context: RequestContext) -> Any:
    if not await context.broker.cluster.first_metadata.wait():
        return CLOSE
    answer = handler(request, context)
    return await answer if type(answer) in COROUTINES else answer
