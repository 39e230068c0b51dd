"""Declares the keys of replication: between brokers, and the election of leaders."""

from ottla.config.schema.key import CLUSTER, HIGH, MEDIUM, MINUTE, SECOND, KiB, MiB, key
from ottla.config.schema.metadata_version import MetadataVersion
from ottla.config.schema.types import Bool, Int, Long, String

AUTO_LEADER_REBALANCE_ENABLE = key(
    "auto.leader.rebalance.enable",
    Bool(),
    default=True,
    importance=HIGH,
    effective=True,
    doc="The controller moves leadership back to preferred replicas when a broker leads too few of the partitions that it should lead.",
)
CONTROLLER_SOCKET_TIMEOUT_MS = key(
    "controller.socket.timeout.ms",
    Int(),
    default=30 * SECOND,
    importance=MEDIUM,
    effective=True,
    doc="How long the controller waits for a broker's answer.",
)
INTER_BROKER_PROTOCOL_VERSION = key(
    "inter.broker.protocol.version",
    MetadataVersion(),
    default="3.9-IV0",
    importance=MEDIUM,
    effective=True,
    doc="The version of the protocol between brokers, and with it the features that the cluster uses.",
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = key(
    "leader.imbalance.check.interval.seconds",
    Long(1),
    default=300,
    importance=HIGH,
    effective=True,
    doc="How often the controller compares leaders with preferred leaders.",
)
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE = key(
    "leader.imbalance.per.broker.percentage",
    Int(),
    default=10,
    importance=HIGH,
    effective=True,
    doc="The percentage of a broker's preferred leaderships that may be elsewhere before the controller moves them back.",
)
NUM_REPLICA_ALTER_LOG_DIRS_THREADS = key(
    "num.replica.alter.log.dirs.threads",
    Int(),
    importance=HIGH,
    effective=True,
    doc="How many replicas are moved between log directories at once; without it, one per directory.",
)
NUM_REPLICA_FETCHERS = key(
    "num.replica.fetchers",
    Int(),
    default=1,
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="How many connections this broker keeps to each leader it replicates from.",
)
REPLICA_FETCH_BACKOFF_MS = key(
    "replica.fetch.backoff.ms",
    Int(0),
    default=SECOND,
    importance=MEDIUM,
    effective=True,
    doc="How long a follower waits after a failed fetch of a partition.",
)
REPLICA_FETCH_MAX_BYTES = key(
    "replica.fetch.max.bytes",
    Int(0),
    default=MiB,
    importance=MEDIUM,
    effective=True,
    doc="How many bytes of one partition a follower requests.",
)
REPLICA_FETCH_MIN_BYTES = key(
    "replica.fetch.min.bytes",
    Int(),
    default=1,
    importance=HIGH,
    effective=True,
    doc="How many bytes a leader waits for, up to replica.fetch.wait.max.ms, before it answers a follower.",
)
REPLICA_FETCH_RESPONSE_MAX_BYTES = key(
    "replica.fetch.response.max.bytes",
    Int(0),
    default=10 * MiB,
    importance=MEDIUM,
    effective=True,
    doc="How many bytes of all partitions together a follower requests.",
)
REPLICA_FETCH_WAIT_MAX_MS = key(
    "replica.fetch.wait.max.ms",
    Int(),
    default=500,
    importance=HIGH,
    effective=True,
    doc="How long a leader may hold back its answer to a follower when there is nothing new.",
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = key(
    "replica.high.watermark.checkpoint.interval.ms",
    Long(),
    default=5 * SECOND,
    importance=HIGH,
    effective=True,
    doc="How often the high watermarks are written to their checkpoint.",
)
REPLICA_LAG_TIME_MAX_MS = key(
    "replica.lag.time.max.ms",
    Long(),
    default=30 * SECOND,
    importance=HIGH,
    effective=True,
    doc="A follower that has not caught up with its leader for this long leaves the in-sync replicas.",
)
REPLICA_SELECTOR_CLASS = key(
    "replica.selector.class",
    String(),
    importance=MEDIUM,
    effective=True,
    doc="The class that picks the replica a consumer reads from; without it, the leader.",
)
REPLICA_SOCKET_RECEIVE_BUFFER_BYTES = key(
    "replica.socket.receive.buffer.bytes",
    Int(),
    default=64 * KiB,
    importance=HIGH,
    doc="The kernel's receive buffer of a connection to a leader.",
)
REPLICA_SOCKET_TIMEOUT_MS = key(
    "replica.socket.timeout.ms",
    Int(),
    default=30 * SECOND,
    importance=HIGH,
    effective=True,
    doc="How long a follower waits for its leader's answer.",
)
UNCLEAN_LEADER_ELECTION_ENABLE = key(
    "unclean.leader.election.enable",
    Bool(),
    default=False,
    topic="unclean.leader.election.enable",
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="Lets a replica that is not in sync become leader when no other is left, at the price of losing messages.",
)
UNCLEAN_LEADER_ELECTION_INTERVAL_MS = key(
    "unclean.leader.election.interval.ms",
    Long(1),
    default=5 * MINUTE,
    importance=MEDIUM,
    internal=True,
    doc="In KRaft mode, how often the controller looks for partitions that an unclean election would help.",
)
