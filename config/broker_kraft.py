"""KRaft, a mode that this server does not have. Its keys are known because configuration files name them."""

from config.key import DAY, HIGH, HOUR, LONG_MAX, LOW, MEDIUM, MINUTE, SECOND, GiB, MiB, key
from config.types import Bool, Int, List, Long, String

BROKER_HEARTBEAT_INTERVAL_MS = key("broker.heartbeat.interval.ms", Int(), default=2 * SECOND, importance=MEDIUM, doc="?")
BROKER_SESSION_TIMEOUT_MS = key("broker.session.timeout.ms", Int(), default=9 * SECOND, importance=MEDIUM, doc="?")
CONTROLLER_LISTENER_NAMES = key("controller.listener.names", String(), importance=HIGH, doc="?")
CONTROLLER_QUORUM_APPEND_LINGER_MS = key("controller.quorum.append.linger.ms", Int(), default=25, importance=MEDIUM, doc="?")
CONTROLLER_QUORUM_BOOTSTRAP_SERVERS = key(
    "controller.quorum.bootstrap.servers", List(described_as="non-empty list"), default=(), importance=HIGH, doc="?"
)
CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS = key(
    "controller.quorum.election.backoff.max.ms", Int(), default=SECOND, importance=HIGH, doc="?"
)
CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS = key("controller.quorum.election.timeout.ms", Int(), default=SECOND, importance=HIGH, doc="?")
CONTROLLER_QUORUM_FETCH_TIMEOUT_MS = key("controller.quorum.fetch.timeout.ms", Int(), default=2 * SECOND, importance=HIGH, doc="?")
CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS = key("controller.quorum.request.timeout.ms", Int(), default=2 * SECOND, importance=MEDIUM, doc="?")
CONTROLLER_QUORUM_RETRY_BACKOFF_MS = key("controller.quorum.retry.backoff.ms", Int(), default=20, importance=LOW, doc="?")
CONTROLLER_QUORUM_VOTERS = key("controller.quorum.voters", List(described_as="non-empty list"), default=(), importance=HIGH, doc="?")
EARLY_START_LISTENERS = key("early.start.listeners", String(), importance=HIGH, doc="?")
ELIGIBLE_LEADER_REPLICAS_ENABLE = key("eligible.leader.replicas.enable", Bool(), default=False, importance=HIGH, doc="?")
INITIAL_BROKER_REGISTRATION_TIMEOUT_MS = key("initial.broker.registration.timeout.ms", Int(), default=MINUTE, importance=MEDIUM, doc="?")
METADATA_LOG_DIR = key("metadata.log.dir", String(), importance=HIGH, doc="?")
METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS = key(
    "metadata.log.max.record.bytes.between.snapshots", Long(1), default=20 * MiB, importance=HIGH, doc="?"
)
METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS = key("metadata.log.max.snapshot.interval.ms", Long(0), default=HOUR, importance=HIGH, doc="?")
METADATA_LOG_SEGMENT_BYTES = key("metadata.log.segment.bytes", Int(12), default=GiB, importance=HIGH, doc="?")
METADATA_LOG_SEGMENT_MIN_BYTES = key("metadata.log.segment.min.bytes", Int(12), default=8 * MiB, importance=HIGH, internal=True, doc="?")
METADATA_LOG_SEGMENT_MS = key("metadata.log.segment.ms", Long(), default=7 * DAY, importance=HIGH, doc="?")
METADATA_MAX_IDLE_INTERVAL_MS = key("metadata.max.idle.interval.ms", Int(0), default=500, importance=LOW, doc="?")
METADATA_MAX_RETENTION_BYTES = key("metadata.max.retention.bytes", Long(), default=100 * MiB, importance=HIGH, doc="?")
METADATA_MAX_RETENTION_MS = key("metadata.max.retention.ms", Long(), default=7 * DAY, importance=HIGH, doc="?")
NODE_ID = key("node.id", Int(), default=-1, importance=HIGH, effective=True, doc="?")
PROCESS_ROLES = key("process.roles", List(choices=("broker", "controller")), default=(), importance=HIGH, doc="?")
SASL_MECHANISM_CONTROLLER_PROTOCOL = key("sasl.mechanism.controller.protocol", String(), default="GSSAPI", importance=HIGH, doc="?")
SERVER_MAX_STARTUP_TIME_MS = key("server.max.startup.time.ms", Long(0), default=LONG_MAX, importance=MEDIUM, internal=True, doc="?")
UNSTABLE_API_VERSIONS_ENABLE = key("unstable.api.versions.enable", Bool(), default=False, importance=HIGH, internal=True, doc="?")
UNSTABLE_FEATURE_VERSIONS_ENABLE = key("unstable.feature.versions.enable", Bool(), default=False, importance=HIGH, internal=True, doc="?")
