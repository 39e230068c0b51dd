"""Consumer groups of the classic protocol and their committed offsets."""

from config.key import HIGH, INT_MAX, MEDIUM, MINUTE, SECOND, KiB, MiB, key
from config.types import Int, Long, Short

GROUP_INITIAL_REBALANCE_DELAY_MS = key(
    "group.initial.rebalance.delay.ms", Int(), default=3 * SECOND, importance=MEDIUM, effective=True, doc="?"
)
GROUP_MAX_SESSION_TIMEOUT_MS = key("group.max.session.timeout.ms", Int(), default=30 * MINUTE, importance=MEDIUM, effective=True, doc="?")
GROUP_MAX_SIZE = key("group.max.size", Int(1), default=INT_MAX, importance=MEDIUM, effective=True, doc="?")
GROUP_MIN_SESSION_TIMEOUT_MS = key("group.min.session.timeout.ms", Int(), default=6 * SECOND, importance=MEDIUM, effective=True, doc="?")
OFFSET_METADATA_MAX_BYTES = key("offset.metadata.max.bytes", Int(), default=4 * KiB, importance=HIGH, effective=True, doc="?")
OFFSETS_COMMIT_REQUIRED_ACKS = key("offsets.commit.required.acks", Short(), default=-1, importance=HIGH, doc="?")
OFFSETS_COMMIT_TIMEOUT_MS = key("offsets.commit.timeout.ms", Int(1), default=5 * SECOND, importance=HIGH, effective=True, doc="?")
OFFSETS_LOAD_BUFFER_SIZE = key("offsets.load.buffer.size", Int(1), default=5 * MiB, importance=HIGH, effective=True, doc="?")
OFFSETS_RETENTION_CHECK_INTERVAL_MS = key(
    "offsets.retention.check.interval.ms", Long(1), default=10 * MINUTE, importance=HIGH, effective=True, doc="?"
)
OFFSETS_RETENTION_MINUTES = key("offsets.retention.minutes", Int(1), default=10_080, importance=HIGH, effective=True, doc="?")
OFFSETS_TOPIC_COMPRESSION_CODEC = key("offsets.topic.compression.codec", Int(), default=0, importance=HIGH, effective=True, doc="?")
OFFSETS_TOPIC_NUM_PARTITIONS = key("offsets.topic.num.partitions", Int(1), default=50, importance=HIGH, effective=True, doc="?")
OFFSETS_TOPIC_REPLICATION_FACTOR = key(
    "offsets.topic.replication.factor", Short(1), default=3, standalone=1, importance=HIGH, effective=True, doc="?"
)
OFFSETS_TOPIC_SEGMENT_BYTES = key("offsets.topic.segment.bytes", Int(1), default=100 * MiB, importance=HIGH, effective=True, doc="?")
