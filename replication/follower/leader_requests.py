"""Sends a follower's requests beside Fetch to its leader, and selects all versions by inter.broker.protocol.version.

Kafka's RemoteLeaderEndPoint. Called by `Fetcher`; changes no state. An error code in an answer becomes `LeaderRefused`.
"""

from __future__ import annotations

from typing import cast

from ottla.config.schema.metadata_version import is_at_least
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.peer import Peer

LATEST = -1
EARLIEST = -2
EARLIEST_LOCAL = -4

FIRST_FETCH_WITH_TOPIC_IDS = 13
LAST_FETCH_WITH_TOPIC_NAMES = 12
FIRST_FETCH_WITH_REPLICA_STATE = 15

_FETCH = (
    ("3.9-IV0", 17),
    ("3.7-IV4", 16),
    ("3.5-IV1", 15),
    ("3.5-IV0", 14),
    ("3.1-IV0", 13),
    ("2.7-IV1", 12),
    ("2.3-IV1", 11),
    ("2.1-IV2", 10),
    ("2.0-IV1", 8),
    ("1.1-IV0", 7),
    ("0.11.0-IV1", 5),
    ("0.11.0-IV0", 4),
    ("0.10.1-IV1", 3),
    ("0.10.0-IV0", 2),
    ("0.9.0", 1),
)
_LIST_OFFSETS = (
    ("3.9-IV0", 9),
    ("3.5-IV0", 8),
    ("3.0-IV1", 7),
    ("2.8-IV0", 6),
    ("2.2-IV1", 5),
    ("2.1-IV1", 4),
    ("2.0-IV1", 3),
    ("0.11.0-IV0", 2),
    ("0.10.1-IV2", 1),
)
_OFFSET_FOR_LEADER_EPOCH = (("2.8-IV0", 4), ("2.3-IV1", 3), ("2.1-IV1", 2), ("2.0-IV0", 1))


class InterBrokerVersions:
    """The versions that followers use under an inter.broker.protocol.version."""

    __slots__ = ("asks_for_epochs", "fetch", "list_offsets", "offset_for_leader_epoch", "truncates_on_fetch")

    def __init__(self, inter_broker_protocol_version: str) -> None:
        self.fetch = _version_of(inter_broker_protocol_version, _FETCH)
        self.list_offsets = _version_of(inter_broker_protocol_version, _LIST_OFFSETS)
        self.offset_for_leader_epoch = _version_of(inter_broker_protocol_version, _OFFSET_FOR_LEADER_EPOCH)
        self.truncates_on_fetch = is_at_least(inter_broker_protocol_version, "2.7-IV1")
        """Whether Fetch reports diverging logs. Older versions need OffsetForLeaderEpoch."""
        self.asks_for_epochs = is_at_least(inter_broker_protocol_version, "0.11.0-IV2")


def _version_of(inter_broker_protocol_version: str, table: tuple[tuple[str, int], ...]) -> int:
    for since, version in table:
        if is_at_least(inter_broker_protocol_version, since):
            return version
    return 0


class LeaderRefused(Exception):
    """The leader answered with an error code."""

    def __init__(self, topic_partition: TopicPartition, code: ErrorCode) -> None:
        super().__init__(f"{topic_partition}: the leader answered {code.name}")
        self.code = code


async def list_offset(
    peer: Peer,
    versions: InterBrokerVersions,
    replica_id: int,
    topic_partition: TopicPartition,
    leader_epoch: int,
    timestamp: int,
    timeout_ms: int,
) -> tuple[int, int]:
    """The end (LATEST), start (EARLIEST) or first local (EARLIEST_LOCAL) offset of the leader's log, and its leader epoch or -1.

    Raises LeaderRefused, PeerUnavailable.
    """
    version = versions.list_offsets
    asked = ListOffsetsPartition(partition_index=topic_partition.partition, current_leader_epoch=leader_epoch, timestamp=timestamp)
    topic = ListOffsetsTopic(name=topic_partition.topic, partitions=[asked])
    request = ListOffsetsRequest(replica_id=replica_id, topics=[topic])
    response = cast(ListOffsetsResponse, await peer.request(ApiKey.LIST_OFFSETS, version, request, timeout_ms=timeout_ms))
    for answered in response.topics:
        for found in answered.partitions:
            if answered.name == topic_partition.topic and found.partition_index == topic_partition.partition:
                if found.error_code:
                    raise LeaderRefused(topic_partition, ErrorCode.of(found.error_code))
                if version == 0:
                    return found.old_style_offsets[0] if found.old_style_offsets else 0, -1
                return found.offset, found.leader_epoch
    raise LeaderRefused(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR)


async def end_offsets_of_epochs(
    peer: Peer, versions: InterBrokerVersions, replica_id: int, asked: dict[TopicPartition, tuple[int, int]], timeout_ms: int
) -> dict[TopicPartition, EpochEndOffset]:
    """End offsets of epochs in the leader's logs. `asked` has current leader epoch and epoch per partition. Raises PeerUnavailable."""
    topics: dict[str, OffsetForLeaderTopic] = {}
    for (name, index), (current_leader_epoch, epoch) in asked.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = OffsetForLeaderTopic(topic=name)
        topic.partitions.append(OffsetForLeaderPartition(partition=index, current_leader_epoch=current_leader_epoch, leader_epoch=epoch))
    version = versions.offset_for_leader_epoch
    request = OffsetForLeaderEpochRequest(replica_id=replica_id, topics=list(topics.values()))
    response = await peer.request(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request, timeout_ms=timeout_ms)
    return {
        TopicPartition(answered.topic, found.partition): found
        for answered in cast(OffsetForLeaderEpochResponse, response).topics
        for found in answered.partitions
    }
