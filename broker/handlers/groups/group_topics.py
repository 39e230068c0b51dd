"""Decides for which partitions of a topic a group may have offsets: for OffsetCommit and OffsetDelete."""

from collections.abc import Collection

from ottla.broker.security.access import Access
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.replication.ports.cluster import MetadataCache


def partitions_of(topic: str, access: Access, cluster: MetadataCache) -> tuple[Collection[int], ErrorCode]:
    """The partitions of a topic that can be served, and the error for all others."""
    if not access.may(Operation.READ, ResourceType.TOPIC, topic):
        return (), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    image = cluster.topics.get(topic)
    return () if image is None else image.partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
