"""What OffsetCommit and OffsetDelete do alike: sort out the partitions that may not be touched or do not exist, and answer by topic."""

from collections.abc import Collection, Sequence
from typing import Protocol, TypeVar

from broker.request.context import RequestContext
from broker.request.turns import Steps
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequestPartition
from protocol.messages.offset_delete import OffsetDeleteRequestPartition
from storage.disk.topic_partition import TopicPartition

Partition = TypeVar("Partition", OffsetCommitRequestPartition, OffsetDeleteRequestPartition)


class AskedTopic(Protocol[Partition]):
    """A topic of such a request."""

    name: str
    partitions: list[Partition]


class PartitionErrors:
    """The answer for each partition, by topic, in the order in which it became known."""

    __slots__ = ("by_topic",)

    def __init__(self) -> None:
        self.by_topic: dict[str, list[tuple[int, ErrorCode]]] = {}

    def name(self, topic: str) -> None:
        """The topic is answered, be it without a partition: so does Apache Kafka with topics that it does not know."""
        self.by_topic.setdefault(topic, [])

    def add(self, topic: str, index: int, code: ErrorCode) -> None:
        """One partition's answer is known."""
        self.by_topic.setdefault(topic, []).append((index, code))


def partitions_of(topic: str, context: RequestContext) -> tuple[Collection[int], ErrorCode]:
    """The partitions of a topic that can be served, and what to say of any other."""
    if not context.is_authorized(Operation.READ, ResourceType.TOPIC, topic):
        return (), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    image = context.broker.cluster.topics.get(topic)
    return () if image is None else image.partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def partitions_to_serve(
    topics: Sequence[AskedTopic[Partition]], errors: PartitionErrors, context: RequestContext
) -> Steps[list[tuple[TopicPartition, Partition]]]:
    """The partitions that can be served, with what was asked of each; the others are put into `errors`."""
    served = []
    for topic in topics:
        partitions, error = partitions_of(topic.name, context)
        if not partitions:
            errors.name(topic.name)
        for partition in topic.partitions:
            if partition.partition_index in partitions:
                served.append((TopicPartition(topic.name, partition.partition_index), partition))
            else:
                errors.add(topic.name, partition.partition_index, error)
            yield
        yield
    return served
