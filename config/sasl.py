"""Reads how clients of a SASL listener authenticate: its mechanisms, their JAAS entries, and how long a session lasts.

`ottla.config.validation` calls it for every SASL listener, so that a configuration that cannot be honoured stops the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from ottla.config.broker_keys import LISTENER_PREFIX
from ottla.config.broker_properties import BrokerProperties
from ottla.config.errors import ConfigError, ConfigValueError
from ottla.config.jaas import (
    KERBEROS_MODULE,
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    ZOOKEEPER_MODULE,
    LoginModule,
    check_modules,
    parse_jaas,
    parse_jaas_file,
)
from ottla.config.kerberos import INSTALLATION, SERVICE_NAME, KerberosListener, is_installed, kerberos_identity, with_service_name
from ottla.config.keys.own import OTTLA_JAAS_FILE, OTTLA_SASL_OAUTHBEARER_ALLOWED_URLS
from ottla.config.keys.security import (
    CONNECTIONS_MAX_REAUTH_MS,
    SASL_CLIENT_CALLBACK_HANDLER_CLASS,
    SASL_ENABLED_MECHANISMS,
    SASL_JAAS_CONFIG,
    SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES,
    SASL_KERBEROS_SERVICE_NAME,
    SASL_LOGIN_CALLBACK_HANDLER_CLASS,
    SASL_LOGIN_CLASS,
    SASL_MECHANISM_INTER_BROKER_PROTOCOL,
    SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS,
    SASL_OAUTHBEARER_EXPECTED_AUDIENCE,
    SASL_OAUTHBEARER_EXPECTED_ISSUER,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
    SASL_OAUTHBEARER_SCOPE_CLAIM_NAME,
    SASL_OAUTHBEARER_SUB_CLAIM_NAME,
    SASL_SERVER_CALLBACK_HANDLER_CLASS,
    SASL_SERVER_MAX_RECEIVE_SIZE,
)
from ottla.config.listeners import check_principal_builder
from ottla.config.schema.key import Key

T = TypeVar("T")

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER, GSSAPI)
"""The mechanisms that a listener may enable."""

_PACKAGE: Final = "org.apache.kafka.common.security"
_OAUTHBEARER_PACKAGE: Final = f"{_PACKAGE}.oauthbearer"
_UNSECURED_PACKAGE: Final = f"{_OAUTHBEARER_PACKAGE}.internals.unsecured"
SIGNED_VALIDATORS: Final = frozenset(
    f"{_OAUTHBEARER_PACKAGE}.{name}" for name in ("OAuthBearerValidatorCallbackHandler", "secured.OAuthBearerValidatorCallbackHandler")
)
"""Kafka's class that validates signed tokens, and its deprecated name."""

LOGIN_MODULES: Final = {
    PLAIN: PLAIN_MODULE,
    SCRAM_SHA_256: SCRAM_MODULE,
    SCRAM_SHA_512: SCRAM_MODULE,
    OAUTHBEARER: OAUTHBEARER_MODULE,
    GSSAPI: KERBEROS_MODULE,
}
"""The login module that has the credential for a mechanism."""

ZOOKEEPER_CLIENT: Final = "Client"
"""The section of a JAAS file with the broker's credential for ZooKeeper."""
ZOOKEEPER_SERVICE: Final = "zookeeper"
"""The service name of ZooKeeper servers, unless the JAAS entry has another `serviceName`."""
KAFKA_SERVER: Final = "KafkaServer"
"""The section of a JAAS file for all listeners; `<listener>.KafkaServer` precedes it."""

