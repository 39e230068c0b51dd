"""Declares the keys of security: SASL, delegation tokens, authorization and stored secrets."""

from ottla.config.schema.key import DAY, HOUR, LOW, MEDIUM, PER_BROKER, SECOND, KiB, key
from ottla.config.schema.types import Bool, Class, Double, Int, List, Long, PasswordType, Short, String

AUTHORIZER_CLASS_NAME = key(
    "authorizer.class.name",
    String(described_as="non-null string"),
    default="",
    importance=LOW,
    effective=True,
    doc="The class that decides what a principal may do; without it everything is allowed. This server has the class "
    "kafka.security.authorizer.AclAuthorizer, and does not start with any other.",
)
SUPER_USERS = key(
    "super.users",
    String(),
    default="",
    importance=LOW,
    effective=True,
    internal=True,
    doc="The principals that the authorizer allows everything, as Type:name with semicolons in between.",
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND = key(
    "allow.everyone.if.no.acl.found",
    Bool(),
    default=False,
    importance=LOW,
    effective=True,
    internal=True,
    doc="Whether the authorizer allows everyone everything on a resource that has no ACL.",
)
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = key(
    "connection.failed.authentication.delay.ms",
    Int(0),
    default=100,
    importance=LOW,
    effective=True,
    doc="How long the broker waits before it closes a connection whose authentication failed, to slow down guessing.",
)
CONNECTIONS_MAX_REAUTH_MS = key(
    "connections.max.reauth.ms",
    Long(),
    default=0,
    importance=MEDIUM,
    effective=True,
    doc="How long a SASL session may last before the client has to authenticate again; 0 for no limit.",
)
DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS = key(
    "delegation.token.expiry.check.interval.ms",
    Long(1),
    default=HOUR,
    importance=LOW,
    effective=True,
    doc="How often expired delegation tokens are removed.",
)
DELEGATION_TOKEN_EXPIRY_TIME_MS = key(
    "delegation.token.expiry.time.ms",
    Long(1),
    default=DAY,
    importance=MEDIUM,
    effective=True,
    doc="How long a delegation token is valid unless it is renewed.",
)
DELEGATION_TOKEN_MASTER_KEY = key(
    "delegation.token.master.key",
    PasswordType(),
    importance=MEDIUM,
    effective=True,
    doc="The old name of delegation.token.secret.key.",
)
DELEGATION_TOKEN_MAX_LIFETIME_MS = key(
    "delegation.token.max.lifetime.ms",
    Long(1),
    default=7 * DAY,
    importance=MEDIUM,
    effective=True,
    doc="The longest life of a delegation token, renewals included.",
)
DELEGATION_TOKEN_SECRET_KEY = key(
    "delegation.token.secret.key",
    PasswordType(),
    importance=MEDIUM,
    effective=True,
    doc="The secret with which all brokers make and check delegation tokens; tokens are off without it.",
)
PASSWORD_ENCODER_CIPHER_ALGORITHM = key(
    "password.encoder.cipher.algorithm",
    String(),
    default="AES/CBC/PKCS5Padding",
    importance=LOW,
    effective=True,
    doc="The cipher that encrypts passwords of dynamic configurations.",
)
PASSWORD_ENCODER_ITERATIONS = key(
    "password.encoder.iterations",
    Int(KiB),
    default=4 * KiB,
    importance=LOW,
    effective=True,
    doc="How many iterations derive the encryption key from password.encoder.secret.",
)
PASSWORD_ENCODER_KEY_LENGTH = key(
    "password.encoder.key.length",
    Int(8),
    default=128,
    importance=LOW,
    effective=True,
    doc="The length in bits of the encryption key for passwords of dynamic configurations.",
)
PASSWORD_ENCODER_KEYFACTORY_ALGORITHM = key(
    "password.encoder.keyfactory.algorithm",
    String(),
    importance=LOW,
    effective=True,
    doc="How the encryption key is derived; without it, PBKDF2 with the best hash there is.",
)
PASSWORD_ENCODER_OLD_SECRET = key(
    "password.encoder.old.secret",
    PasswordType(),
    importance=MEDIUM,
    effective=True,
    doc="The former password.encoder.secret, given once so that stored passwords can be encrypted again.",
)
PASSWORD_ENCODER_SECRET = key(
    "password.encoder.secret",
    PasswordType(),
    importance=MEDIUM,
    effective=True,
    doc="The secret from which the key for passwords of dynamic configurations is derived.",
)
PRINCIPAL_BUILDER_CLASS = key(
    "principal.builder.class",
    Class(),
    default="org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    importance=MEDIUM,
    dynamic=PER_BROKER,
    effective=True,
    doc="The class that derives the principal from the result of authentication.",
)
SASL_CLIENT_CALLBACK_HANDLER_CLASS = key(
    "sasl.client.callback.handler.class",
    Class(),
    importance=MEDIUM,
    effective=True,
    doc="The class that supplies the broker's own credentials when it connects to another broker.",
)
SASL_ENABLED_MECHANISMS = key(
    "sasl.enabled.mechanisms",
    List(),
    default=("GSSAPI",),
    importance=MEDIUM,
    dynamic=PER_BROKER,
    effective=True,
    doc="The SASL mechanisms that clients may use.",
)
SASL_JAAS_CONFIG = key(
    "sasl.jaas.config",
    PasswordType(),
    importance=MEDIUM,
    dynamic=PER_BROKER,
    effective=True,
    doc="The JAAS configuration of a listener and mechanism, written in one line.",
)
SASL_KERBEROS_KINIT_CMD = key(
    "sasl.kerberos.kinit.cmd",
    String(),
    default="/usr/bin/kinit",
    importance=MEDIUM,
    dynamic=PER_BROKER,
    doc="The path of the kinit command.",
)
SASL_KERBEROS_MIN_TIME_BEFORE_RELOGIN = key(
    "sasl.kerberos.min.time.before.relogin",
    Long(),
    default=60_000,
    importance=MEDIUM,
    dynamic=PER_BROKER,
    doc="The shortest time between two Kerberos logins.",
)
SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES = key(
    "sasl.kerberos.principal.to.local.rules",
    List(),
    default=("DEFAULT",),
    importance=MEDIUM,
    dynamic=PER_BROKER,
    effective=True,
    doc="The rules that turn a Kerberos principal into a short name.",
)
SASL_KERBEROS_SERVICE_NAME = key(
    "sasl.kerberos.service.name",
    String(),
    importance=MEDIUM,
    dynamic=PER_BROKER,
    effective=True,
    doc="The Kerberos service name that brokers run under.",
)
SASL_KERBEROS_TICKET_RENEW_JITTER = key(
    "sasl.kerberos.ticket.renew.jitter",
    Double(),
    default=0.05,
    importance=MEDIUM,
    dynamic=PER_BROKER,
    doc="The random part of the time at which a Kerberos ticket is renewed.",
)
SASL_KERBEROS_TICKET_RENEW_WINDOW_FACTOR = key(
    "sasl.kerberos.ticket.renew.window.factor",
    Double(),
    default=0.8,
    importance=MEDIUM,
    dynamic=PER_BROKER,
    doc="The part of a Kerberos ticket's life after which it is renewed.",
)
SASL_LOGIN_CALLBACK_HANDLER_CLASS = key(
    "sasl.login.callback.handler.class", Class(), importance=MEDIUM, doc="The class that answers the broker's login."
)
SASL_LOGIN_CLASS = key("sasl.login.class", Class(), importance=MEDIUM, doc="The class that performs the broker's login.")
SASL_LOGIN_CONNECT_TIMEOUT_MS = key(
    "sasl.login.connect.timeout.ms", Int(), importance=LOW, doc="How long a login waits for a connection to the authentication provider."
)
SASL_LOGIN_READ_TIMEOUT_MS = key(
    "sasl.login.read.timeout.ms", Int(), importance=LOW, doc="How long a login waits for the authentication provider's answer."
)
SASL_LOGIN_REFRESH_BUFFER_SECONDS = key(
    "sasl.login.refresh.buffer.seconds",
    Short(),
    default=300,
    importance=MEDIUM,
    dynamic=PER_BROKER,
    doc="How long before its expiry a login credential is refreshed at the latest.",
)
SASL_LOGIN_REFRESH_MIN_PERIOD_SECONDS = key(
    "sasl.login.refresh.min.period.seconds",
    Short(),
    default=60,
    importance=MEDIUM,
    dynamic=PER_BROKER,
    doc="The shortest time between two refreshes of a login credential.",
)
SASL_LOGIN_REFRESH_WINDOW_FACTOR = key(
    "sasl.login.refresh.window.factor",
    Double(),
    default=0.8,
    importance=MEDIUM,
    dynamic=PER_BROKER,
    doc="The part of a login credential's life after which it is refreshed.",
)
SASL_LOGIN_REFRESH_WINDOW_JITTER = key(
    "sasl.login.refresh.window.jitter",
    Double(),
    default=0.05,
    importance=MEDIUM,
    dynamic=PER_BROKER,
    doc="The random part of the time at which a login credential is refreshed.",
)
SASL_LOGIN_RETRY_BACKOFF_MAX_MS = key(
    "sasl.login.retry.backoff.max.ms", Long(), default=10 * SECOND, importance=LOW, doc="The longest wait between two attempts to log in."
)
SASL_LOGIN_RETRY_BACKOFF_MS = key(
    "sasl.login.retry.backoff.ms", Long(), default=100, importance=LOW, doc="The first wait between two attempts to log in."
)
SASL_MECHANISM_INTER_BROKER_PROTOCOL = key(
    "sasl.mechanism.inter.broker.protocol",
    String(),
    default="GSSAPI",
    importance=MEDIUM,
    dynamic=PER_BROKER,
    effective=True,
    doc="The SASL mechanism between brokers.",
)
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS = key(
    "sasl.oauthbearer.clock.skew.seconds",
    Int(),
    default=30,
    importance=LOW,
    effective=True,
    doc="By how much the clocks of the broker and the token's issuer may differ.",
)
SASL_OAUTHBEARER_EXPECTED_AUDIENCE = key(
    "sasl.oauthbearer.expected.audience", List(), importance=LOW, effective=True, doc="The audiences of which a token has to name one."
)
SASL_OAUTHBEARER_EXPECTED_ISSUER = key(
    "sasl.oauthbearer.expected.issuer", String(), importance=LOW, effective=True, doc="The issuer that a token has to name."
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS = key(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    Long(),
    default=HOUR,
    importance=LOW,
    effective=True,
    doc="How often the keys that verify tokens are fetched again.",
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS = key(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    Long(),
    default=10 * SECOND,
    importance=LOW,
    effective=True,
    doc="The longest wait between two attempts to fetch the keys that verify tokens.",
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS = key(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    Long(),
    default=100,
    importance=LOW,
    effective=True,
    doc="The first wait between two attempts to fetch the keys that verify tokens.",
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL = key(
    "sasl.oauthbearer.jwks.endpoint.url", String(), importance=MEDIUM, effective=True, doc="Where the keys that verify tokens are fetched."
)
SASL_OAUTHBEARER_SCOPE_CLAIM_NAME = key(
    "sasl.oauthbearer.scope.claim.name",
    String(),
    default="scope",
    importance=LOW,
    effective=True,
    doc="The claim of a token that holds its scope.",
)
SASL_OAUTHBEARER_SUB_CLAIM_NAME = key(
    "sasl.oauthbearer.sub.claim.name",
    String(),
    default="sub",
    importance=LOW,
    effective=True,
    doc="The claim of a token that holds its subject.",
)
SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL = key(
    "sasl.oauthbearer.token.endpoint.url", String(), importance=MEDIUM, doc="Where the broker gets tokens for its own logins."
)
SASL_SERVER_CALLBACK_HANDLER_CLASS = key(
    "sasl.server.callback.handler.class",
    Class(),
    importance=MEDIUM,
    effective=True,
    doc="The class that checks credentials of a mechanism, set per listener and mechanism. OAUTHBEARER has "
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler for signed tokens.",
)
SASL_SERVER_MAX_RECEIVE_SIZE = key(
    "sasl.server.max.receive.size",
    Int(),
    default=512 * KiB,
    importance=MEDIUM,
    effective=True,
    doc="The largest message that a client may send before it is authenticated.",
)
SECURITY_PROVIDERS = key(
    "security.providers", String(), importance=LOW, effective=True, doc="Providers of security algorithms of the Java platform."
)

LISTENER_MECHANISM_KEYS = (
    SASL_JAAS_CONFIG,
    SASL_LOGIN_CALLBACK_HANDLER_CLASS,
    SASL_LOGIN_CLASS,
    SASL_SERVER_CALLBACK_HANDLER_CLASS,
    CONNECTIONS_MAX_REAUTH_MS,
    SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS,
    SASL_OAUTHBEARER_EXPECTED_AUDIENCE,
    SASL_OAUTHBEARER_EXPECTED_ISSUER,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
    SASL_OAUTHBEARER_SCOPE_CLAIM_NAME,
    SASL_OAUTHBEARER_SUB_CLAIM_NAME,
)
"""The keys that a listener sets per SASL mechanism: `listener.name.NAME.MECHANISM.KEY`."""
