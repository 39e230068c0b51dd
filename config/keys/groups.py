"""Declares the keys of consumer groups: the classic protocol and committed offsets."""

from ottla.config.schema.key import HIGH, INT_MAX, MEDIUM, MINUTE, SECOND, KiB, MiB, key
from ottla.config.schema.types import Int, Long, Short

GROUP_INITIAL_REBALANCE_DELAY_MS = key(
    "group.initial.rebalance.delay.ms",
    Int(),
    default=3 * SECOND,
    standalone=0,
    importance=MEDIUM,
    effective=True,
    doc="How long the first rebalance of an empty group waits for further members.",
)
GROUP_MAX_SESSION_TIMEOUT_MS = key(
    "group.max.session.timeout.ms",
    Int(),
    default=30 * MINUTE,
    importance=MEDIUM,
    effective=True,
    doc="The longest session timeout that a member may request.",
)
GROUP_MAX_SIZE = key("group.max.size", Int(1), default=INT_MAX, importance=MEDIUM, effective=True, doc="How many members a group may have.")
GROUP_MIN_SESSION_TIMEOUT_MS = key(
    "group.min.session.timeout.ms",
    Int(),
    default=6 * SECOND,
    importance=MEDIUM,
    effective=True,
    doc="The shortest session timeout that a member may request.",
)
OFFSET_METADATA_MAX_BYTES = key(
    "offset.metadata.max.bytes",
    Int(),
    default=4 * KiB,
    importance=HIGH,
    effective=True,
    doc="The largest text that a client may store with a committed offset.",
)
OFFSETS_COMMIT_REQUIRED_ACKS = key(
    "offsets.commit.required.acks",
    Short(),
    default=-1,
    importance=HIGH,
    effective=True,
    doc="The acks that a commit waits for; deprecated, and only -1 makes sense.",
)
OFFSETS_COMMIT_TIMEOUT_MS = key(
    "offsets.commit.timeout.ms",
    Int(1),
    default=5 * SECOND,
    importance=HIGH,
    effective=True,
    doc="How long a commit waits for the replicas of the offsets topic.",
)
OFFSETS_LOAD_BUFFER_SIZE = key(
    "offsets.load.buffer.size",
    Int(1),
    default=5 * MiB,
    importance=HIGH,
    effective=True,
    doc="How many bytes of the offsets topic are read at a time when a coordinator loads it.",
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS = key(
    "offsets.retention.check.interval.ms",
    Long(1),
    default=10 * MINUTE,
    importance=HIGH,
    effective=True,
    doc="How often the coordinator looks for expired offsets.",
)
OFFSETS_RETENTION_MINUTES = key(
    "offsets.retention.minutes",
    Int(1),
    default=10_080,
    importance=HIGH,
    effective=True,
    doc="How long the offsets of a group are kept after it became empty, or of a lone consumer after its last commit.",
)
OFFSETS_TOPIC_COMPRESSION_CODEC = key(
    "offsets.topic.compression.codec",
    Int(),
    default=0,
    importance=HIGH,
    effective=True,
    doc="The codec of commits in the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
)
OFFSETS_TOPIC_NUM_PARTITIONS = key(
    "offsets.topic.num.partitions",
    Int(1),
    default=50,
    importance=HIGH,
    effective=True,
    doc="How many partitions the offsets topic is created with; not to be changed afterwards.",
)
OFFSETS_TOPIC_REPLICATION_FACTOR = key(
    "offsets.topic.replication.factor",
    Short(1),
    default=3,
    standalone=1,
    importance=HIGH,
    effective=True,
    doc="The replication factor the offsets topic is created with; creation waits until there are as many brokers.",
)
OFFSETS_TOPIC_SEGMENT_BYTES = key(
    "offsets.topic.segment.bytes",
    Int(1),
    default=100 * MiB,
    importance=HIGH,
    effective=True,
    doc="The segment size of the offsets topic, kept small so that compaction and loading are quick.",
)
