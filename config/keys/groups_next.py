"""Declares the keys of newer groups: the consumer protocol of KIP-848 and share groups.

Apache Kafka 3.9 lists them, so types and defaults of DescribeConfigs are those of 3.9. Where 4.4 accepts more values, its bounds count: the
groups that these keys configure are served as 4.4 does.
"""

from ottla.config.schema.key import INT_MAX, MEDIUM, MINUTE, SECOND, key
from ottla.config.schema.types import Bool, Int, List, Short, String

GROUP_CONSUMER_ASSIGNORS = key(
    "group.consumer.assignors",
    List(),
    default=("org.apache.kafka.coordinator.group.assignor.UniformAssignor", "org.apache.kafka.coordinator.group.assignor.RangeAssignor"),
    importance=MEDIUM,
    effective=True,
    doc="The assignors that the broker offers to consumer groups, the first being the default.",
)
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = key(
    "group.consumer.heartbeat.interval.ms",
    Int(1),
    default=5 * SECOND,
    importance=MEDIUM,
    effective=True,
    doc="How often the members of a consumer group send heartbeats.",
)
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = key(
    "group.consumer.max.heartbeat.interval.ms",
    Int(1),
    default=15 * SECOND,
    importance=MEDIUM,
    effective=True,
    doc="The longest heartbeat interval that a consumer group may be given.",
)
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS = key(
    "group.consumer.max.session.timeout.ms",
    Int(1),
    default=MINUTE,
    importance=MEDIUM,
    effective=True,
    doc="The longest session timeout that a consumer group may be given.",
)
GROUP_CONSUMER_MAX_SIZE = key(
    "group.consumer.max.size", Int(1), default=INT_MAX, importance=MEDIUM, effective=True, doc="How many members a consumer group may have."
)
GROUP_CONSUMER_MIGRATION_POLICY = key(
    "group.consumer.migration.policy",
    String(choices=("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), any_case=True),
    default="disabled",
    standalone="bidirectional",
    importance=MEDIUM,
    effective=True,
    internal=True,
    doc="Whether groups may turn from the classic to the consumer protocol and back.",
)
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = key(
    "group.consumer.min.heartbeat.interval.ms",
    Int(1),
    default=5 * SECOND,
    importance=MEDIUM,
    effective=True,
    doc="The shortest heartbeat interval that a consumer group may be given.",
)
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS = key(
    "group.consumer.min.session.timeout.ms",
    Int(1),
    default=45 * SECOND,
    importance=MEDIUM,
    effective=True,
    doc="The shortest session timeout that a consumer group may be given.",
)
GROUP_CONSUMER_SESSION_TIMEOUT_MS = key(
    "group.consumer.session.timeout.ms",
    Int(1),
    default=45 * SECOND,
    importance=MEDIUM,
    effective=True,
    doc="A member of a consumer group that has been silent for this long is removed.",
)
GROUP_COORDINATOR_APPEND_LINGER_MS = key(
    "group.coordinator.append.linger.ms",
    Int(-1),
    default=10,
    importance=MEDIUM,
    doc="How long the newer coordinator gathers writes to the offsets topic into one batch.",
)
GROUP_COORDINATOR_NEW_ENABLE = key(
    "group.coordinator.new.enable", Bool(), default=False, importance=MEDIUM, internal=True, doc="Turns on the newer coordinator."
)
GROUP_COORDINATOR_REBALANCE_PROTOCOLS = key(
    "group.coordinator.rebalance.protocols",
    List(choices=("consumer", "classic", "share", "streams", "unknown")),
    default=("classic",),
    importance=MEDIUM,
    doc="The kinds of groups that the coordinator serves; group.version and share.version decide instead.",
)
GROUP_COORDINATOR_THREADS = key(
    "group.coordinator.threads", Int(1), default=1, importance=MEDIUM, doc="How many threads the newer coordinator uses."
)
GROUP_SHARE_DELIVERY_COUNT_LIMIT = key(
    "group.share.delivery.count.limit",
    Int(2, 10),
    default=5,
    importance=MEDIUM,
    effective=True,
    doc="How often a record is delivered to a share group before it is given up.",
)
GROUP_SHARE_ENABLE = key("group.share.enable", Bool(), default=False, importance=MEDIUM, internal=True, doc="Turns on share groups.")
GROUP_SHARE_HEARTBEAT_INTERVAL_MS = key(
    "group.share.heartbeat.interval.ms",
    Int(1),
    default=5 * SECOND,
    importance=MEDIUM,
    effective=True,
    doc="How often the members of a share group send heartbeats.",
)
GROUP_SHARE_MAX_GROUPS = key(
    "group.share.max.groups", Short(1, 100), default=10, importance=MEDIUM, doc="How many share groups there may be."
)
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS = key(
    "group.share.max.heartbeat.interval.ms",
    Int(1),
    default=15 * SECOND,
    importance=MEDIUM,
    effective=True,
    doc="The longest heartbeat interval that a share group may be given.",
)
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS = key(
    "group.share.max.record.lock.duration.ms",
    Int(30_000, 3_600_000),
    default=MINUTE,
    importance=MEDIUM,
    effective=True,
    doc="The longest record lock that a share group may be given.",
)
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS = key(
    "group.share.max.session.timeout.ms",
    Int(1),
    default=MINUTE,
    importance=MEDIUM,
    effective=True,
    doc="The longest session timeout that a share group may be given.",
)
GROUP_SHARE_MAX_SIZE = key(
    "group.share.max.size", Short(1, 1000), default=200, importance=MEDIUM, effective=True, doc="How many members a share group may have."
)
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS = key(
    "group.share.min.heartbeat.interval.ms",
    Int(1),
    default=5 * SECOND,
    importance=MEDIUM,
    effective=True,
    doc="The shortest heartbeat interval that a share group may be given.",
)
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS = key(
    "group.share.min.record.lock.duration.ms",
    Int(1000, 30_000),
    default=15 * SECOND,
    importance=MEDIUM,
    effective=True,
    doc="The shortest record lock that a share group may be given.",
)
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS = key(
    "group.share.min.session.timeout.ms",
    Int(1),
    default=45 * SECOND,
    importance=MEDIUM,
    effective=True,
    doc="The shortest session timeout that a share group may be given.",
)
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS = key(
    "group.share.partition.max.record.locks",
    Int(100, 10_000),
    default=200,
    standalone=2_000,
    importance=MEDIUM,
    effective=True,
    doc="How many records of one partition may be locked at once.",
)
GROUP_SHARE_RECORD_LOCK_DURATION_MS = key(
    "group.share.record.lock.duration.ms",
    Int(1000, 3_600_000),
    default=30 * SECOND,
    importance=MEDIUM,
    effective=True,
    doc="How long a delivered record stays locked for the member that got it.",
)
GROUP_SHARE_SESSION_TIMEOUT_MS = key(
    "group.share.session.timeout.ms",
    Int(1),
    default=45 * SECOND,
    importance=MEDIUM,
    effective=True,
    doc="A member of a share group that has been silent for this long is removed.",
)
