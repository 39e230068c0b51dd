"""Declares the families of kafka.server and kafka.cluster for topics, replicas, purgatories and fetch sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.broker.metrics.families import Family, Kind, Reading, counter, gauge, labelled, labels_text, timer
from ottla.broker.metrics.view import PARTITION_LABELS

if TYPE_CHECKING:
    from ottla.broker.metrics.view import View
    from ottla.replication.leader.isr import IsrChanges
    from ottla.replication.leader.partition import Partition
    from ottla.replication.waiting.purgatory import Purgatory


def _by_topic(mbean: str, attribute: str, doc: str, *, has_topics: bool = True) -> Family:
    def read(view: View) -> Reading:
        stats = view.services.data.replica_manager.topic_stats
        yield "", stats.total(attribute)
        if has_topics:
            for topic, of_topic in list(stats.topics.items()):
                yield labels_text(("topic",), (topic,)), getattr(of_topic, attribute)

    name = mbean.removesuffix("PerSec").lower()
    pattern = (
        f"kafka.server:name={mbean},topic=*,type=BrokerTopicMetrics" if has_topics else f"kafka.server:name={mbean},type=BrokerTopicMetrics"
    )
    labels = ("topic",) if has_topics else ()
    without = " Without a label: the sum over all topics, including deleted ones." if has_topics else ""
    return Family(f"kafka_server_brokertopicmetrics_{name}_total", Kind.COUNTER, labels, pattern, doc + without, read)


def _refused(mbean: str, attribute: str, doc: str) -> Family:
    name = f"kafka_server_brokertopicmetrics_{mbean.removesuffix('PerSec').lower()}_total"
    pattern = f"kafka.server:name={mbean},type=BrokerTopicMetrics"
    return counter(name, pattern, doc, lambda view: getattr(view.services.data.replica_manager.topic_stats, attribute))


def _of_partition(mbean: str, doc: str, value: Callable[[Partition], float]) -> Family:
    name, pattern = f"kafka_cluster_partition_{mbean.lower()}", f"kafka.cluster:name={mbean},partition=*,topic=*,type=Partition"
    return Family(name, Kind.GAUGE, PARTITION_LABELS, pattern, doc, lambda view: ((labels, value(of)) for labels, of in view.partitions))


def _replica_manager(mbean: str, doc: str, read: Callable[[View], float]) -> Family:
    pattern = f"kafka.server:name={mbean},type=ReplicaManager"
    return gauge(f"kafka_server_replicamanager_{mbean.lower()}", pattern, doc, read)


def _of_purgatory(mbean: str, doc: str, value: Callable[[Purgatory], int]) -> Family:
    def read(view: View) -> Iterator[tuple[Sequence[object], int]]:
        data = view.services.data
        for purgatory in (data.produce_purgatory, data.fetch_purgatory, data.remote_fetch_purgatory, data.delete_records_purgatory):
            yield (purgatory.name,), value(purgatory)

    pattern = f"kafka.server:delayedOperation=*,name={mbean},type=DelayedOperationPurgatory"
    name = f"kafka_server_delayedoperationpurgatory_{mbean.lower()}"
    return labelled(name, Kind.GAUGE, ("delayedOperation",), pattern, doc, read)


def _fetch_expirations(view: View) -> list[tuple[tuple[str], int]]:
    followers = view.services.data.replica_manager.topic_stats.follower_fetch_expirations
    return [(("consumer",), view.services.data.fetch_purgatory.expirations - followers), (("follower",), followers)]


def _isr_changes(mbean: str, doc: str, value: Callable[[IsrChanges], int]) -> Family:
    pattern = f"kafka.server:name={mbean},type=ReplicaManager"
    name = f"kafka_server_replicamanager_{mbean.removesuffix('PerSec').lower()}_total"
    return counter(name, pattern, doc, lambda view: value(view.services.data.replica_manager.isr_changes))


REPLICA_FAMILIES: tuple[Family, ...] = (
    _by_topic("MessagesInPerSec", "messages_in", "Records that were appended by this broker as leader."),
    _by_topic("BytesInPerSec", "bytes_in", "Bytes of record batches that were appended by this broker as leader."),
    _by_topic("BytesOutPerSec", "bytes_out", "Bytes of record batches that were sent to consumers."),
    _by_topic("BytesRejectedPerSec", "bytes_rejected", "Bytes of record batches that were refused as too large."),
    _by_topic("TotalProduceRequestsPerSec", "produce_requests", "Requested appends, one per partition of a Produce request."),
    _by_topic(
        "TotalFetchRequestsPerSec", "fetch_requests", "Reads of partitions, one per partition each time a Fetch request is evaluated."
    ),
    _by_topic("FailedProduceRequestsPerSec", "failed_produce_requests", "Appends that failed because of the broker or the records."),
    _by_topic("FailedFetchRequestsPerSec", "failed_fetch_requests", "Reads that failed because of the broker."),
    _by_topic("TotalShareFetchRequestsPerSec", "share_fetch_requests", "ShareFetch requests for the topic."),
    _by_topic(
        "FailedShareFetchRequestsPerSec",
        "failed_share_fetch_requests",
        "Those in which a partition of the topic has an error.",
    ),
    _by_topic(
        "TotalShareAcknowledgementRequestsPerSec",
        "share_acknowledgement_requests",
        "ShareFetch and ShareAcknowledge requests that acknowledge records of the topic.",
    ),
    _by_topic(
        "FailedShareAcknowledgementRequestsPerSec",
        "failed_share_acknowledgement_requests",
        "Those requests in which the acknowledgements of a partition were refused or not stored.",
    ),
    _by_topic(
        "ProduceMessageConversionsPerSec",
        "produce_message_conversions",
        "Records in message format 0 or 1 that were converted to format 2.",
    ),
    _by_topic(
        "FetchMessageConversionsPerSec", "fetch_message_conversions", "Records that were converted to message format 0 or 1 for consumers."
    ),
    _refused(
        "InvalidMagicNumberRecordsPerSec", "invalid_magic_numbers", "Batches of magic 0 or 1 in Produce 3 and later, and of several magics."
    ),
    _refused("InvalidMessageCrcRecordsPerSec", "invalid_checksums", "Batches whose CRC does not match their bytes."),
    _refused(
        "InvalidOffsetOrSequenceRecordsPerSec",
        "invalid_offsets_or_sequences",
        "Batches from producers with invalid offsets, counts or sequences, and control batches.",
    ),
    _refused("NoKeyCompactedTopicRecordsPerSec", "records_without_key", "Records without a key that were sent to compacted topics."),
    _by_topic("ReplicationBytesInPerSec", "replication_bytes_in", "Bytes that were fetched from leaders.", has_topics=False),
    _by_topic("ReplicationBytesOutPerSec", "replication_bytes_out", "Bytes that were sent to followers.", has_topics=False),
    _by_topic(
        "ReassignmentBytesInPerSec",
        "reassignment_bytes_in",
        "The part of those bytes for replicas that a reassignment adds here.",
        has_topics=False,
    ),
    _by_topic(
        "ReassignmentBytesOutPerSec",
        "reassignment_bytes_out",
        "Bytes that were sent to replicas that a reassignment adds on other brokers.",
        has_topics=False,
    ),
    _replica_manager("PartitionCount", "Partitions that are hosted here.", lambda view: view.replicas.partitions),
    _replica_manager("LeaderCount", "Partitions that this broker leads.", lambda view: view.replicas.leaders),
    _replica_manager(
        "UnderReplicatedPartitions", "Partitions led here with a replica that is not in sync.", lambda view: view.replicas.under_replicated
    ),
    _replica_manager(
        "UnderMinIsrPartitionCount",
        "Partitions led here with fewer replicas in sync than min.insync.replicas.",
        lambda view: view.replicas.under_min_isr,
    ),
    _replica_manager(
        "AtMinIsrPartitionCount",
        "Partitions led here with just as many replicas in sync as min.insync.replicas.",
        lambda view: view.replicas.at_min_isr,
    ),
    _replica_manager(
        "OfflineReplicaCount",
        "Partitions whose log directory here has failed.",
        lambda view: len(view.services.data.replica_manager.offline),
    ),
    _replica_manager(
        "ReassigningPartitions", "Partitions led here whose replicas are being added or removed.", lambda view: view.replicas.reassigning
    ),
    _isr_changes("IsrShrinksPerSec", "Shrinks of ISRs of partitions led here.", lambda changes: changes.shrinks),
    _isr_changes("IsrExpandsPerSec", "Expansions of ISRs of partitions led here.", lambda changes: changes.expands),
    _isr_changes(
        "FailedIsrUpdatesPerSec", "Proposals of an ISR that the controller refused or that came too late.", lambda changes: changes.failed
    ),
    _replica_manager("ProducerIdCount", "Producers in the state of the logs.", lambda view: view.replicas.producer_ids),
    _replica_manager(
        "PartitionsWithLateTransactionsCount",
        "Partitions led here whose oldest open transaction is five minutes older than transaction.max.timeout.ms.",
        lambda view: view.replicas.late_transactions,
    ),
    counter(
        "kafka_server_addpartitionstotxnmanager_verificationfailurerate_count",
        "kafka.server:name=VerificationFailureRate,type=AddPartitionsToTxnManager",
        "Partitions that were not verified to be in the open transaction of a producer.",
        lambda view: view.services.coordinators.transaction_verifier.failures,
    ),
    timer(
        "kafka_server_addpartitionstotxnmanager_verificationtimems",
        "kafka.server:name=VerificationTimeMs,type=AddPartitionsToTxnManager",
        "Questions whether partitions are in the open transaction of a producer, and how long the answers took in milliseconds.",
        lambda view: view.verifications.look(),
    ),
    _of_partition(
        "UnderReplicated",
        "1 where this broker leads and a replica is not in sync.",
        lambda partition: int(partition.is_leader and len(partition.isr) < partition.replication_factor),
    ),
    _of_partition(
        "UnderMinIsr",
        "1 where this broker leads with fewer replicas in sync than min.insync.replicas.",
        lambda partition: int(partition.is_leader and len(partition.isr) < partition.effective_min_isr),
    ),
    _of_partition(
        "AtMinIsr",
        "1 where this broker leads with just as many replicas in sync as min.insync.replicas.",
        lambda partition: int(partition.is_leader and len(partition.isr) == partition.effective_min_isr),
    ),
    _of_partition(
        "InSyncReplicasCount",
        "Replicas in sync, where this broker leads.",
        lambda partition: len(partition.isr) if partition.is_leader else 0,
    ),
    _of_partition(
        "ReplicasCount", "Replicas, where this broker leads.", lambda partition: len(partition.replicas) if partition.is_leader else 0
    ),
    _of_partition(
        "LastStableOffsetLag",
        "Offsets between the last stable one and the high watermark.",
        lambda partition: partition.log.high_watermark - partition.log.last_stable_offset,
    ),
    _of_purgatory("NumDelayedOperations", "Requests that wait for an event or their timeout.", lambda purgatory: purgatory.delayed),
    _of_purgatory("PurgatorySize", "Entries of those requests in watch lists.", lambda purgatory: purgatory.watched),
    labelled(
        "kafka_server_delayedfetchmetrics_expires_total",
        Kind.COUNTER,
        ("fetcherType",),
        "kafka.server:fetcherType=*,name=ExpiresPerSec,type=DelayedFetchMetrics",
        "Long polls that ended by timeout.",
        _fetch_expirations,
    ),
    gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "kafka.server:name=NumIncrementalFetchSessions,type=FetchSessionCache",
        "Fetch sessions.",
        lambda view: len(view.services.data.fetch_sessions.sessions),
    ),
    gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
        "kafka.server:name=NumIncrementalFetchPartitionsCached,type=FetchSessionCache",
        "Partitions in fetch sessions.",
        lambda view: sum(session.size for session in view.services.data.fetch_sessions.sessions.values()),
    ),
    counter(
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
        "kafka.server:name=IncrementalFetchSessionEvictionsPerSec,type=FetchSessionCache",
        "Fetch sessions that were evicted for others (max.incremental.fetch.session.cache.slots).",
        lambda view: view.services.data.fetch_sessions.evictions,
    ),
)
