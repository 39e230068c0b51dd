"""TLS of the listeners."""

from config.key import LOW, MEDIUM, PER_BROKER, key
from config.types import Bool, Class, List, PasswordType, String

SSL_ALLOW_DN_CHANGES = key("ssl.allow.dn.changes", Bool(), default=False, importance=LOW, doc="?")
SSL_ALLOW_SAN_CHANGES = key("ssl.allow.san.changes", Bool(), default=False, importance=LOW, doc="?")
SSL_CIPHER_SUITES = key("ssl.cipher.suites", List(), default=(), importance=MEDIUM, dynamic=PER_BROKER, doc="?")
SSL_CLIENT_AUTH = key(
    "ssl.client.auth", String(choices=("required", "requested", "none")), default="none", importance=MEDIUM, dynamic=PER_BROKER, doc="?"
)
SSL_ENABLED_PROTOCOLS = key("ssl.enabled.protocols", List(), default=("TLSv1.2", "TLSv1.3"), importance=MEDIUM, dynamic=PER_BROKER, doc="?")
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = key(
    "ssl.endpoint.identification.algorithm", String(), default="https", importance=LOW, dynamic=PER_BROKER, doc="?"
)
SSL_ENGINE_FACTORY_CLASS = key("ssl.engine.factory.class", Class(), importance=LOW, dynamic=PER_BROKER, doc="?")
SSL_KEY_PASSWORD = key("ssl.key.password", PasswordType(), importance=MEDIUM, dynamic=PER_BROKER, listener_only=True, doc="?")
SSL_KEYMANAGER_ALGORITHM = key("ssl.keymanager.algorithm", String(), default="SunX509", importance=MEDIUM, dynamic=PER_BROKER, doc="?")
SSL_KEYSTORE_CERTIFICATE_CHAIN = key(
    "ssl.keystore.certificate.chain", PasswordType(), importance=MEDIUM, dynamic=PER_BROKER, listener_only=True, doc="?"
)
SSL_KEYSTORE_KEY = key("ssl.keystore.key", PasswordType(), importance=MEDIUM, dynamic=PER_BROKER, listener_only=True, doc="?")
SSL_KEYSTORE_LOCATION = key("ssl.keystore.location", String(), importance=MEDIUM, dynamic=PER_BROKER, listener_only=True, doc="?")
SSL_KEYSTORE_PASSWORD = key("ssl.keystore.password", PasswordType(), importance=MEDIUM, dynamic=PER_BROKER, listener_only=True, doc="?")
SSL_KEYSTORE_TYPE = key("ssl.keystore.type", String(), default="JKS", importance=MEDIUM, dynamic=PER_BROKER, listener_only=True, doc="?")
SSL_PRINCIPAL_MAPPING_RULES = key("ssl.principal.mapping.rules", String(), default="DEFAULT", importance=LOW, doc="?")
SSL_PROTOCOL = key("ssl.protocol", String(), default="TLSv1.3", importance=MEDIUM, dynamic=PER_BROKER, doc="?")
SSL_PROVIDER = key("ssl.provider", String(), importance=MEDIUM, dynamic=PER_BROKER, doc="?")
SSL_SECURE_RANDOM_IMPLEMENTATION = key("ssl.secure.random.implementation", String(), importance=LOW, dynamic=PER_BROKER, doc="?")
SSL_TRUSTMANAGER_ALGORITHM = key("ssl.trustmanager.algorithm", String(), default="PKIX", importance=MEDIUM, dynamic=PER_BROKER, doc="?")
SSL_TRUSTSTORE_CERTIFICATES = key(
    "ssl.truststore.certificates", PasswordType(), importance=MEDIUM, dynamic=PER_BROKER, listener_only=True, doc="?"
)
SSL_TRUSTSTORE_LOCATION = key("ssl.truststore.location", String(), importance=MEDIUM, dynamic=PER_BROKER, listener_only=True, doc="?")
SSL_TRUSTSTORE_PASSWORD = key("ssl.truststore.password", PasswordType(), importance=MEDIUM, dynamic=PER_BROKER, listener_only=True, doc="?")
SSL_TRUSTSTORE_TYPE = key(
    "ssl.truststore.type", String(), default="JKS", importance=MEDIUM, dynamic=PER_BROKER, listener_only=True, doc="?"
)
