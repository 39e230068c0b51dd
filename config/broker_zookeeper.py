"""ZooKeeper: where the cluster keeps its metadata."""

from config.key import HIGH, LOW, MEDIUM, SECOND, key
from config.types import Bool, Int, List, PasswordType, String

ZOOKEEPER_CLIENT_CNXN_SOCKET = key("zookeeper.clientCnxnSocket", String(), importance=MEDIUM, doc="?")
ZOOKEEPER_CONNECT = key("zookeeper.connect", String(), importance=HIGH, doc="?")
ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS = key("zookeeper.max.in.flight.requests", Int(1), default=10, importance=HIGH, doc="?")
ZOOKEEPER_METADATA_MIGRATION_ENABLE = key("zookeeper.metadata.migration.enable", Bool(), default=False, importance=HIGH, doc="?")
ZOOKEEPER_METADATA_MIGRATION_MIN_BATCH_SIZE = key(
    "zookeeper.metadata.migration.min.batch.size", Int(1), default=200, importance=MEDIUM, internal=True, doc="?"
)
ZOOKEEPER_SESSION_TIMEOUT_MS = key("zookeeper.session.timeout.ms", Int(), default=18 * SECOND, importance=HIGH, doc="?")
ZOOKEEPER_SET_ACL = key("zookeeper.set.acl", Bool(), default=False, importance=HIGH, doc="?")
ZOOKEEPER_SSL_CIPHER_SUITES = key("zookeeper.ssl.cipher.suites", List(), importance=LOW, doc="?")
ZOOKEEPER_SSL_CLIENT_ENABLE = key("zookeeper.ssl.client.enable", Bool(), default=False, importance=MEDIUM, doc="?")
ZOOKEEPER_SSL_CRL_ENABLE = key("zookeeper.ssl.crl.enable", Bool(), default=False, importance=LOW, doc="?")
ZOOKEEPER_SSL_ENABLED_PROTOCOLS = key("zookeeper.ssl.enabled.protocols", List(), importance=LOW, doc="?")
ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = key(
    "zookeeper.ssl.endpoint.identification.algorithm", String(), default="HTTPS", importance=LOW, doc="?"
)
ZOOKEEPER_SSL_KEYSTORE_LOCATION = key("zookeeper.ssl.keystore.location", String(), importance=MEDIUM, doc="?")
ZOOKEEPER_SSL_KEYSTORE_PASSWORD = key("zookeeper.ssl.keystore.password", PasswordType(), importance=MEDIUM, doc="?")
ZOOKEEPER_SSL_KEYSTORE_TYPE = key("zookeeper.ssl.keystore.type", String(), importance=MEDIUM, doc="?")
ZOOKEEPER_SSL_OCSP_ENABLE = key("zookeeper.ssl.ocsp.enable", Bool(), default=False, importance=LOW, doc="?")
ZOOKEEPER_SSL_PROTOCOL = key("zookeeper.ssl.protocol", String(), default="TLSv1.2", importance=LOW, doc="?")
ZOOKEEPER_SSL_TRUSTSTORE_LOCATION = key("zookeeper.ssl.truststore.location", String(), importance=MEDIUM, doc="?")
ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD = key("zookeeper.ssl.truststore.password", PasswordType(), importance=MEDIUM, doc="?")
ZOOKEEPER_SSL_TRUSTSTORE_TYPE = key("zookeeper.ssl.truststore.type", String(), importance=MEDIUM, doc="?")
ZOOKEEPER_CONNECTION_TIMEOUT_MS = key(
    "zookeeper.connection.timeout.ms", Int(), otherwise=lambda config: config[ZOOKEEPER_SESSION_TIMEOUT_MS], importance=HIGH, doc="?"
)