_MOST_DIGITS: Final = 18
"""Digits of the longest time that an option may have; Python refuses to read a number of thousands of digits."""
_URL_WITH_LOGIN: Final = re.compile(r"https?://[^/?#]*@", re.IGNORECASE)
_DEFAULT_CLASSES: Final[Mapping[Key[str | None], Mapping[str, str]]] = {
    SASL_LOGIN_CLASS: {
        PLAIN: f"{_PACKAGE}.authenticator.DefaultLogin",
        SCRAM_SHA_256: f"{_PACKAGE}.authenticator.DefaultLogin",
        SCRAM_SHA_512: f"{_PACKAGE}.authenticator.DefaultLogin",
        OAUTHBEARER: f"{_OAUTHBEARER_PACKAGE}.internals.OAuthBearerRefreshingLogin",
        GSSAPI: f"{_PACKAGE}.kerberos.KerberosLogin",
    },
    SASL_LOGIN_CALLBACK_HANDLER_CLASS: {OAUTHBEARER: f"{_UNSECURED_PACKAGE}.OAuthBearerUnsecuredLoginCallbackHandler"},
    SASL_SERVER_CALLBACK_HANDLER_CLASS: {
        PLAIN: f"{_PACKAGE}.plain.internals.PlainServerCallbackHandler",
        OAUTHBEARER: f"{_UNSECURED_PACKAGE}.OAuthBearerUnsecuredValidatorCallbackHandler",
        GSSAPI: f"{_PACKAGE}.authenticator.SaslServerCallbackHandler",
    },
    SASL_CLIENT_CALLBACK_HANDLER_CLASS: {
        PLAIN: f"{_PACKAGE}.authenticator.SaslClientCallbackHandler",
        SCRAM_SHA_256: f"{_PACKAGE}.authenticator.SaslClientCallbackHandler",
        SCRAM_SHA_512: f"{_PACKAGE}.authenticator.SaslClientCallbackHandler",
        OAUTHBEARER: f"{_OAUTHBEARER_PACKAGE}.internals.OAuthBearerSaslClientCallbackHandler",
        GSSAPI: f"{_PACKAGE}.kerberos.KerberosClientCallbackHandler",
    },
}
"""The classes that Apache Kafka loads for a mechanism by default. They do what this server does, so a key may name them."""


class JwksSource(NamedTuple):
    """The place of the keys that verify signed tokens. `tls` has the `ssl.` options of the JAAS entry, for an https URL."""

    url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    tls: tuple[tuple[str, str], ...] = ()


class SignedTokens(NamedTuple):
    """Which signed tokens are valid: the keys `sasl.oauthbearer.*` of Kafka's OAuthBearerValidatorCallbackHandler."""

    source: JwksSource
    expected_audiences: frozenset[str]
    expected_issuer: str | None
    clock_skew_seconds: int
    scope_claim_name: str
    sub_claim_name: str


class Mechanism(NamedTuple):
    """One enabled mechanism of a listener. `max_reauth_ms`: how long a session may last, ms; 0 without a limit."""

    name: str
    modules: Sequence[LoginModule]
    max_reauth_ms: int
    signed_tokens: SignedTokens | None = None
    """None for OAUTHBEARER with unsecured tokens, and for the other mechanisms."""
    kerberos: KerberosListener | None = None
    """None for the other mechanisms than GSSAPI."""

    def option(self, module: str, name: str) -> str | None:
        """The value of an option of the first entry of this login module that has it."""
        return next((each.options[name] for each in self.modules if each.name == module and name in each.options), None)


class UnsecuredTokens(NamedTuple):
    """Which unsecured tokens are valid: the options of Kafka's OAuthBearerUnsecuredValidatorCallbackHandler."""

    principal_claim_name: str
    scope_claim_name: str
    required_scope: tuple[str, ...]
    allowable_clock_skew_ms: int


def unsecured_tokens(mechanism: Mechanism) -> UnsecuredTokens:
    """The tokens that OAUTHBEARER accepts. Raises ConfigError for an option that is no number."""

    def option(name: str) -> str | None:
        return mechanism.option(OAUTHBEARER_MODULE, f"unsecuredValidator{name}")

    skew = option("AllowableClockSkewMs") or "0"
    if not skew.isdecimal() or len(skew) > _MOST_DIGITS:
        raise ConfigError("the option unsecuredValidatorAllowableClockSkewMs is not a number of milliseconds")
    scope = tuple((option("RequiredScope") or "").split())
    return UnsecuredTokens(option("PrincipalClaimName") or "sub", option("ScopeClaimName") or "scope", scope, int(skew))


class SaslListener(NamedTuple):
    """How clients of one listener authenticate. `max_receive_size` bounds their frames until then, bytes."""

    mechanisms: dict[str, Mechanism]
    max_receive_size: int


def offers_scram(listener: SaslListener) -> bool:
    """Whether clients of the listener may log in by SCRAM."""
    return not listener.mechanisms.keys().isdisjoint((SCRAM_SHA_256, SCRAM_SHA_512))


def accepts_unsecured_tokens(listener: SaslListener) -> bool:
    """Whether clients of the listener may log in by tokens that they make themselves."""
    return OAUTHBEARER in listener.mechanisms and listener.mechanisms[OAUTHBEARER].signed_tokens is None


