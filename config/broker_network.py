"""Listeners, connections, request queues and the limits of a request."""

from config.key import CLUSTER, HIGH, INT_MAX, LOW, MEDIUM, MINUTE, PER_BROKER, SECOND, KiB, MiB, key
from config.types import Int, Long, String

CONNECTIONS_MAX_IDLE_MS = key("connections.max.idle.ms", Long(), default=10 * MINUTE, importance=MEDIUM, effective=True, doc="?")
CONTROL_PLANE_LISTENER_NAME = key("control.plane.listener.name", String(), importance=HIGH, effective=True, doc="?")
DELETE_RECORDS_PURGATORY_PURGE_INTERVAL_REQUESTS = key(
    "delete.records.purgatory.purge.interval.requests", Int(), default=1, importance=MEDIUM, effective=True, doc="?"
)
FETCH_MAX_BYTES = key("fetch.max.bytes", Int(KiB), default=55 * MiB, importance=MEDIUM, effective=True, doc="?")
FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS = key(
    "fetch.purgatory.purge.interval.requests", Int(), default=1000, importance=MEDIUM, effective=True, doc="?"
)
INTER_BROKER_LISTENER_NAME = key("inter.broker.listener.name", String(), importance=MEDIUM, effective=True, doc="?")
LISTENER_SECURITY_PROTOCOL_MAP = key(
    "listener.security.protocol.map",
    String(),
    default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    importance=LOW,
    dynamic=PER_BROKER,
    effective=True,
    doc="?",
)
LISTENERS = key(
    "listeners",
    String(),
    default="PLAINTEXT://:9092",
    standalone="PLAINTEXT://127.0.0.1:9092",
    importance=HIGH,
    dynamic=PER_BROKER,
    effective=True,
    doc="?",
)
MAX_CONNECTION_CREATION_RATE = key(
    "max.connection.creation.rate", Int(0), default=INT_MAX, importance=MEDIUM, dynamic=CLUSTER, effective=True, doc="?"
)
MAX_CONNECTIONS = key("max.connections", Int(0), default=INT_MAX, importance=MEDIUM, dynamic=CLUSTER, effective=True, doc="?")
MAX_CONNECTIONS_PER_IP = key("max.connections.per.ip", Int(0), default=INT_MAX, importance=MEDIUM, dynamic=CLUSTER, effective=True, doc="?")
MAX_CONNECTIONS_PER_IP_OVERRIDES = key(
    "max.connections.per.ip.overrides", String(), default="", importance=MEDIUM, dynamic=CLUSTER, effective=True, doc="?"
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = key(
    "max.incremental.fetch.session.cache.slots", Int(0), default=1000, importance=MEDIUM, effective=True, doc="?"
)
MAX_REQUEST_PARTITION_SIZE_LIMIT = key("max.request.partition.size.limit", Int(1), default=2000, importance=MEDIUM, effective=True, doc="?")
NUM_IO_THREADS = key("num.io.threads", Int(1), default=8, importance=HIGH, dynamic=CLUSTER, effective=True, doc="?")
NUM_NETWORK_THREADS = key("num.network.threads", Int(1), default=3, importance=HIGH, dynamic=CLUSTER, effective=True, doc="?")
PRODUCER_PURGATORY_PURGE_INTERVAL_REQUESTS = key(
    "producer.purgatory.purge.interval.requests", Int(), default=1000, importance=MEDIUM, effective=True, doc="?"
)
QUEUED_MAX_REQUEST_BYTES = key("queued.max.request.bytes", Long(), default=-1, importance=MEDIUM, effective=True, doc="?")
QUEUED_MAX_REQUESTS = key("queued.max.requests", Int(1), default=500, importance=HIGH, effective=True, doc="?")
REQUEST_TIMEOUT_MS = key("request.timeout.ms", Int(), default=30 * SECOND, importance=HIGH, effective=True, doc="?")
SECURITY_INTER_BROKER_PROTOCOL = key(
    "security.inter.broker.protocol",
    String(choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    default="PLAINTEXT",
    importance=MEDIUM,
    effective=True,
    doc="?",
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS = key(
    "socket.connection.setup.timeout.max.ms", Long(), default=30 * SECOND, importance=MEDIUM, doc="?"
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MS = key("socket.connection.setup.timeout.ms", Long(), default=10 * SECOND, importance=MEDIUM, doc="?")
SOCKET_LISTEN_BACKLOG_SIZE = key("socket.listen.backlog.size", Int(1), default=50, importance=MEDIUM, effective=True, doc="?")
SOCKET_RECEIVE_BUFFER_BYTES = key("socket.receive.buffer.bytes", Int(), default=100 * KiB, importance=HIGH, effective=True, doc="?")
SOCKET_REQUEST_MAX_BYTES = key("socket.request.max.bytes", Int(1), default=100 * MiB, importance=HIGH, effective=True, doc="?")
SOCKET_SEND_BUFFER_BYTES = key("socket.send.buffer.bytes", Int(), default=100 * KiB, importance=HIGH, effective=True, doc="?")
ADVERTISED_LISTENERS = key(
    "advertised.listeners",
    String(),
    otherwise=lambda config: config[LISTENERS],
    importance=HIGH,
    dynamic=PER_BROKER,
    effective=True,
    doc="?",
)
