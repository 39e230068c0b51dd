"""Holds the metadata of the cluster: live brokers, topics, partition states, controller.

Only UpdateMetadata changes it, because the controller is its only author. Every handler that needs a leader reads it. One event loop owns
it. `brokers`, `topics`, `names_by_id` and a topic's `partitions` are replaced together, never changed in place. So a reader that holds one
of them across an `await` keeps consistent, possibly old metadata, and no reader sees partly new metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.config.listeners import SecurityProtocol
from ottla.protocol.messages.update_metadata import UpdateMetadataBroker, UpdateMetadataPartitionState, UpdateMetadataRequest
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID

LEADER_NONE = -1
LEADER_DURING_DELETE = -2
"""The leader in UpdateMetadata of a partition whose topic is being deleted (KafkaController's LeaderDuringDelete)."""


class EndPoint(NamedTuple):
    """Address of a broker on one listener."""

    host: str
    port: int
    listener: str
    security_protocol: int


class LiveBroker(NamedTuple):
    """A registered broker. `endpoints` has addresses by listener name."""

    broker_id: int
    endpoints: Mapping[str, EndPoint]
    rack: str | None


class TopicImage(NamedTuple):
    """A topic's id and the state of each partition, by index."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, UpdateMetadataPartitionState]


class MetadataCache:
    """The broker's metadata of the cluster."""

    __slots__ = ("brokers", "controller_epoch", "controller_id", "names_by_id", "topics")

    def __init__(self) -> None:
        self.controller_id: int = -1
        self.controller_epoch: int = 0
        self.brokers: dict[int, LiveBroker] = {}
        self.topics: dict[str, TopicImage] = {}
        self.names_by_id: dict[bytes, str] = {}

    def update(self, request: UpdateMetadataRequest) -> list[TopicPartition]:
        """Apply an UpdateMetadata. Returns the partitions that it deletes, whether they were known here or not.

        The caller has checked that the current controller sent it.
        """
        update = self.begin_update(request)
        for _ in update:
            pass
        return update.complete()

    def begin_update(self, request: UpdateMetadataRequest) -> MetadataUpdate:
        """`update` in steps. No other change may happen before its `complete`."""
        return MetadataUpdate(self, request)

    def forget(self, images: Iterable[TopicImage]) -> list[TopicPartition]:
        """Remove topics whose deletion no controller reported. Returns their partitions."""
        topics, names_by_id = self.topics.copy(), self.names_by_id.copy()
        gone: list[TopicPartition] = []
        for image in images:
            del topics[image.name]
            names_by_id.pop(image.topic_id, None)
            gone.extend(TopicPartition(image.name, index) for index in image.partitions)
        self.topics, self.names_by_id = topics, names_by_id
        return gone

    def partition(self, topic: str, partition: int) -> UpdateMetadataPartitionState | None:
        """The state of one partition; None when the cluster does not know it."""
        image = self.topics.get(topic)
        return image.partitions.get(partition) if image is not None else None

    def leader_of(self, topic: str, partition: int) -> tuple[int, int]:
        """(leader id, leader epoch) of a partition; (-1, -1) when unknown."""
        state = self.partition(topic, partition)
        return (state.leader, state.leader_epoch) if state is not None else (LEADER_NONE, -1)

    def topic_id(self, topic: str) -> bytes:
        """The topic's id; ZERO_UUID when the topic is unknown or has none."""
        image = self.topics.get(topic)
        return image.topic_id if image is not None else ZERO_UUID

    def endpoint(self, broker_id: int, listener: str) -> EndPoint | None:
        """Address of a live broker for clients of `listener`; None if there is none."""
        broker = self.brokers.get(broker_id)
        return broker.endpoints.get(listener) if broker is not None else None


class MetadataUpdate:
    """An update in progress. Its iteration applies the partitions to a copy, one in each step; `complete` replaces the metadata."""

    def __init__(self, cache: MetadataCache, request: UpdateMetadataRequest) -> None:
        self._cache = cache
        self._request = request
        self._topics = cache.topics.copy()
        self._names_by_id = cache.names_by_id.copy()
        self._deleted: dict[TopicPartition, None] = {}

    def __iter__(self) -> Iterator[None]:
        for topic in self._request.topic_states:
            yield from self._take_in(topic.topic_name, topic.topic_id, topic.partition_states)
        by_topic: dict[str, list[UpdateMetadataPartitionState]] = {}
        for state in self._request.ungrouped_partition_states:
            by_topic.setdefault(state.topic_name, []).append(state)
            yield
        for name, states in by_topic.items():
            # versions 0 to 4 have no topic ids: a known one stays
            yield from self._take_in(name, self._cache.topic_id(name), states)

    def complete(self) -> list[TopicPartition]:
        """Readers see the changes from now on. Returns the partitions that were deleted."""
        cache, request = self._cache, self._request
        cache.controller_id = max(request.controller_id, -1)
        cache.controller_epoch = request.controller_epoch
        cache.brokers = {broker.id: _live_broker(broker) for broker in request.live_brokers}
        cache.topics, cache.names_by_id = self._topics, self._names_by_id
        return list(self._deleted)

    def _take_in(self, name: str, topic_id: bytes, states: Iterable[UpdateMetadataPartitionState]) -> Iterator[None]:
        """Apply the states of one topic."""
        old = self._topics.get(name)
        partitions: dict[int, UpdateMetadataPartitionState] = {}
        if old is not None:
            if old.topic_id != topic_id:
                self._names_by_id.pop(old.topic_id, None)
            # With another id the topic was deleted and created again between two updates, and everything about the old one is obsolete.
            if ZERO_UUID in (old.topic_id, topic_id) or old.topic_id == topic_id:
                partitions.update(old.partitions)
        deleted = self._deleted
        for state in states:
            if state.leader == LEADER_DURING_DELETE:
                partitions.pop(state.partition_index, None)
                deleted[TopicPartition(name, state.partition_index)] = None
            else:
                partitions[state.partition_index] = state
                if deleted:
                    deleted.pop(TopicPartition(name, state.partition_index), None)
            yield
        if partitions:
            self._topics[name] = TopicImage(name, topic_id, partitions)
            if topic_id != ZERO_UUID:
                self._names_by_id[topic_id] = name
        elif old is not None:
            del self._topics[name]
            self._names_by_id.pop(topic_id, None)


def _live_broker(broker: UpdateMetadataBroker) -> LiveBroker:
    """Converts a broker. Version 0 has one plaintext address; versions 1 and 2 name listeners by their security protocol."""
    if broker.v0_host:
        plaintext = EndPoint(broker.v0_host, broker.v0_port, SecurityProtocol.PLAINTEXT.name, SecurityProtocol.PLAINTEXT)
        return LiveBroker(broker.id, {plaintext.listener: plaintext}, broker.rack)
    endpoints = {}
    for endpoint in broker.endpoints:
        listener = endpoint.listener or SecurityProtocol(endpoint.security_protocol).name
        endpoints[listener] = EndPoint(endpoint.host, endpoint.port, listener, endpoint.security_protocol)
    return LiveBroker(broker.id, endpoints, broker.rack)
