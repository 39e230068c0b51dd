"""Declares the keys of ZooKeeper: where the cluster keeps its metadata."""

from ottla.config.schema.key import HIGH, LOW, MEDIUM, SECOND, key
from ottla.config.schema.types import Bool, Int, List, PasswordType, String

ZOOKEEPER_CLIENT_CNXN_SOCKET = key("zookeeper.clientCnxnSocket", String(), importance=MEDIUM, doc="The socket class of the Java client.")
ZOOKEEPER_CONNECT = key(
    "zookeeper.connect",
    String(),
    importance=HIGH,
    effective=True,
    doc=(
        "The ZooKeeper servers as host:port between commas, with an optional path at the end. Apache Kafka requires it; here the "
        "broker keeps the metadata in its own embedded store without it."
    ),
)
ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS = key(
    "zookeeper.max.in.flight.requests",
    Int(1),
    default=10,
    importance=HIGH,
    effective=True,
    doc="How many requests to ZooKeeper may be in flight.",
)
ZOOKEEPER_METADATA_MIGRATION_ENABLE = key(
    "zookeeper.metadata.migration.enable", Bool(), default=False, importance=HIGH, doc="Begins the migration of the cluster to KRaft."
)
ZOOKEEPER_METADATA_MIGRATION_MIN_BATCH_SIZE = key(
    "zookeeper.metadata.migration.min.batch.size",
    Int(1),
    default=200,
    importance=MEDIUM,
    internal=True,
    doc="How many records the migration to KRaft gathers into one batch.",
)
ZOOKEEPER_SESSION_TIMEOUT_MS = key(
    "zookeeper.session.timeout.ms",
    Int(),
    default=18 * SECOND,
    importance=HIGH,
    effective=True,
    doc="How long ZooKeeper, or the embedded store, waits for a silent broker before it ends the broker's session.",
)
ZOOKEEPER_SET_ACL = key("zookeeper.set.acl", Bool(), default=False, importance=HIGH, effective=True, doc="Protects the znodes with ACLs.")
ZOOKEEPER_SSL_CIPHER_SUITES = key(
    "zookeeper.ssl.cipher.suites", List(), importance=LOW, effective=True, doc="The cipher suites allowed towards ZooKeeper."
)
ZOOKEEPER_SSL_CLIENT_ENABLE = key(
    "zookeeper.ssl.client.enable", Bool(), default=False, importance=MEDIUM, effective=True, doc="Uses TLS towards ZooKeeper."
)
ZOOKEEPER_SSL_CRL_ENABLE = key(
    "zookeeper.ssl.crl.enable",
    Bool(),
    default=False,
    importance=LOW,
    effective=True,
    doc="Checks ZooKeeper's certificate against revocation lists. Only false is supported.",
)
ZOOKEEPER_SSL_ENABLED_PROTOCOLS = key(
    "zookeeper.ssl.enabled.protocols",
    List(),
    importance=LOW,
    effective=True,
    doc="The TLS versions allowed towards ZooKeeper; from that of zookeeper.ssl.protocol on when it is not set.",
)
ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = key(
    "zookeeper.ssl.endpoint.identification.algorithm",
    String(),
    default="HTTPS",
    importance=LOW,
    effective=True,
    doc="How ZooKeeper's name is checked against its certificate; empty for no check.",
)
ZOOKEEPER_SSL_KEYSTORE_LOCATION = key(
    "zookeeper.ssl.keystore.location",
    String(),
    importance=MEDIUM,
    effective=True,
    doc="The file with the key and certificate shown to ZooKeeper.",
)
ZOOKEEPER_SSL_KEYSTORE_PASSWORD = key(
    "zookeeper.ssl.keystore.password", PasswordType(), importance=MEDIUM, effective=True, doc="The password of the key store for ZooKeeper."
)
ZOOKEEPER_SSL_KEYSTORE_TYPE = key(
    "zookeeper.ssl.keystore.type",
    String(),
    importance=MEDIUM,
    effective=True,
    doc="The format of the key store for ZooKeeper; by default derived from the file's name.",
)
ZOOKEEPER_SSL_OCSP_ENABLE = key(
    "zookeeper.ssl.ocsp.enable",
    Bool(),
    default=False,
    importance=LOW,
    effective=True,
    doc="Asks an OCSP server whether ZooKeeper's certificate is still valid. Only false is supported.",
)
ZOOKEEPER_SSL_PROTOCOL = key(
    "zookeeper.ssl.protocol",
    String(),
    default="TLSv1.2",
    importance=LOW,
    effective=True,
    doc="The lowest TLS version towards ZooKeeper, unless zookeeper.ssl.enabled.protocols names some; TLS stands for TLSv1.2.",
)
ZOOKEEPER_SSL_TRUSTSTORE_LOCATION = key(
    "zookeeper.ssl.truststore.location",
    String(),
    importance=MEDIUM,
    effective=True,
    doc="The file with the certificates trusted for ZooKeeper.",
)
ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD = key(
    "zookeeper.ssl.truststore.password",
    PasswordType(),
    importance=MEDIUM,
    effective=True,
    doc="The password of the trust store for ZooKeeper.",
)
ZOOKEEPER_SSL_TRUSTSTORE_TYPE = key(
    "zookeeper.ssl.truststore.type",
    String(),
    importance=MEDIUM,
    effective=True,
    doc="The format of the trust store for ZooKeeper; by default derived from the file's name.",
)
ZOOKEEPER_CONNECTION_TIMEOUT_MS = key(
    "zookeeper.connection.timeout.ms",
    Int(),
    otherwise=lambda config: config[ZOOKEEPER_SESSION_TIMEOUT_MS],
    importance=HIGH,
    effective=True,
    doc="How long the first connection to ZooKeeper may take; without it, zookeeper.session.timeout.ms.",
)
