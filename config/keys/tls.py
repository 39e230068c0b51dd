"""Declares the keys of TLS: keys, certificates and what listeners allow."""

from ottla.config.schema.key import LOW, MEDIUM, PER_BROKER, key
from ottla.config.schema.types import Bool, Class, List, PasswordType, String

SSL_ALLOW_DN_CHANGES = key(
    "ssl.allow.dn.changes",
    Bool(),
    default=False,
    importance=LOW,
    effective=True,
    doc="A new certificate of a listener may have another distinguished name than the old one.",
)
SSL_ALLOW_SAN_CHANGES = key(
    "ssl.allow.san.changes",
    Bool(),
    default=False,
    importance=LOW,
    effective=True,
    doc="A new certificate of a listener may have other alternative names than the old one.",
)
SSL_CIPHER_SUITES = key(
    "ssl.cipher.suites",
    List(),
    default=(),
    importance=MEDIUM,
    dynamic=PER_BROKER,
    effective=True,
    doc="The cipher suites that are allowed; all that the platform allows when it is empty.",
)
SSL_CLIENT_AUTH = key(
    "ssl.client.auth",
    String(choices=("required", "requested", "none")),
    default="none",
    importance=MEDIUM,
    dynamic=PER_BROKER,
    effective=True,
    doc="Whether clients have to show a certificate: required, requested or none.",
)
SSL_ENABLED_PROTOCOLS = key(
    "ssl.enabled.protocols",
    List(),
    default=("TLSv1.2", "TLSv1.3"),
    importance=MEDIUM,
    dynamic=PER_BROKER,
    effective=True,
    doc="The TLS versions that are allowed.",
)
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = key(
    "ssl.endpoint.identification.algorithm",
    String(),
    default="https",
    importance=LOW,
    dynamic=PER_BROKER,
    effective=True,
    doc="How a server's name is checked against its certificate when this broker connects; empty for no check.",
)
SSL_ENGINE_FACTORY_CLASS = key(
    "ssl.engine.factory.class",
    Class(),
    importance=LOW,
    dynamic=PER_BROKER,
    effective=True,
    doc="The class that makes TLS engines on the Java platform.",
)
SSL_KEY_PASSWORD = key(
    "ssl.key.password",
    PasswordType(),
    importance=MEDIUM,
    dynamic=PER_BROKER,
    listener_only=True,
    effective=True,
    doc="The password of the private key.",
)
SSL_KEYMANAGER_ALGORITHM = key(
    "ssl.keymanager.algorithm",
    String(),
    default="SunX509",
    importance=MEDIUM,
    dynamic=PER_BROKER,
    doc="The key manager of the Java platform.",
)
SSL_KEYSTORE_CERTIFICATE_CHAIN = key(
    "ssl.keystore.certificate.chain",
    PasswordType(),
    importance=MEDIUM,
    dynamic=PER_BROKER,
    listener_only=True,
    effective=True,
    doc="The certificate chain itself, as PEM text.",
)
SSL_KEYSTORE_KEY = key(
    "ssl.keystore.key",
    PasswordType(),
    importance=MEDIUM,
    dynamic=PER_BROKER,
    listener_only=True,
    effective=True,
    doc="The private key itself, as PEM text.",
)
SSL_KEYSTORE_LOCATION = key(
    "ssl.keystore.location",
    String(),
    importance=MEDIUM,
    dynamic=PER_BROKER,
    listener_only=True,
    effective=True,
    doc="The file with the broker's key and certificate.",
)
SSL_KEYSTORE_PASSWORD = key(
    "ssl.keystore.password",
    PasswordType(),
    importance=MEDIUM,
    dynamic=PER_BROKER,
    listener_only=True,
    effective=True,
    doc="The password of the key store.",
)
SSL_KEYSTORE_TYPE = key(
    "ssl.keystore.type",
    String(),
    default="JKS",
    importance=MEDIUM,
    dynamic=PER_BROKER,
    listener_only=True,
    effective=True,
    doc="The format of the key store: JKS, PKCS12 or PEM.",
)
SSL_PRINCIPAL_MAPPING_RULES = key(
    "ssl.principal.mapping.rules",
    String(),
    default="DEFAULT",
    importance=LOW,
    effective=True,
    doc="The rules that turn the distinguished name of a client's certificate into a short name.",
)
SSL_PROTOCOL = key(
    "ssl.protocol",
    String(),
    default="TLSv1.3",
    importance=MEDIUM,
    dynamic=PER_BROKER,
    effective=True,
    doc="The TLS version the platform starts from.",
)
SSL_PROVIDER = key(
    "ssl.provider",
    String(),
    importance=MEDIUM,
    dynamic=PER_BROKER,
    effective=True,
    doc="The security provider of the Java platform for TLS.",
)
SSL_SECURE_RANDOM_IMPLEMENTATION = key(
    "ssl.secure.random.implementation",
    String(),
    importance=LOW,
    dynamic=PER_BROKER,
    doc="The random number generator of the Java platform for TLS.",
)
SSL_TRUSTMANAGER_ALGORITHM = key(
    "ssl.trustmanager.algorithm",
    String(),
    default="PKIX",
    importance=MEDIUM,
    dynamic=PER_BROKER,
    doc="The trust manager of the Java platform.",
)
SSL_TRUSTSTORE_CERTIFICATES = key(
    "ssl.truststore.certificates",
    PasswordType(),
    importance=MEDIUM,
    dynamic=PER_BROKER,
    listener_only=True,
    effective=True,
    doc="The trusted certificates themselves, as PEM text.",
)
SSL_TRUSTSTORE_LOCATION = key(
    "ssl.truststore.location",
    String(),
    importance=MEDIUM,
    dynamic=PER_BROKER,
    listener_only=True,
    effective=True,
    doc="The file with the trusted certificates.",
)
SSL_TRUSTSTORE_PASSWORD = key(
    "ssl.truststore.password",
    PasswordType(),
    importance=MEDIUM,
    dynamic=PER_BROKER,
    listener_only=True,
    effective=True,
    doc="The password of the trust store.",
)
SSL_TRUSTSTORE_TYPE = key(
    "ssl.truststore.type",
    String(),
    default="JKS",
    importance=MEDIUM,
    dynamic=PER_BROKER,
    listener_only=True,
    effective=True,
    doc="The format of the trust store: JKS, PKCS12 or PEM.",
)
