"""Holds the active controller's state of the cluster, as it is in the metadata store.

Owned by the controller's event queue: only events change it. All of it was first written to or read from the store; it
is dropped when another controller takes over.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ottla.controller.znodes.layout import BrokerRegistration, PartitionState, ReplicaAssignment
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID


class LiveBroker(NamedTuple):
    """A registered broker; `epoch` is the czxid of its registration."""

    broker_id: int
    registration: BrokerRegistration
    epoch: int


class Leadership(NamedTuple):
    """The state of a partition, and the version of its znode, which is the partition epoch."""

    state: PartitionState
    partition_epoch: int


class Replica(NamedTuple):
    """One replica of one partition."""

    partition: TopicPartition
    broker_id: int


class ControllerContext:
    """Brokers, topics, partition states and deletions of the cluster."""

    def __init__(self) -> None:
        self.epoch = 0
        self.epoch_version = 0
        """Version of /controller_epoch, which every write of this controller checks."""
        self._clear()

    def clear(self) -> list[dict[Any, Any]]:
        """Drop everything but the epoch. Returns the large dicts, because freeing them at once takes long."""
        large: list[dict[Any, Any]] = [*self.assignments.values(), self.leaderships]
        self._clear()
        return large

    def _clear(self) -> None:
        self.brokers: dict[int, LiveBroker] = {}
        self.shutting_down: set[int] = set()
        self.topic_ids: dict[str, bytes] = {}
        self.topic_names: dict[bytes, str] = {}
        """The inverse of `topic_ids`."""
        self.assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self.leaderships: dict[TopicPartition, Leadership] = {}
        self.unsent: set[TopicPartition] = set()
        """Partitions with a state in the store that was not sent to their leader. In an old epoch that can change no ISR."""
        self.offline_replicas: set[Replica] = set()
        """Replicas on live brokers whose log directory failed."""
        self.topics_to_be_deleted: set[str] = set()
        self.topics_ineligible_for_deletion: set[str] = set()

    # Brokers

    @property
    def live_brokers(self) -> set[int]:
        """Brokers that may lead partitions."""
        return self.brokers.keys() - self.shutting_down

    def is_live(self, broker_id: int) -> bool:
        """Whether the broker may lead partitions."""
        return broker_id in self.brokers and broker_id not in self.shutting_down

    def is_online(self, broker_id: int, partition: TopicPartition, *, include_shutting_down: bool = False) -> bool:
        """Whether the broker's replica of the partition can serve."""
        if broker_id not in self.brokers or (broker_id in self.shutting_down and not include_shutting_down):
            return False
        return not self.offline_replicas or (partition, broker_id) not in self.offline_replicas

    # Topics

    def add_topic(self, topic: str, topic_id: bytes | None, partitions: Iterable[tuple[int, ReplicaAssignment]]) -> None:
        """Add a topic, or more partitions of a topic."""
        if topic_id is not None:
            self.topic_ids[topic] = topic_id
            self.topic_names[topic_id] = topic
        self.assignments.setdefault(topic, {}).update(partitions)

    def set_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Change the replicas of a partition. Does nothing if its topic has been removed."""
        if partition.topic in self.assignments:
            self.assignments[partition.topic][partition.partition] = assignment

    def remove_topic(self, topic: str) -> None:
        """Remove the topic and its partitions."""
        for partition in list(self.partitions_of(topic)):
            self.leaderships.pop(partition, None)
            self.unsent.discard(partition)
        if self.offline_replicas:
            self.offline_replicas = {replica for replica in self.offline_replicas if replica.partition.topic != topic}
        self.assignments.pop(topic, None)
        self.topic_names.pop(self.topic_ids.pop(topic, ZERO_UUID), None)
        self.topics_to_be_deleted.discard(topic)
        self.topics_ineligible_for_deletion.discard(topic)

    def topic_id(self, topic: str) -> bytes:
        """The topic's id; zero when it has none."""
        return self.topic_ids.get(topic, ZERO_UUID)

    def partitions_of(self, topic: str) -> Iterator[TopicPartition]:
        """The topic's partitions."""
        return (TopicPartition(topic, index) for index in self.assignments.get(topic, ()))

    @property
    def partitions(self) -> Iterator[TopicPartition]:
        """All partitions."""
        return (TopicPartition(topic, index) for topic, of_topic in self.assignments.items() for index in of_topic)

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment | None:
        """The partition's replicas; None when there is no such partition."""
        of_topic = self.assignments.get(partition.topic)
        return None if of_topic is None else of_topic.get(partition.partition)

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """The partition's replicas; empty when there is no such partition."""
        assignment = self.assignment(partition)
        return () if assignment is None else assignment.replicas

    def placements(self, brokers: set[int] | None = None) -> Iterator[tuple[TopicPartition, Sequence[int]]]:
        """The partitions with replicas on these brokers, or on any broker, each with the brokers of those replicas."""
        for topic, of_topic in self.assignments.items():
            for index, assignment in of_topic.items():
                replicas = assignment.replicas
                if brokers is None:
                    yield TopicPartition(topic, index), replicas
                elif not brokers.isdisjoint(replicas):
                    are_all = brokers.issuperset(replicas)
                    yield TopicPartition(topic, index), replicas if are_all else [each for each in replicas if each in brokers]

    def replicas_on(self, brokers: set[int]) -> Iterator[Replica]:
        """All replicas on these brokers."""
        return (Replica(partition, broker_id) for partition, found in self.placements(brokers) for broker_id in found)

    def has_offline_leader(self, partition: TopicPartition) -> bool:
        """Whether the partition had a leader that cannot serve now."""
        leadership = self.leaderships.get(partition)
        return leadership is not None and not self.is_online(leadership.state.leader, partition)

    def is_being_deleted(self, topic: str) -> bool:
        """Whether the topic is queued for deletion."""
        return topic in self.topics_to_be_deleted

    def is_soon_deleted(self, topic: str) -> bool:
        """Whether the topic is queued for deletion, and no replica that is offline suspends that."""
        return topic in self.topics_to_be_deleted and topic not in self.topics_ineligible_for_deletion
