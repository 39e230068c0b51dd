"""Declares the families of tiered storage: copies, reads and removals of remote segments, what is still to be done, and the metadata.

Without tiered storage they have no values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.broker.metrics.families import Family, Kind, Reading, counter, labels_text, single, timer

if TYPE_CHECKING:
    from ottla.broker.metrics.view import View
    from ottla.broker.remote.metadata.topic_metadata import TopicMetadata
    from ottla.broker.remote.remote_storage import RemoteStorage
    from ottla.broker.request.services import RemoteServices
    from ottla.replication.remote.counters import RemoteCounters
    from ottla.replication.remote.remote_log_manager import RemoteLogManager


_ByTopic = Iterable[tuple[str, object]]
"""Counters of topics, or of partitions with their topics."""


def _of_topics(mbean: str, attribute: str, doc: str, kind: Kind, counters: Callable[[RemoteCounters], _ByTopic]) -> Family:
    def read(view: View) -> Reading:
        remote = view.services.remote
        sums: Counter[str] = Counter()
        for topic, each in () if remote is None else counters(remote.tasks.counters):
            sums[topic] += getattr(each, attribute)
        for topic, value in sums.items():
            yield labels_text(("topic",), (topic,)), value
        if sums:
            yield "", sum(sums.values())

    name = f"{mbean.removesuffix('PerSec').lower()}{'_total' if kind is Kind.COUNTER else ''}"
    pattern = f"kafka.server:name={mbean},topic=*,type=BrokerTopicMetrics"
    doc += " Without a label: the sum over all topics."
    return Family(f"kafka_server_brokertopicmetrics_{name}", kind, ("topic",), pattern, doc, read)


def _counted(mbean: str, attribute: str, doc: str) -> Family:
    return _of_topics(mbean, attribute, doc, Kind.COUNTER, lambda counters: counters.topics.items())


def _state(mbean: str, attribute: str, doc: str) -> Family:
    def led(counters: RemoteCounters) -> _ByTopic:
        return ((partition.topic, state) for partition, state in counters.partitions.items())

    return _of_topics(mbean, attribute, f"{doc}, of the partitions that this broker leads.", Kind.GAUGE, led)


def _of_remote(name: str, mbean: str, doc: str, value: Callable[[RemoteServices], float | None], kind: Kind = Kind.GAUGE) -> Family:
    """A family without labels, and without a value where there is no tiered storage."""

    def read(view: View) -> float | None:
        remote = view.services.remote
        return None if remote is None else value(remote)

    return single(name, kind, mbean, doc, read)


def _storage(name: str, mbean: str, doc: str, value: Callable[[RemoteStorage], float], kind: Kind = Kind.GAUGE) -> Family:
    return _of_remote(name, mbean, doc, lambda remote: value(remote.storage), kind)


def _of_partitions(name: str, attribute: str, doc: str) -> Family:
    def value(remote: RemoteServices) -> int:
        return sum(getattr(state, attribute) for state in remote.tasks.counters.partitions.values())

    return _of_remote(f"ottla_remote_{name}", "", f"{doc}, of the partitions that this broker leads.", value)


def _tasks(name: str, mbean: str, doc: str, value: Callable[[RemoteLogManager], float]) -> Family:
    return _of_remote(f"kafka_{name}", mbean, doc, lambda remote: value(remote.tasks))


def _of_metadata(name: str, kind: Kind, doc: str, value: Callable[[TopicMetadata], float]) -> Family:
    return _of_remote(f"ottla_remote_log_metadata_{name}", "", doc, lambda remote: value(remote.metadata), kind)


def _mean_fetch_throttle_ms(storage: RemoteStorage) -> float:
    loads = storage.loads
    return loads.throttled_seconds * 1000 / loads.throttles if loads is not None and loads.throttles else 0.0


def _unreadable(remote: RemoteServices) -> int | None:
    loads = remote.storage.loads
    return None if loads is None else sum(remote.metadata.is_finished(each) for each in loads.wrong_segments)


_POOL = "org.apache.kafka.storage.internals.log"

REMOTE_FAMILIES: tuple[Family, ...] = (
    _counted("RemoteFetchBytesPerSec", "remote_fetch_bytes", "Bytes of records that were read from the remote store."),
    _counted("RemoteFetchRequestsPerSec", "remote_fetch_requests", "Reads of records from the remote store."),
    _counted("RemoteFetchErrorsPerSec", "remote_fetch_errors", "Reads of records from the remote store that failed."),
    _counted("RemoteCopyBytesPerSec", "copy_bytes", "Bytes of records that were copied to the remote store."),
    _counted("RemoteCopyRequestsPerSec", "copy_requests", "Copies of segments to the remote store."),
    _counted("RemoteCopyErrorsPerSec", "copy_errors", "Copies of segments that failed."),
    _counted("RemoteDeleteRequestsPerSec", "delete_requests", "Removals of segments from the remote store."),
    _counted("RemoteDeleteErrorsPerSec", "delete_errors", "Removals of segments that failed."),
    _counted("BuildRemoteLogAuxStateRequestsPerSec", "build_aux_state_requests", "Starts of followers behind remote records."),
    _counted("BuildRemoteLogAuxStateErrorsPerSec", "build_aux_state_errors", "Starts of followers behind remote records that failed."),
    _state("RemoteCopyLagBytes", "copy_lag_bytes", "Bytes that are to be copied"),
    _state("RemoteCopyLagSegments", "copy_lag_segments", "Segments that are to be copied"),
    _state("RemoteDeleteLagBytes", "delete_lag_bytes", "Remote bytes that are to be removed"),
    _state("RemoteDeleteLagSegments", "delete_lag_segments", "Remote segments that are to be removed"),
    _state("RemoteLogMetadataCount", "metadata_count", "Entries of remote segments"),
    _state("RemoteLogSizeBytes", "log_size_bytes", "Bytes in the remote store"),
    _state("RemoteLogSizeComputationTime", "log_size_computation_ms", "Milliseconds for which these bytes were counted"),
    _of_remote(
        "ottla_remote_unreadable_segments",
        "",
        "Segments that consumers may read, and of which the store did not have what was copied, when this broker read them the last time: "
        "at most 1000.",
        _unreadable,
    ),
    _of_partitions("lost_log_segments", "lost_log_segments", "Segments in the remote store of logs that lost all their replicas"),
    _of_partitions("lost_log_bytes", "lost_log_bytes", "Bytes in the remote store of logs that lost all their replicas"),
    _of_partitions("missing_offsets", "missing_offsets", "Offsets that neither the remote store nor the leader has"),
    _storage(
        f"{_POOL.replace('.', '_')}_remotestoragethreadpool_remotelogreadertaskqueuesize",
        f"{_POOL}:name=RemoteLogReaderTaskQueueSize,type=RemoteStorageThreadPool",
        "Reads of chunks from the remote store that wait, without those ahead of demand.",
        lambda storage: 0 if storage.loads is None else storage.loads.waiting,
    ),
    _storage(
        f"{_POOL.replace('.', '_')}_remotestoragethreadpool_remotelogreaderavgidlepercent",
        f"{_POOL}:name=RemoteLogReaderAvgIdlePercent,type=RemoteStorageThreadPool",
        "The part of `remote.log.reader.threads` that reads nothing now.",
        lambda storage: 0 if storage.loads is None else storage.loads.idle_share,
    ),
    timer(
        "kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems",
        "kafka.log.remote:name=RemoteLogReaderFetchRateAndTimeMs,type=RemoteLogManager",
        "Reads of chunks from the remote store, also those ahead of demand and those that fail, and how long they take in milliseconds.",
        lambda view: None if view.services.remote is None else view.remote_reads.look(),
    ),
    _tasks(
        "log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent",
        "kafka.log.remote:name=RemoteLogManagerTasksAvgIdlePercent,type=RemoteLogManager",
        "The part of `remote.log.manager.copier.thread.pool.size` that copies nothing now.",
        lambda tasks: tasks.idle_share,
    ),
    _tasks(
        "server_rlmcopy_byte_rate",
        "kafka.server:type=RLMCopy",
        "Bytes that are copied in a second, in the windows of `remote.log.manager.copy.quota.window.num`.",
        lambda tasks: tasks.copy_quota.bytes_per_second(),
    ),
    _tasks(
        "server_remotelogmanager_remote_copy_throttle_time_avg",
        "kafka.server:type=RemoteLogManager",
        "Milliseconds for which a copy waited for `remote.log.manager.copy.max.bytes.per.second`, on average since the start.",
        lambda tasks: tasks.copy_quota.throttle_ms_total / max(tasks.copy_quota.throttled, 1),
    ),
    _tasks(
        "server_remotelogmanager_remote_copy_throttle_time_max",
        "kafka.server:type=RemoteLogManager",
        "The longest such time.",
        lambda tasks: tasks.copy_quota.throttle_ms_max,
    ),
    _storage(
        "kafka_server_rlmfetch_byte_rate",
        "kafka.server:type=RLMFetch",
        "Bytes that are read in a second, in the windows of `remote.log.manager.fetch.quota.window.num`.",
        lambda storage: storage.quota.bytes_per_second(),
    ),
    _storage(
        "kafka_server_remotelogmanager_remote_fetch_throttle_time_avg",
        "kafka.server:type=RemoteLogManager",
        "Milliseconds for which a read waited for `remote.log.manager.fetch.max.bytes.per.second`, on average since the start.",
        _mean_fetch_throttle_ms,
    ),
    _storage(
        "kafka_server_remotelogmanager_remote_fetch_throttle_time_max",
        "kafka.server:type=RemoteLogManager",
        "The longest such time.",
        lambda storage: 0 if storage.loads is None else storage.loads.longest_throttle_seconds * 1000,
    ),
    counter(
        "kafka_server_delayedremotefetchmetrics_expires_total",
        "kafka.server:name=ExpiresPerSec,type=DelayedRemoteFetchMetrics",
        "Fetches that waited for `remote.fetch.max.wait.ms` for the remote store.",
        lambda view: None if view.services.remote is None else view.services.data.remote_fetch_purgatory.expirations,
    ),
    _storage(
        "ottla_remote_fetch_throttled_seconds_total",
        "",
        "Time for which reads waited for `remote.log.manager.fetch.max.bytes.per.second`.",
        lambda storage: 0 if storage.loads is None else storage.loads.throttled_seconds,
        Kind.COUNTER,
    ),
    _storage(
        "ottla_remote_store_degraded",
        "",
        "1 while the remote store does not answer this broker, or refuses it; otherwise 0. It is asked every 30 seconds.",
        lambda storage: 1 if storage.watch.trouble else 0,
    ),
    _storage(
        "ottla_remote_memory_bytes",
        "",
        "Memory that transfers to and from the remote store have taken: copies, chunks, indexes.",
        lambda storage: storage.budget.used,
    ),
    _storage(
        "ottla_remote_chunk_cache_bytes",
        "",
        "Records of remote segments on the disk of this broker.",
        lambda storage: 0 if storage.chunks is None else storage.chunks.size,
    ),
    _storage(
        "ottla_remote_index_cache_bytes",
        "",
        "Indexes of remote segments on the disk of this broker.",
        lambda storage: 0 if storage.indexes is None else storage.indexes.size,
    ),
)

REMOTE_METADATA_FAMILIES: tuple[Family, ...] = (
    _of_metadata(
        "unread_partitions",
        Kind.GAUGE,
        "Partitions with a replica here whose entries in `__remote_log_metadata` have not all been read. Nothing of theirs is copied.",
        lambda metadata: metadata.reader.unread_partitions,
    ),
    _of_metadata(
        "troubled_partitions",
        Kind.GAUGE,
        "Partitions of `__remote_log_metadata` that cannot be read or written now. The broker's log has the reasons.",
        lambda metadata: len(metadata.reader.refusals) + len(metadata.writer.refusals),
    ),
    _of_metadata(
        "records_total", Kind.COUNTER, "Records of `__remote_log_metadata` that were applied.", lambda metadata: metadata.reader.applied
    ),
    _of_metadata(
        "skipped_records_total",
        Kind.COUNTER,
        "Records of `__remote_log_metadata` that were left out, because they cannot be read or do not fit.",
        lambda metadata: metadata.reader.skipped,
    ),
    _of_metadata(
        "failed_writes_total",
        Kind.COUNTER,
        "Records that this broker could not write to `__remote_log_metadata`, or did not read in time.",
        lambda metadata: metadata.failed_writes,
    ),
)
"""Apache Kafka 3.9 has none for its TopicBasedRemoteLogMetadataManager."""
