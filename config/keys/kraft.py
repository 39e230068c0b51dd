"""Declares the keys of KRaft: a mode that this server does not have. The keys are declared because configuration files
contain them."""

from ottla.config.schema.key import DAY, HIGH, HOUR, LONG_MAX, LOW, MEDIUM, MINUTE, SECOND, GiB, MiB, key
from ottla.config.schema.types import Bool, Int, List, Long, String

BROKER_HEARTBEAT_INTERVAL_MS = key(
    "broker.heartbeat.interval.ms", Int(), default=2 * SECOND, importance=MEDIUM, doc="How often a broker reports to the KRaft controller."
)
BROKER_SESSION_TIMEOUT_MS = key(
    "broker.session.timeout.ms",
    Int(),
    default=9 * SECOND,
    importance=MEDIUM,
    doc="How long the KRaft controller waits for a silent broker before it fences it.",
)
CONTROLLER_LISTENER_NAMES = key(
    "controller.listener.names", String(), importance=HIGH, doc="The listeners of the KRaft controllers; has to be empty with ZooKeeper."
)
CONTROLLER_QUORUM_APPEND_LINGER_MS = key(
    "controller.quorum.append.linger.ms",
    Int(),
    default=25,
    importance=MEDIUM,
    doc="How long the quorum leader gathers writes before it flushes them.",
)
CONTROLLER_QUORUM_BOOTSTRAP_SERVERS = key(
    "controller.quorum.bootstrap.servers",
    List(described_as="non-empty list"),
    default=(),
    importance=HIGH,
    doc="Some controllers from which the rest of the quorum is discovered.",
)
CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS = key(
    "controller.quorum.election.backoff.max.ms",
    Int(),
    default=SECOND,
    importance=HIGH,
    doc="The longest wait before a controller runs for election again.",
)
CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS = key(
    "controller.quorum.election.timeout.ms",
    Int(),
    default=SECOND,
    importance=HIGH,
    doc="How long a controller waits for votes before it runs again.",
)
CONTROLLER_QUORUM_FETCH_TIMEOUT_MS = key(
    "controller.quorum.fetch.timeout.ms",
    Int(),
    default=2 * SECOND,
    importance=HIGH,
    doc="How long a controller goes without hearing from the quorum leader before it runs for election.",
)
CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS = key(
    "controller.quorum.request.timeout.ms",
    Int(),
    default=2 * SECOND,
    importance=MEDIUM,
    doc="How long a controller waits for another's answer.",
)
CONTROLLER_QUORUM_RETRY_BACKOFF_MS = key(
    "controller.quorum.retry.backoff.ms", Int(), default=20, importance=LOW, doc="How long a controller waits before it repeats a request."
)
CONTROLLER_QUORUM_VOTERS = key(
    "controller.quorum.voters",
    List(described_as="non-empty list"),
    default=(),
    importance=HIGH,
    doc="The controllers that vote, as id@host:port.",
)
EARLY_START_LISTENERS = key(
    "early.start.listeners", String(), importance=HIGH, doc="The listeners that accept connections before the authorizer is ready."
)
ELIGIBLE_LEADER_REPLICAS_ENABLE = key(
    "eligible.leader.replicas.enable",
    Bool(),
    default=False,
    importance=HIGH,
    doc="Keeps track of replicas outside the in-sync set that may still lead without loss.",
)
INITIAL_BROKER_REGISTRATION_TIMEOUT_MS = key(
    "initial.broker.registration.timeout.ms",
    Int(),
    default=MINUTE,
    importance=MEDIUM,
    doc="How long a broker tries to register with the KRaft controllers at its start.",
)
METADATA_LOG_DIR = key(
    "metadata.log.dir", String(), importance=HIGH, doc="The directory of the metadata log; without it, the first log directory."
)
METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS = key(
    "metadata.log.max.record.bytes.between.snapshots",
    Long(1),
    default=20 * MiB,
    importance=HIGH,
    doc="How many bytes of metadata records are written between two snapshots.",
)
METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS = key(
    "metadata.log.max.snapshot.interval.ms",
    Long(0),
    default=HOUR,
    importance=HIGH,
    doc="The longest time between two snapshots of the metadata, if anything changed.",
)
METADATA_LOG_SEGMENT_BYTES = key(
    "metadata.log.segment.bytes", Int(12), default=GiB, importance=HIGH, doc="The largest segment of the metadata log."
)
METADATA_LOG_SEGMENT_MIN_BYTES = key(
    "metadata.log.segment.min.bytes",
    Int(12),
    default=8 * MiB,
    importance=HIGH,
    internal=True,
    doc="The lower bound for metadata.log.segment.bytes.",
)
METADATA_LOG_SEGMENT_MS = key(
    "metadata.log.segment.ms", Long(), default=7 * DAY, importance=HIGH, doc="The age at which a segment of the metadata log is closed."
)
METADATA_MAX_IDLE_INTERVAL_MS = key(
    "metadata.max.idle.interval.ms",
    Int(0),
    default=500,
    importance=LOW,
    doc="How often the active controller writes an empty record when nothing else happens; 0 for never.",
)
METADATA_MAX_RETENTION_BYTES = key(
    "metadata.max.retention.bytes", Long(), default=100 * MiB, importance=HIGH, doc="How many bytes of metadata log and snapshots are kept."
)
METADATA_MAX_RETENTION_MS = key(
    "metadata.max.retention.ms", Long(), default=7 * DAY, importance=HIGH, doc="How long metadata log and snapshots are kept."
)
NODE_ID = key(
    "node.id",
    Int(),
    default=-1,
    importance=HIGH,
    effective=True,
    doc="The number of this node; the same as broker.id, for which it is an alternative name.",
)
PROCESS_ROLES = key(
    "process.roles",
    List(choices=("broker", "controller")),
    default=(),
    importance=HIGH,
    doc="The KRaft roles of this process; empty, as here, with ZooKeeper.",
)
SASL_MECHANISM_CONTROLLER_PROTOCOL = key(
    "sasl.mechanism.controller.protocol", String(), default="GSSAPI", importance=HIGH, doc="The SASL mechanism towards KRaft controllers."
)
SERVER_MAX_STARTUP_TIME_MS = key(
    "server.max.startup.time.ms",
    Long(0),
    default=LONG_MAX,
    importance=MEDIUM,
    internal=True,
    doc="How long the start may take before the process gives up.",
)
UNSTABLE_API_VERSIONS_ENABLE = key(
    "unstable.api.versions.enable",
    Bool(),
    default=False,
    importance=HIGH,
    internal=True,
    doc="Offers request versions that are still being developed.",
)
UNSTABLE_FEATURE_VERSIONS_ENABLE = key(
    "unstable.feature.versions.enable",
    Bool(),
    default=False,
    importance=HIGH,
    internal=True,
    doc="Allows feature versions that are still being developed.",
)
