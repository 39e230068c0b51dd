"""Writes markers to partitions that this broker leads, and reports when all in-sync replicas have them.

Coordinators on other brokers request it by WriteTxnMarkers, this broker's own coordinator by a call. A marker is a control batch in each of
its partitions. A marker in `__consumer_offsets` then commits or drops the pending offsets of the producer. Replicas have
`request.timeout.ms` for a marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TypeAlias, final

from ottla.broker.handlers.data.partition_errors import partition_error
from ottla.broker.loop.background import in_thread
from ottla.broker.request.services import DataServices
from ottla.coordination.appends.delayed_produce import ACKS_ALL, AppendedPartition, DelayedProduce
from ottla.coordination.internal_topics import GROUP_METADATA_TOPIC
from ottla.coordination.transactions.markers import Marker, OnMarked
from ottla.coordination.transactions.metadata import raises_epoch
from ottla.pauses import pause
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.builder import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.errors import ReplicationError
from ottla.storage.disk.clock import Clock
from ottla.storage.errors import InvalidProducerEpoch, StorageError, TransactionCoordinatorFenced
from ottla.storage.log.origins import COORDINATOR
from ottla.storage.log.pending_topic_id import is_durable, make_durable
from ottla.storage.validation.run import BatchRun

logger = logging.getLogger(__name__)

OnCompleted: TypeAlias = Callable[[int, int, bool], None]
"""Decides about the pending offsets of a producer in a partition of `__consumer_offsets`: (producer id, partition, is_commit)."""


@final
class MarkerWriter:
    """See the module."""

    __slots__ = ("_clock", "_data", "_on_completed", "_timeout_ms", "_workers")

    def __init__(self, data: DataServices, clock: Clock, workers: Executor, timeout_ms: int, on_completed: OnCompleted) -> None:
        """`on_completed` is `GroupCoordinator.on_transaction_completed`. `timeout_ms` is `request.timeout.ms`."""
        self._data = data
        self._clock = clock
        self._workers = workers
        self._timeout_ms = timeout_ms
        self._on_completed = on_completed

    async def write(self, marker: Marker, partitions: Iterable[TopicPartition], sender: str, then: OnMarked) -> None:
        """Append the marker to each partition, with pauses. `then` gets an error code for each when all are decided, perhaps here.

        `sender` names the coordinator, for the log.
        """
        data = self._data
        now_ms = self._clock.now_ms()
        said = EndTransactionMarker(ControlRecordType.COMMIT if marker.is_commit else ControlRecordType.ABORT, marker.coordinator_epoch)
        batch = build_end_transaction_marker(said, timestamp=now_ms, producer_id=marker.producer_id, producer_epoch=marker.producer_epoch)
        run = BatchRun(memoryview(batch))
        size = len(batch)
        codes: dict[tuple[str, int], int] = {}
        waiting: list[AppendedPartition] = []
        zombie: StorageError | None = None
        for topic_partition in partitions:
            await pause()
            partition = data.replica_manager.partition(*topic_partition)
            if partition is None:
                codes[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            try:
                if not is_durable(partition.log):
                    await in_thread(self._workers, make_durable, partition.log)
                run.point_at(0, size)  # each leader stamps the same bytes
                run.read(0)
                run.marker = said
                run.raises_epoch = raises_epoch(marker.transaction_version)
                partition.append(run, ACKS_ALL, now_ms, COORDINATOR)
            except (StorageError, ReplicationError) as error:
                codes[topic_partition] = partition_error(error, data)
                if isinstance(error, InvalidProducerEpoch | TransactionCoordinatorFenced):
                    zombie = error
            else:
                waiting.append(AppendedPartition(partition, run.first_offset, run.last_offset + 1, 0))
        if zombie is not None:
            logger.warning("a marker from %s is refused: %s", sender, zombie)
        if not waiting:
            then(codes)
            return
        decided = partial(self._on_decided, marker, codes, then)
        DelayedProduce(waiting, ACKS_ALL, decided).begin(data.produce_purgatory, self._timeout_ms)

    def _on_decided(self, marker: Marker, codes: dict[tuple[str, int], int], then: OnMarked, decided: Sequence[AppendedPartition]) -> None:
        for each in decided:
            code = each.error_code
            topic_partition = each.partition.topic_partition
            if not code and topic_partition.topic == GROUP_METADATA_TOPIC:
                code = self._complete_offsets(marker, topic_partition.partition)
            codes[topic_partition] = code
        then(codes)

    def _complete_offsets(self, marker: Marker, index: int) -> int:
        """Decide about the pending offsets; the error code for the marker. The marker is in the log even if that fails."""
        try:
            self._on_completed(marker.producer_id, index, marker.is_commit)
        except Exception:
            logger.exception("the offsets of producer %d in %s-%d are not up to date", marker.producer_id, GROUP_METADATA_TOPIC, index)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE
