"""Declares the keys of share groups of Kafka 4: those of KIP-932 that Apache Kafka 3.9 does not have.

DescribeConfigs does not list them.
"""

from ottla.config.schema.key import MEDIUM, MINUTE, SECOND, MiB, key
from ottla.config.schema.types import Int, Short

GROUP_SHARE_ASSIGNMENT_INTERVAL_MS = key(
    "group.share.assignment.interval.ms",
    Int(0),
    default=SECOND,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="The shortest time between two target assignments of a share group. Members that join meanwhile share the next one.",
)
GROUP_SHARE_INITIALIZE_RETRY_INTERVAL_MS = key(
    "group.share.initialize.retry.interval.ms",
    Int(1),
    default=30 * SECOND,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="An initialization of share partitions without an answer is asked for again after this time.",
)
GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS = key(
    "group.share.max.assignment.interval.ms",
    Int(0),
    default=15 * SECOND,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="The longest time between two target assignments that a share group may be given.",
)
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT = key(
    "group.share.max.delivery.count.limit",
    Int(5, 25),
    default=10,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="The largest number of deliveries that a share group may be given.",
)
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS = key(
    "group.share.max.partition.max.record.locks",
    Int(2_000, 10_000),
    default=4_000,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="The largest number of locked records of a partition that a share group may be given.",
)
GROUP_SHARE_MAX_SHARE_SESSIONS = key(
    "group.share.max.share.sessions",
    Int(1),
    default=2_000,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="How many share sessions a broker keeps.",
)
GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS = key(
    "group.share.min.assignment.interval.ms",
    Int(0),
    default=0,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="The shortest time between two target assignments that a share group may be given.",
)
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT = key(
    "group.share.min.delivery.count.limit",
    Int(2, 5),
    default=2,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="The smallest number of deliveries that a share group may be given.",
)
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS = key(
    "group.share.min.partition.max.record.locks",
    Int(100, 2_000),
    default=100,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="The smallest number of locked records of a partition that a share group may be given.",
)
SHARE_COORDINATOR_COLD_PARTITION_SNAPSHOT_INTERVAL_MS = key(
    "share.coordinator.cold.partition.snapshot.interval.ms",
    Int(1),
    default=5 * MINUTE,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="A share partition whose state was not written for this long gets a new snapshot, so that older records can be deleted.",
)
SHARE_COORDINATOR_LOAD_BUFFER_SIZE = key(
    "share.coordinator.load.buffer.size",
    Int(1),
    default=5 * MiB,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="Bytes of one read while the coordinator loads the state of share partitions.",
)
SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT = key(
    "share.coordinator.snapshot.update.records.per.snapshot",
    Int(0, 500),
    default=500,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="How many updates of a share partition's state may follow its last snapshot.",
)
SHARE_COORDINATOR_STATE_TOPIC_COMPRESSION_CODEC = key(
    "share.coordinator.state.topic.compression.codec",
    Int(0, 4),
    default=0,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="The compression of the batches in __share_group_state, by its number.",
)
SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR = key(
    "share.coordinator.state.topic.min.isr",
    Short(1),
    default=2,
    importance=MEDIUM,
    standalone=1,
    internal=True,
    effective=True,
    doc="The min.insync.replicas of __share_group_state.",
)
SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS = key(
    "share.coordinator.state.topic.num.partitions",
    Int(1),
    default=50,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="The partitions of __share_group_state when it is created.",
)
SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS = key(
    "share.coordinator.state.topic.prune.interval.ms",
    Int(1),
    default=5 * MINUTE,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="How often records of __share_group_state that are no longer needed are deleted.",
)
SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR = key(
    "share.coordinator.state.topic.replication.factor",
    Short(1),
    default=3,
    importance=MEDIUM,
    standalone=1,
    internal=True,
    effective=True,
    doc="The replicas of each partition of __share_group_state.",
)
SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES = key(
    "share.coordinator.state.topic.segment.bytes",
    Int(1),
    default=100 * MiB,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="The segment.bytes of __share_group_state.",
)
SHARE_COORDINATOR_WRITE_TIMEOUT_MS = key(
    "share.coordinator.write.timeout.ms",
    Int(1),
    default=5 * SECOND,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="How long a write of a share partition's state may wait for the replicas.",
)
SHARE_FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS = key(
    "share.fetch.purgatory.purge.interval.requests",
    Int(),
    default=1_000,
    importance=MEDIUM,
    internal=True,
    effective=True,
    doc="How many finished share fetches may stay in watch lists.",
)