def sasl_listener(properties: BrokerProperties, listener_name: str) -> SaslListener:
    """The configuration of a SASL listener. Raises ConfigError, which names key, value and reason."""
    of_listener = properties.for_listener(listener_name)
    names = of_listener[SASL_ENABLED_MECHANISMS]
    if not names:
        raise ConfigValueError(SASL_ENABLED_MECHANISMS.name, "", f"listener {listener_name} has no SASL mechanism")
    check_principal_builder(properties, listener_name)
    mechanisms: dict[str, Mechanism] = {}
    for name in names:
        why_not = _why_not(name)
        if why_not is not None:
            raise ConfigValueError(SASL_ENABLED_MECHANISMS.name, ",".join(names), f"listener {listener_name} cannot offer {name}{why_not}")
        for key in (SASL_LOGIN_CALLBACK_HANDLER_CLASS, SASL_LOGIN_CLASS):
            _refuse_class(properties, listener_name, name, key)
        modules = _modules(properties, listener_name, name)
        max_reauth_ms = _of_mechanism(properties, listener_name, name, CONNECTIONS_MAX_REAUTH_MS)
        is_signed = _validates_signed_tokens(properties, listener_name, name)
        mechanisms[name] = Mechanism(
            name,
            modules,
            max_reauth_ms,
            _signed_tokens(properties, listener_name, modules) if is_signed else None,
            _kerberos(properties, listener_name, modules) if name == GSSAPI else None,
        )
        if name == OAUTHBEARER:
            try:
                unsecured_tokens(mechanisms[name])
            except ConfigError as reason:
                raise ConfigValueError(_prefixed(listener_name, name, SASL_JAAS_CONFIG), "[hidden]", str(reason)) from None
    return SaslListener(mechanisms, of_listener[SASL_SERVER_MAX_RECEIVE_SIZE])


def ignored_jaas_key(properties: BrokerProperties, listener_name: str, mechanisms: Iterable[str]) -> str | None:
    """A key that looks as if it were the JAAS entry of one of these mechanisms; it is ignored, since it has no mechanism in its name."""
    if all(_prefixed(listener_name, each, SASL_JAAS_CONFIG) in properties.properties for each in mechanisms):
        return None
    names = (f"{LISTENER_PREFIX}{listener_name.lower()}.{SASL_JAAS_CONFIG.name}", SASL_JAAS_CONFIG.name)
    return next((name for name in names if name in properties.properties), None)


def inter_broker_login(properties: BrokerProperties, listener_name: str) -> tuple[str, LoginModule]:
    """The mechanism by which this broker logs in at a listener of other brokers, and its JAAS entry. Raises ConfigError."""
    name = properties[SASL_MECHANISM_INTER_BROKER_PROTOCOL]
    if name not in MECHANISMS:
        raise ConfigValueError(
            SASL_MECHANISM_INTER_BROKER_PROTOCOL.name, name, f"the mechanisms of this server are {', '.join(MECHANISMS)}"
        )
    _refuse_class(properties, listener_name, name, SASL_CLIENT_CALLBACK_HANDLER_CLASS)
    module = login_module(name, _modules(properties, listener_name, name))
    if name == GSSAPI:
        module = with_service_name(module, properties.for_listener(listener_name)[SASL_KERBEROS_SERVICE_NAME])
    return name, module


def inter_broker_login_setting(properties: BrokerProperties, listener_name: str) -> str:
    """The setting with the JAAS entry of `inter_broker_login`, as NAME=VALUE."""
    name = _prefixed(listener_name, properties[SASL_MECHANISM_INTER_BROKER_PROTOCOL], SASL_JAAS_CONFIG)
    return f"{name}=[hidden]" if name in properties.properties else f"{OTTLA_JAAS_FILE.name}={properties[OTTLA_JAAS_FILE]}"


def _why_not(mechanism: str) -> str | None:
    """The reason why no listener can offer a mechanism, as the end of a sentence; None if one can."""
    if mechanism not in MECHANISMS:
        return f"; the mechanisms of this server are {', '.join(MECHANISMS)}"
    if mechanism == GSSAPI and not is_installed():
        others = ", ".join(name for name in MECHANISMS if name != GSSAPI)
        return f" (Kerberos, the default): {INSTALLATION}, or name other mechanisms: {others}"
    return None


