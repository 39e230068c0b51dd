"""Handles WriteTxnMarkers (api 27), versions 0-2.

KIP-98: transaction coordinators end transactions in the partitions that this broker leads. From 2 on markers have the version of their
transaction (KIP-1228).

`marker_writer` appends the markers. Those of a request do not wait for each other, but their answer waits for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ottla.broker.handlers.transactions.marker_writer import MarkerWriter
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import DelayedAnswer, RequestContext
from ottla.config.keys.network import REQUEST_TIMEOUT_MS
from ottla.coordination.transactions.markers import Marker
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition


async def handle_write_txn_markers(request: WriteTxnMarkersRequest, context: RequestContext) -> Message | Answer:
    """Write every marker, then wait for the followers."""
    is_authorized = context.is_authorized(Operation.ALTER, ResourceType.CLUSTER, log_if_denied=False) or context.is_authorized(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER
    )
    codes: dict[int, dict[tuple[str, int], int]] = context.scratch({})
    if not is_authorized:
        for marker in request.markers:
            refused = codes.setdefault(marker.producer_id, {})
            for partition in await _partitions(marker):
                refused[partition] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                await pause()
            await pause()
        return await _response(codes)
    markers = WrittenMarkers(len(request.markers), codes, DelayedAnswer(context))
    broker = context.broker
    on_completed = broker.coordinators.groups.on_transaction_completed
    writer = MarkerWriter(broker.data, broker.clock, broker.workers, broker.config[REQUEST_TIMEOUT_MS], on_completed)
    sender = f"{context.client.connection_id} (client id {context.client_id})"
    for each in request.markers:
        producer_id = each.producer_id
        codes.setdefault(producer_id, {})
        said = Marker(producer_id, each.producer_epoch, each.transaction_result, each.coordinator_epoch, each.transaction_version)
        await writer.write(said, await _partitions(each), sender, partial(markers.on_marked, producer_id))
        await pause()
    return markers.answer.answer()


class WrittenMarkers:
    """The markers of one request. `codes` has the result in each partition, by producer id."""

    __slots__ = ("_left", "answer", "codes")

    def __init__(self, count: int, codes: dict[int, dict[tuple[str, int], int]], answer: DelayedAnswer) -> None:
        self.codes = codes
        self.answer = answer
        self._left = count
        if not count:
            answer.complete_by(_response(codes))

    def on_marked(self, producer_id: int, codes: Mapping[tuple[str, int], int]) -> None:
        """The results of another marker are known for all of its partitions."""
        self.codes[producer_id].update(codes)
        self._left -= 1
        if not self._left:
            self.answer.complete_by(_response(self.codes))


async def _partitions(marker: WritableTxnMarker) -> list[TopicPartition]:
    """Each of them once."""
    found: dict[TopicPartition, None] = {}
    for topic in marker.topics:
        for index in topic.partition_indexes:
            found[TopicPartition(topic.name, index)] = None
            await pause()
        await pause()
    return list(found)


async def _response(codes: Mapping[int, Mapping[tuple[str, int], int]]) -> WriteTxnMarkersResponse:
    response = WriteTxnMarkersResponse()
    for producer_id, of_producer in codes.items():
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        for (name, index), code in of_producer.items():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = WritableTxnMarkerTopicResult(name=name)
            topic.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
            await pause()
        response.markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=list(topics.values())))
        await pause()
    return response
