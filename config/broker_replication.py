"""Replication between brokers and the election of leaders."""

from config.key import CLUSTER, HIGH, MEDIUM, MINUTE, SECOND, KiB, MiB, key
from config.metadata_version import MetadataVersion
from config.types import Bool, Int, Long, String

AUTO_LEADER_REBALANCE_ENABLE = key("auto.leader.rebalance.enable", Bool(), default=True, importance=HIGH, doc="?")
CONTROLLER_SOCKET_TIMEOUT_MS = key("controller.socket.timeout.ms", Int(), default=30 * SECOND, importance=MEDIUM, doc="?")
INTER_BROKER_PROTOCOL_VERSION = key("inter.broker.protocol.version", MetadataVersion(), default="3.9-IV0", importance=MEDIUM, doc="?")
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = key("leader.imbalance.check.interval.seconds", Long(1), default=300, importance=HIGH, doc="?")
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE = key("leader.imbalance.per.broker.percentage", Int(), default=10, importance=HIGH, doc="?")
NUM_REPLICA_ALTER_LOG_DIRS_THREADS = key("num.replica.alter.log.dirs.threads", Int(), importance=HIGH, doc="?")
NUM_REPLICA_FETCHERS = key("num.replica.fetchers", Int(), default=1, importance=HIGH, dynamic=CLUSTER, doc="?")
REPLICA_FETCH_BACKOFF_MS = key("replica.fetch.backoff.ms", Int(0), default=SECOND, importance=MEDIUM, doc="?")
REPLICA_FETCH_MAX_BYTES = key("replica.fetch.max.bytes", Int(0), default=MiB, importance=MEDIUM, doc="?")
REPLICA_FETCH_MIN_BYTES = key("replica.fetch.min.bytes", Int(), default=1, importance=HIGH, doc="?")
REPLICA_FETCH_RESPONSE_MAX_BYTES = key("replica.fetch.response.max.bytes", Int(0), default=10 * MiB, importance=MEDIUM, doc="?")
REPLICA_FETCH_WAIT_MAX_MS = key("replica.fetch.wait.max.ms", Int(), default=500, importance=HIGH, doc="?")
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = key(
    "replica.high.watermark.checkpoint.interval.ms", Long(), default=5 * SECOND, importance=HIGH, doc="?"
)
REPLICA_LAG_TIME_MAX_MS = key("replica.lag.time.max.ms", Long(), default=30 * SECOND, importance=HIGH, effective=True, doc="?")
REPLICA_SELECTOR_CLASS = key("replica.selector.class", String(), importance=MEDIUM, doc="?")
REPLICA_SOCKET_RECEIVE_BUFFER_BYTES = key("replica.socket.receive.buffer.bytes", Int(), default=64 * KiB, importance=HIGH, doc="?")
REPLICA_SOCKET_TIMEOUT_MS = key("replica.socket.timeout.ms", Int(), default=30 * SECOND, importance=HIGH, doc="?")
UNCLEAN_LEADER_ELECTION_ENABLE = key(
    "unclean.leader.election.enable",
    Bool(),
    default=False,
    topic="unclean.leader.election.enable",
    importance=HIGH,
    dynamic=CLUSTER,
    doc="?",
)
UNCLEAN_LEADER_ELECTION_INTERVAL_MS = key(
    "unclean.leader.election.interval.ms", Long(1), default=5 * MINUTE, importance=MEDIUM, internal=True, doc="?"
)
