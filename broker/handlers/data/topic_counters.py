"""Counts partitions for which Produce or Fetch failed: the rarer half of Kafka's BrokerTopicMetrics.

The hot path itself counts successes. As in Apache Kafka (ReplicaManager.appendToLocalLog, readFromLog), failures that are due to the client
or the cluster, rather than to this broker, do not count as failed requests.
"""

from __future__ import annotations

from ottla.replication import errors as replication_errors
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.storage import errors as storage_errors
from ottla.storage.validation import record_errors

_PRODUCE_IS_NOT_FAILED = (
    replication_errors.UnknownTopicOrPartition,
    replication_errors.NotLeaderOrFollower,
    replication_errors.ReplicaStorageFailure,
    storage_errors.RecordTooLarge,
    storage_errors.RecordBatchTooLarge,
    storage_errors.CorruptRecord,
    storage_errors.LogDirFailure,
)
_FETCH_IS_NOT_FAILED = (
    replication_errors.UnknownTopicOrPartition,
    replication_errors.NotLeaderOrFollower,
    replication_errors.UnknownLeaderEpoch,
    replication_errors.FencedLeaderEpoch,
    replication_errors.ReplicaStorageFailure,
    replication_errors.InconsistentTopicId,
    replication_errors.UnknownReplica,
    storage_errors.InconsistentTopicId,
    storage_errors.LogDirFailure,
    storage_errors.OffsetOutOfRange,
)


def count_refused_produce(replicas: ReplicaManager, topic: str, error: Exception, size_bytes: int) -> None:
    """Count a partition of a Produce request that was not appended to; `size_bytes` is the size of its records in the request."""
    of_broker = replicas.topic_stats
    stats = of_broker.of_any(topic)
    stats.produce_requests += 1
    of_broker.invalid_checksums += isinstance(error, record_errors.WrongChecksum)
    of_broker.invalid_magic_numbers += isinstance(error, record_errors.LegacyRecords)
    of_broker.invalid_offsets_or_sequences += isinstance(error, record_errors.InvalidOffsetOrSequence)
    of_broker.records_without_key += record_errors.records_without_key(error)
    if isinstance(error, (storage_errors.RecordTooLarge, storage_errors.RecordBatchTooLarge)):
        stats.bytes_rejected += size_bytes
    if not isinstance(error, _PRODUCE_IS_NOT_FAILED):
        stats.failed_produce_requests += 1


def count_failed_fetch(replicas: ReplicaManager, topic: str, error: Exception) -> None:
    """Count a partition of a Fetch request that was not read."""
    if not isinstance(error, _FETCH_IS_NOT_FAILED):
        replicas.topic_stats.of_any(topic).failed_fetch_requests += 1
