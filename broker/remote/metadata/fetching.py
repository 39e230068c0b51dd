"""Makes the requests of a reader of `__remote_log_metadata`, and takes their answers apart.

The reader is a plain consumer: without a group, and up to the high watermark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ottla.broker.remote.metadata.peers import REQUEST_TIMEOUT_MS
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.replication.ports.peer import Peer
from ottla.storage.remote.metadata.log import METADATA_TOPIC, MetadataLog

FETCH_VERSION: Final = 13
"""The first version with topic ids. Apache Kafka needs 14 for tiered storage."""
LIST_OFFSETS_VERSION: Final = 7
EARLIEST: Final = -2
LATEST: Final = -1
CONSUMER: Final = -1

MAX_WAIT_MS: Final = 500
MAX_BYTES: Final = 4 * 1024 * 1024
"""Bytes of an answer to a fetch; records of a million segments are 155 MB."""
MAX_PARTITION_BYTES: Final = 1024 * 1024


async def prepare() -> None:
    """Compiles the codecs, each in a turn of its own. The first use of each would do it in the turn of other work: up to 1.3 ms."""
    for compiled, version in (
        (ListOffsetsRequest.encoder, LIST_OFFSETS_VERSION),
        (ListOffsetsResponse.decoder, LIST_OFFSETS_VERSION),
        (FetchRequest.encoder, FETCH_VERSION),
        (FetchResponse.decoder, FETCH_VERSION),
    ):
        compiled(version)
        await asyncio.sleep(0)


async def fetch(peer: Peer, topic_id: bytes, logs: Iterable[MetadataLog], epochs: Mapping[int, int], max_wait_ms: int) -> FetchResponse:
    """Fetches from the positions of these partitions. Raises PeerUnavailable, UnsupportedVersion."""
    partitions = [
        FetchPartition(
            partition=log.index,
            current_leader_epoch=epochs[log.index],
            fetch_offset=log.position,
            last_fetched_epoch=log.last_epoch,
            partition_max_bytes=MAX_PARTITION_BYTES,
        )
        for log in logs
    ]
    topics = [FetchTopic(topic=METADATA_TOPIC, topic_id=topic_id, partitions=partitions)]
    request = FetchRequest(replica_id=CONSUMER, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=MAX_BYTES, topics=topics)
    response = await peer.request(ApiKey.FETCH, FETCH_VERSION, request, timeout_ms=REQUEST_TIMEOUT_MS)
    assert isinstance(response, FetchResponse)
    return response


def answers(response: FetchResponse) -> Iterator[PartitionData]:
    """The answers for the partitions of the topic."""
    for topic in response.responses:
        yield from topic.partitions


async def list_offsets(peer: Peer, indexes: Iterable[int], timestamp: int) -> tuple[dict[int, int], dict[int, ErrorCode]]:
    """Asks for the ends or the starts of partitions. Returns the offsets, and the errors of the others. Raises PeerUnavailable."""
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes]
    request = ListOffsetsRequest(replica_id=CONSUMER, topics=[ListOffsetsTopic(name=METADATA_TOPIC, partitions=partitions)])
    response = await peer.request(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request, timeout_ms=REQUEST_TIMEOUT_MS)
    assert isinstance(response, ListOffsetsResponse)
    offsets: dict[int, int] = {}
    errors: dict[int, ErrorCode] = {}
    for topic in response.topics:
        for each in topic.partitions:
            code = ErrorCode.of(each.error_code)
            if code is ErrorCode.NONE:
                offsets[each.partition_index] = each.offset
            else:
                errors[each.partition_index] = code
    return offsets, errors
