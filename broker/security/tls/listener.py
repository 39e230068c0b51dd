"""Holds the TLS of one listener: its context, and the principals of its clients' certificates.

`tls_of` builds it from the configuration, at the start and when a listener is added. Keys of the form `listener.name.NAME.KEY` precede KEY.
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import TYPE_CHECKING, Final

from ottla.broker.security.principals import ANONYMOUS, USER_TYPE, Principal
from ottla.broker.security.tls.connecting import connecting_context
from ottla.broker.security.tls.context import TlsConfig
from ottla.broker.security.tls.distinguished_names import subject_of
from ottla.broker.security.tls.mapping_rules import MappingRules
from ottla.broker.security.tls.trial import reason_of, shake_hands
from ottla.config.broker_keys import LISTENER_PREFIX
from ottla.config.errors import ConfigError
from ottla.config.keys.tls import SSL_CLIENT_AUTH, SSL_KEYSTORE_LOCATION, SSL_PRINCIPAL_MAPPING_RULES, SSL_TRUSTSTORE_LOCATION
from ottla.config.listeners import EndPoint, SecurityProtocol, check_principal_builder

if TYPE_CHECKING:
    from ottla.config.broker_properties import BrokerProperties, ListenerConfig

logger = logging.getLogger(__name__)

SESSION_TICKETS: Final = 1
"""Tickets that a client of TLS 1.3 gets after its handshake, as from Java. OpenSSL makes two, and each costs 18 µs of the 300."""
_NO_CLIENT_AUTH: Final = "none"
_VERIFY_MODES: Final = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, _NO_CLIENT_AUTH: ssl.CERT_NONE}


class ListenerTls:
    """The TLS of one listener."""

    __slots__ = ("_names_clients", "_rules", "certificate", "context", "has_trust_store", "peer_context", "settings", "source")

    def __init__(
        self,
        context: ssl.SSLContext,
        certificate: bytes,
        rules: MappingRules,
        *,
        names_clients: bool = True,
        has_trust_store: bool = False,
        peer_context: ssl.SSLContext | None = None,
        settings: tuple[str, str] = ("", ""),
    ) -> None:
        """`certificate` is the broker's own, in DER. `names_clients`: clients' certificates name principals; with SASL they do not.

        `peer_context` is that of other brokers with the same configuration, as clients that compare no name; None for a listener that
        other brokers do not use. `settings` are those of the private key and of the trusted certificates, for errors.
        """
        self.context = context
        self.certificate = certificate
        self.has_trust_store = has_trust_store
        self.peer_context = peer_context
        self.settings = settings
        self.source: object = None
        """See `source_of`."""
        self._rules = rules
        self._names_clients = names_clients

    def principal_of(self, certificate: bytes | None) -> Principal:
        """The principal of a client with this certificate, in DER; ANONYMOUS without one.

        Raises NoMatchingRule, UnusablePrincipal, and MalformedDer for a subject that cannot be read.
        """
        if certificate is None or not self._names_clients:
            return ANONYMOUS
        principal = Principal(USER_TYPE, self._rules.name_of(subject_of(certificate)))
        principal.check()
        return principal


def tls_of(properties: BrokerProperties, endpoint: EndPoint, *, between_brokers: bool = False) -> ListenerTls:
    """The TLS of an SSL or SASL_SSL listener; `between_brokers` if it is that of other brokers. Reads its files. Raises ConfigError, whose
    text names the listener and the key."""
    source = source_of(properties, endpoint.listener_name)
    try:
        built = _Builder(properties, endpoint).build(between_brokers=between_brokers)
    except ConfigError as reason:
        raise ConfigError(f"listener {endpoint.listener_name}: {reason}") from None
    built.source = source
    return built


def check_peers(listener_name: str, tls: ListenerTls) -> None:
    """Raises ConfigError if brokers with this TLS cannot connect to each other, though the listener is for them.

    By a handshake in memory, as in Apache Kafka's SslFactory. The name in the certificate is not compared.
    """
    if tls.peer_context is None:
        return
    key, trust = tls.settings
    try:
        shake_hands(tls.context, tls.peer_context)
    except ssl.SSLCertVerificationError as error:
        reason = f"is not accepted by {trust}: {reason_of(error)}"
    except ssl.SSLError as error:
        reason = f"cannot be used with the versions and cipher suites of the listener: {reason_of(error)}"
    else:
        return
    raise ConfigError(f"listener {listener_name}: {key} {reason}; brokers with this configuration cannot connect to each other")


def source_of(properties: BrokerProperties, listener_name: str) -> object:
    """All that the TLS of a listener is built from, for comparison: the properties, and the state of their files."""
    prefix = f"{LISTENER_PREFIX}{listener_name.lower()}.ssl."
    values = properties.for_listener(listener_name)
    texts = {name: text for name, text in properties.properties.items() if name.startswith((prefix, "ssl."))}
    return texts, [_file_state(values[key]) for key in (SSL_KEYSTORE_LOCATION, SSL_TRUSTSTORE_LOCATION)]


def _file_state(path: str | None) -> object:
    try:
        found = None if path is None else os.stat(path)
    except (OSError, ValueError):  # ValueError for a path with a zero byte
        return None
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)


class _Builder:
    """Builds the TLS of one listener."""

    def __init__(self, properties: BrokerProperties, endpoint: EndPoint) -> None:
        self._properties = properties
        self._endpoint = endpoint
        self._values: ListenerConfig = properties.for_listener(endpoint.listener_name)

    def build(self, *, between_brokers: bool) -> ListenerTls:
        values = self._values
        check_principal_builder(self._properties, self._endpoint.listener_name)
        config = TlsConfig(values, f"listener {self._endpoint.listener_name}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        config.prepare(context)
        certificate = config.load_key(context)
        context.num_tickets = SESSION_TICKETS
        context.verify_mode = _VERIFY_MODES[self._client_auth()]
        config.load_trust(context, ssl.Purpose.CLIENT_AUTH)
        rules = MappingRules(values[SSL_PRINCIPAL_MAPPING_RULES])
        return ListenerTls(
            context,
            certificate,
            rules,
            names_clients=self._endpoint.security_protocol is SecurityProtocol.SSL,
            has_trust_store=config.has_trust_store,
            peer_context=self._peer_context() if between_brokers else None,
            settings=(config.key_setting, config.trust_setting),
        )

    def _peer_context(self) -> ssl.SSLContext:
        context = connecting_context(self._values, f"connections to {self._endpoint.listener_name}")
        context.check_hostname = False
        return context

    def _client_auth(self) -> str:
        """The value of ssl.client.auth. With SASL only the key of the listener counts (KIP-684)."""
        name = f"{LISTENER_PREFIX}{self._endpoint.listener_name.lower()}.{SSL_CLIENT_AUTH.name}"
        value = self._values[SSL_CLIENT_AUTH]
        if self._endpoint.security_protocol is SecurityProtocol.SASL_SSL and name not in self._properties.properties:
            if value != _NO_CLIENT_AUTH:
                logger.warning(
                    "listener %s asks clients for no certificate: with SASL %s=%s does not count; set %s",
                    self._endpoint.listener_name, SSL_CLIENT_AUTH.name, value, name,
                )  # fmt: skip
            return _NO_CLIENT_AUTH
        return value