def login_module(mechanism: str, modules: Sequence[LoginModule]) -> LoginModule:
    """The JAAS entry with the credential of a client of this mechanism. Raises ConfigError."""
    needed = LOGIN_MODULES[mechanism]
    found = next((each for each in modules if each.name == needed), None)
    if found is None:
        raise ConfigError(f"{mechanism} needs the login module {needed}, which the JAAS configuration lacks")
    return found


def zookeeper_login(file: str | None) -> LoginModule | None:
    """The entry of the section `Client` of the JAAS file, for DIGEST-MD5 or GSSAPI; None without one. Raises ConfigError."""
    modules = _sections(file).get(ZOOKEEPER_CLIENT)
    if not modules:
        return None
    found = next((each for each in modules if each.name in (ZOOKEEPER_MODULE, KERBEROS_MODULE)), None)
    if found is None:
        needed = f"{ZOOKEEPER_MODULE} or {KERBEROS_MODULE}"
        raise ConfigValueError(OTTLA_JAAS_FILE.name, file, f"the section {ZOOKEEPER_CLIENT} needs {needed}, not {modules[0].name}")
    if found.name == KERBEROS_MODULE:
        found = with_service_name(found, found.options.get(SERVICE_NAME, ZOOKEEPER_SERVICE))
        try:
            kerberos_identity(found)
        except ConfigError as reason:
            raise ConfigValueError(OTTLA_JAAS_FILE.name, file, f"the section {ZOOKEEPER_CLIENT}: {reason}") from None
        return found
    for name in ("username", "password"):
        if not found.options.get(name):
            raise ConfigValueError(OTTLA_JAAS_FILE.name, file, f"the section {ZOOKEEPER_CLIENT} has no option {name}")
    return found


def _prefixed(listener_name: str, mechanism: str, key: Key[Any]) -> str:
    return f"{LISTENER_PREFIX}{listener_name.lower()}.{mechanism.lower()}.{key.name}"


def _of_mechanism(properties: BrokerProperties, listener_name: str, mechanism: str, key: Key[T]) -> T:
    """The value with the prefix of listener and mechanism, else that of the listener, else the bare one."""
    name = _prefixed(listener_name, mechanism, key)
    text = properties.properties.get(name)
    if text is None:
        return properties.for_listener(listener_name)[key]
    value: T = key.type.parse(name, text)
    return value


def _refuse_class(properties: BrokerProperties, listener_name: str, mechanism: str, key: Key[str | None]) -> None:
    """Raises ConfigValueError for another class than the default one."""
    value = _of_mechanism(properties, listener_name, mechanism, key)
    if value and value != _DEFAULT_CLASSES[key].get(mechanism):
        raise ConfigValueError(_name_of(properties, listener_name, mechanism, key), value, "this server loads no Java classes")


def _validates_signed_tokens(properties: BrokerProperties, listener_name: str, mechanism: str) -> bool:
    """Whether a mechanism has Kafka's class for signed tokens. Raises ConfigValueError for another class than the default."""
    key = SASL_SERVER_CALLBACK_HANDLER_CLASS
    if mechanism == OAUTHBEARER and _of_mechanism(properties, listener_name, mechanism, key) in SIGNED_VALIDATORS:
        return True
    _refuse_class(properties, listener_name, mechanism, key)
    return False


def _signed_tokens(properties: BrokerProperties, listener_name: str, modules: Sequence[LoginModule]) -> SignedTokens:
    def value_of(key: Key[T]) -> T:
        return _of_mechanism(properties, listener_name, OAUTHBEARER, key)

    def refuse(key: Key[Any], reason: str) -> ConfigValueError:
        return ConfigValueError(_name_of(properties, listener_name, OAUTHBEARER, key), value_of(key), reason)

    url = (value_of(SASL_OAUTHBEARER_JWKS_ENDPOINT_URL) or "").strip()
    if url.partition(":")[0].lower() not in ("file", "http", "https"):
        raise refuse(SASL_OAUTHBEARER_JWKS_ENDPOINT_URL, "signed tokens need a file, http or https URL with the keys that verify them")
    if _URL_WITH_LOGIN.match(url):
        name = _name_of(properties, listener_name, OAUTHBEARER, SASL_OAUTHBEARER_JWKS_ENDPOINT_URL)
        raise ConfigValueError(name, "[hidden]", "the URL has a user or a password; remove both, since such keys are public")
    allowed = properties[OTTLA_SASL_OAUTHBEARER_ALLOWED_URLS]
    if allowed is not None and url not in allowed:
        raise refuse(SASL_OAUTHBEARER_JWKS_ENDPOINT_URL, f"it is not among {OTTLA_SASL_OAUTHBEARER_ALLOWED_URLS.name}")
    refresh_ms = value_of(SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS)
    if refresh_ms <= 0:
        raise refuse(SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS, "it must be positive")
    claims = {key: value_of(key).strip() for key in (SASL_OAUTHBEARER_SCOPE_CLAIM_NAME, SASL_OAUTHBEARER_SUB_CLAIM_NAME)}
    for key, claim in claims.items():
        if not claim:
            raise refuse(key, "a claim has a name")
    audiences: tuple[str, ...] | None = value_of(SASL_OAUTHBEARER_EXPECTED_AUDIENCE)
    options = {name: text for each in modules for name, text in each.options.items() if name.startswith("ssl.")}
    return SignedTokens(
        JwksSource(
            url,
            refresh_ms,
            value_of(SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS),
            value_of(SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS),
            tuple(sorted(options.items())),
        ),
        frozenset(audiences or ()),
        (value_of(SASL_OAUTHBEARER_EXPECTED_ISSUER) or "").strip() or None,
        value_of(SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS),
        claims[SASL_OAUTHBEARER_SCOPE_CLAIM_NAME],
        claims[SASL_OAUTHBEARER_SUB_CLAIM_NAME],
    )


