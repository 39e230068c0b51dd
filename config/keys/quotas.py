"""Declares the replication quotas of a broker. They exist only as dynamic configuration of one broker; a properties
file cannot set them."""

from ottla.config.schema.key import LONG_MAX, MEDIUM, PER_BROKER, key
from ottla.config.schema.types import Long

LEADER_REPLICATION_THROTTLED_RATE = key(
    "leader.replication.throttled.rate",
    Long(0),
    default=LONG_MAX,
    importance=MEDIUM,
    dynamic=PER_BROKER,
    effective=True,
    doc="Bytes per second this broker sends, as leader, to followers of throttled replicas.",
)
FOLLOWER_REPLICATION_THROTTLED_RATE = key(
    "follower.replication.throttled.rate",
    Long(0),
    default=LONG_MAX,
    importance=MEDIUM,
    dynamic=PER_BROKER,
    effective=True,
    doc="Bytes per second this broker fetches, as follower, for throttled replicas.",
)
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND = key(
    "replica.alter.log.dirs.io.max.bytes.per.second",
    Long(0),
    default=LONG_MAX,
    importance=MEDIUM,
    dynamic=PER_BROKER,
    effective=True,
    doc="Bytes per second that moving replicas between the log directories of this broker may copy.",
)
