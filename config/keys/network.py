"""Declares the keys of the network: listeners, connections, request queues and the limits of a request."""

from ottla.config.schema.key import CLUSTER, HIGH, INT_MAX, LOW, MEDIUM, MINUTE, PER_BROKER, SECOND, KiB, MiB, key
from ottla.config.schema.types import Int, Long, String

CONNECTIONS_MAX_IDLE_MS = key(
    "connections.max.idle.ms",
    Long(),
    default=10 * MINUTE,
    importance=MEDIUM,
    effective=True,
    doc="A connection that was idle for this long is closed.",
)
CONTROL_PLANE_LISTENER_NAME = key(
    "control.plane.listener.name",
    String(),
    importance=HIGH,
    effective=True,
    doc="The listener on which this broker takes the controller's requests, apart from those of clients and other brokers.",
)
DELETE_RECORDS_PURGATORY_PURGE_INTERVAL_REQUESTS = key(
    "delete.records.purgatory.purge.interval.requests",
    Int(),
    default=1,
    importance=MEDIUM,
    effective=True,
    doc="Number of finished DeleteRecords requests in its watch lists after which the purgatory removes them.",
)
FETCH_MAX_BYTES = key(
    "fetch.max.bytes",
    Int(KiB),
    default=55 * MiB,
    importance=MEDIUM,
    effective=True,
    doc="The most bytes one Fetch response holds; the first batch is returned even if it is larger.",
)
FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS = key(
    "fetch.purgatory.purge.interval.requests",
    Int(),
    default=1000,
    importance=MEDIUM,
    effective=True,
    doc="Number of finished Fetch requests in its watch lists after which the purgatory removes them.",
)
INTER_BROKER_LISTENER_NAME = key(
    "inter.broker.listener.name",
    String(),
    importance=MEDIUM,
    effective=True,
    doc="The listener that brokers use among each other; without it, the one of security.inter.broker.protocol.",
)
LISTENER_SECURITY_PROTOCOL_MAP = key(
    "listener.security.protocol.map",
    String(),
    default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    importance=LOW,
    dynamic=PER_BROKER,
    effective=True,
    doc="Which security protocol (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL) each listener name stands for.",
)
LISTENERS = key(
    "listeners",
    String(),
    default="PLAINTEXT://:9092",
    standalone="PLAINTEXT://127.0.0.1:9092",
    importance=HIGH,
    dynamic=PER_BROKER,
    effective=True,
    doc=("The addresses on which the broker accepts connections, as NAME://host:port; without a host it listens on every interface."),
)
MAX_CONNECTION_CREATION_RATE = key(
    "max.connection.creation.rate",
    Int(0),
    default=INT_MAX,
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="How many new connections a second the broker, or a listener by its prefix, accepts before it slows down.",
)
MAX_CONNECTIONS = key(
    "max.connections",
    Int(0),
    default=INT_MAX,
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc=("How many connections the broker, or a listener by its prefix, keeps open; the next one waits or replaces the most idle one."),
)
MAX_CONNECTIONS_PER_IP = key(
    "max.connections.per.ip",
    Int(0),
    default=INT_MAX,
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="How many connections one address may have open.",
)
MAX_CONNECTIONS_PER_IP_OVERRIDES = key(
    "max.connections.per.ip.overrides",
    String(),
    default="",
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="Limits for single addresses that replace max.connections.per.ip, as host:count pairs.",
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = key(
    "max.incremental.fetch.session.cache.slots",
    Int(0),
    default=1000,
    importance=MEDIUM,
    effective=True,
    doc="How many incremental fetch sessions the broker remembers.",
)
MAX_REQUEST_PARTITION_SIZE_LIMIT = key(
    "max.request.partition.size.limit",
    Int(1),
    default=2000,
    importance=MEDIUM,
    effective=True,
    doc="How many partitions one DescribeTopicPartitions response lists at most.",
)
NUM_IO_THREADS = key(
    "num.io.threads",
    Int(1),
    default=8,
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="How many requests are handled at once; requests beyond it wait in the request queue.",
)
NUM_NETWORK_THREADS = key(
    "num.network.threads",
    Int(1),
    default=3,
    importance=HIGH,
    dynamic=CLUSTER,
    effective=True,
    doc="How many processors each listener has to read requests and write responses.",
)
PRODUCER_PURGATORY_PURGE_INTERVAL_REQUESTS = key(
    "producer.purgatory.purge.interval.requests",
    Int(),
    default=1000,
    importance=MEDIUM,
    effective=True,
    doc="Number of finished Produce requests in its watch lists after which the purgatory removes them.",
)
QUEUED_MAX_REQUEST_BYTES = key(
    "queued.max.request.bytes",
    Long(),
    default=-1,
    importance=MEDIUM,
    effective=True,
    doc="How many bytes of requests may wait in the queue, or come in, before the broker stops reading; -1 for no such limit.",
)
QUEUED_MAX_REQUESTS = key(
    "queued.max.requests",
    Int(1),
    default=500,
    importance=HIGH,
    effective=True,
    doc="How many requests may wait in the queue before the broker stops reading from connections.",
)
REQUEST_TIMEOUT_MS = key(
    "request.timeout.ms",
    Int(),
    default=30 * SECOND,
    importance=HIGH,
    effective=True,
    doc="How long this broker waits for the answer to a request that it sent itself.",
)
SECURITY_INTER_BROKER_PROTOCOL = key(
    "security.inter.broker.protocol",
    String(choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    default="PLAINTEXT",
    importance=MEDIUM,
    effective=True,
    doc="The security protocol between brokers, when inter.broker.listener.name is not set.",
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS = key(
    "socket.connection.setup.timeout.max.ms",
    Long(),
    default=30 * SECOND,
    importance=MEDIUM,
    doc="Upper bound of the growing wait for a connection that this broker opens.",
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MS = key(
    "socket.connection.setup.timeout.ms",
    Long(),
    default=10 * SECOND,
    importance=MEDIUM,
    doc="How long this broker first waits for a connection that it opens; repeated failures double the wait.",
)
SOCKET_LISTEN_BACKLOG_SIZE = key(
    "socket.listen.backlog.size",
    Int(1),
    default=50,
    importance=MEDIUM,
    effective=True,
    doc="How many connections the kernel keeps for a listener before the broker has accepted them.",
)
SOCKET_RECEIVE_BUFFER_BYTES = key(
    "socket.receive.buffer.bytes",
    Int(),
    default=100 * KiB,
    importance=HIGH,
    effective=True,
    doc="The kernel's receive buffer of a client connection; -1 leaves it to the kernel. Where it is not set, it grows on connections "
    "without TLS with requests of more than 256 KiB, to 1 MiB at most (and to `net.core.rmem_max`).",
)
SOCKET_REQUEST_MAX_BYTES = key(
    "socket.request.max.bytes",
    Int(1),
    default=100 * MiB,
    importance=HIGH,
    effective=True,
    doc="The largest request that is accepted; a connection that announces a larger one is closed.",
)
SOCKET_SEND_BUFFER_BYTES = key(
    "socket.send.buffer.bytes",
    Int(),
    default=100 * KiB,
    importance=HIGH,
    effective=True,
    doc="The kernel's send buffer of a client connection; -1 leaves it to the kernel.",
)
ADVERTISED_LISTENERS = key(
    "advertised.listeners",
    String(),
    otherwise=lambda config: config[LISTENERS],
    importance=HIGH,
    dynamic=PER_BROKER,
    effective=True,
    doc=("The addresses to which clients and other brokers connect, one per listener; without it they are those of listeners."),
)