def _kerberos(properties: BrokerProperties, listener_name: str, modules: Sequence[LoginModule]) -> KerberosListener:
    of_listener = properties.for_listener(listener_name)
    try:
        module = with_service_name(login_module(GSSAPI, modules), of_listener[SASL_KERBEROS_SERVICE_NAME])
        identity = kerberos_identity(module)
        if identity.keytab is None:
            raise ConfigError("a listener has its key from a keytab: set the options useKeyTab=true, keyTab and principal")
    except ConfigError as reason:
        raise ConfigValueError(_prefixed(listener_name, GSSAPI, SASL_JAAS_CONFIG), "[hidden]", str(reason)) from None
    rules = SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES
    prefixed = f"{LISTENER_PREFIX}{listener_name.lower()}.{rules.name}"
    return KerberosListener(identity, of_listener[rules], prefixed if prefixed in properties.properties else rules.name)


def _name_of(properties: BrokerProperties, listener_name: str, mechanism: str, key: Key[Any]) -> str:
    """The name under which the value of a key is set; the bare one when it is not set."""
    prefix = f"{LISTENER_PREFIX}{listener_name.lower()}."
    names = (_prefixed(listener_name, mechanism, key), f"{prefix}{key.name}")
    return next((name for name in names if name in properties.properties), key.name)


def _modules(properties: BrokerProperties, listener_name: str, mechanism: str) -> Sequence[LoginModule]:
    """The JAAS entries of a mechanism: of its own key, which must have exactly one, or of the file."""
    name = _prefixed(listener_name, mechanism, SASL_JAAS_CONFIG)
    text = properties.properties.get(name)
    if text is not None:
        try:
            modules = parse_jaas(text)
        except ConfigError as error:
            raise ConfigValueError(name, "[hidden]", str(error)) from None
        if len(modules) != 1:
            raise ConfigValueError(name, "[hidden]", f"JAAS config property contains {len(modules)} login modules, should be 1 module")
        return modules
    file = properties[OTTLA_JAAS_FILE]
    sections = _sections(file)
    of_listener = f"{listener_name.lower()}.{KAFKA_SERVER}"
    section = of_listener if sections.get(of_listener) else KAFKA_SERVER
    found = sections.get(section)
    if not found:
        instead = f"{OTTLA_JAAS_FILE.name} with a section {of_listener} or {KAFKA_SERVER}"
        raise ConfigValueError(name, None, f"listener {listener_name} enables {mechanism}; set it, or {instead}")
    try:
        check_modules(found)
    except ConfigError as reason:
        raise ConfigValueError(OTTLA_JAAS_FILE.name, file, f"section {section}: {reason}") from None
    return found


def _sections(path: str | None) -> dict[str, list[LoginModule]]:
    if path is None:
        return {}
    try:
        return parse_jaas_file(Path(path).read_bytes().decode())  # a carriage return is a character of its own to Java
    except OSError as error:
        raise ConfigValueError(OTTLA_JAAS_FILE.name, path, f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigValueError(OTTLA_JAAS_FILE.name, path, "is not UTF-8") from None
    except ConfigError as reason:
        raise ConfigValueError(OTTLA_JAAS_FILE.name, path, str(reason)) from None
