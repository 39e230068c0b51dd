"""Handles WriteTxnMarkers (api 27), versions 0-1.

KIP-98: transaction coordinators end transactions in the partitions that this broker leads.

Each marker is appended to each of its partitions as a control batch, and is answered when all replicas in sync have it, or after
`request.timeout.ms`. A marker in `__consumer_offsets` then decides about the pending offsets of the producer. The markers of a request do
not wait for each other, but their answer does.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from broker.handlers.data.delayed_produce import AppendedPartition, DelayedProduce
from broker.handlers.data.partition_errors import partition_error
from broker.handlers.data.produce_codes import ACKS_ALL
from broker.handlers.delayed_answer import DelayedAnswer
from broker.network.request_channel import Answer, Pending
from broker.request.context import RequestContext
from broker.request.internal_topics import GROUP_METADATA_TOPIC
from broker.request.turns import Steps
from broker.security.authorizer import Operation, ResourceType
from config.keys.network import REQUEST_TIMEOUT_MS
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.records.builder import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from replication.errors import ReplicationError
from replication.leader.partition import Partition
from storage.disk.topic_partition import TopicPartition
from storage.errors import InvalidProducerEpoch, StorageError, TransactionCoordinatorFenced
from storage.log.origins import COORDINATOR
from storage.validation.run import BatchRun

logger = logging.getLogger(__name__)


def handle_write_txn_markers(request: WriteTxnMarkersRequest, context: RequestContext) -> Steps[WriteTxnMarkersResponse | Answer]:
    """Write every marker, then wait for the followers."""
    is_authorized = context.is_authorized(Operation.ALTER, ResourceType.CLUSTER, log_if_denied=False) or context.is_authorized(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER
    )
    codes: dict[int, dict[TopicPartition, int]] = {}
    if not is_authorized:
        for marker in request.markers:
            refused = codes.setdefault(marker.producer_id, {})
            for partition in _partitions(marker):
                refused[partition] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                yield
        return (yield from _response(codes))
    markers = WrittenMarkers(len(request.markers), codes, DelayedAnswer(context))
    for marker in request.markers:
        yield from _write(marker, markers, context)
    answer = markers.answer.answer()
    if isinstance(answer, Pending):
        return answer
    return (yield from _response(codes))


class WrittenMarkers:
    """The markers of one request. `codes` says by producer id what became of them in each partition."""

    __slots__ = ("_left", "answer", "codes")

    def __init__(self, count: int, codes: dict[int, dict[TopicPartition, int]], answer: DelayedAnswer) -> None:
        self.codes = codes
        self.answer = answer
        self._left = count
        if not count:
            answer.complete_steps(_response(codes))

    def on_decided(self) -> None:
        """It is known of one more marker what became of it in all of its partitions."""
        self._left -= 1
        if not self._left:
            self.answer.complete_steps(_response(self.codes))


def _write(marker: WritableTxnMarker, markers: WrittenMarkers, context: RequestContext) -> Steps[None]:
    broker = context.broker
    codes = markers.codes.setdefault(marker.producer_id, {})
    waiting: list[AppendedPartition] = []
    zombie: StorageError | None = None
    for topic_partition in _partitions(marker):
        yield
        partition = broker.data.replica_manager.partition(*topic_partition)
        if partition is None:
            codes[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        try:
            waiting.append(_append(marker, partition, broker.clock.now_ms()))
        except (StorageError, ReplicationError) as error:
            codes[topic_partition] = partition_error(error, broker.data)
            if isinstance(error, InvalidProducerEpoch | TransactionCoordinatorFenced):
                zombie = error
    if zombie is not None:
        logger.warning("a marker from %s (client id %s) is refused: %s", context.client.connection_id, context.client_id, zombie)

    def on_decided(decided: Sequence[AppendedPartition]) -> None:
        for each in decided:
            topic, index = each.partition.topic_partition
            is_safe = topic == GROUP_METADATA_TOPIC and each.error_code == ErrorCode.NONE
            codes[TopicPartition(topic, index)] = _complete_offsets(marker, index, context) if is_safe else each.error_code
        markers.on_decided()

    if waiting:
        DelayedProduce(waiting, ACKS_ALL, on_decided).begin(broker.data.produce_purgatory, broker.config[REQUEST_TIMEOUT_MS])
    else:
        markers.on_decided()


def _append(marker: WritableTxnMarker, partition: Partition, now_ms: int) -> AppendedPartition:
    """Raises StorageError, ReplicationError."""
    kind = ControlRecordType.COMMIT if marker.transaction_result else ControlRecordType.ABORT
    batch = build_end_transaction_marker(
        EndTransactionMarker(kind, marker.coordinator_epoch),
        timestamp=now_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )
    run = BatchRun(memoryview(batch))
    run.read(0)
    partition.append(run, ACKS_ALL, now_ms, COORDINATOR)
    return AppendedPartition(partition, run.first_offset, run.last_offset + 1, 0)


def _complete_offsets(marker: WritableTxnMarker, index: int, context: RequestContext) -> int:
    """Decide about the pending offsets; the error code for the marker. The marker is in the log even if that fails."""
    try:
        context.broker.coordinators.groups.on_transaction_completed(marker.producer_id, index, marker.transaction_result)
    except Exception:
        logger.exception("the offsets of producer %d in %s-%d are not up to date", marker.producer_id, GROUP_METADATA_TOPIC, index)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


def _partitions(marker: WritableTxnMarker) -> list[TopicPartition]:
    """Each of them once."""
    found = {TopicPartition(topic.name, index): None for topic in marker.topics for index in topic.partition_indexes}
    return list(found)


def _response(codes: dict[int, dict[TopicPartition, int]]) -> Steps[WriteTxnMarkersResponse]:
    response = WriteTxnMarkersResponse()
    for producer_id, of_producer in codes.items():
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        for partition, code in of_producer.items():
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = WritableTxnMarkerTopicResult(name=partition.topic)
            topic.partitions.append(WritableTxnMarkerPartitionResult(partition_index=partition.partition, error_code=code))
            yield
        response.markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=list(topics.values())))
        yield
    return response
