"""Exchanges the keys and certificates of TLS listeners while the broker runs.

A change of `listener.name.NAME.ssl.*` takes effect for new connections; the others stay. Setting a path again has an effect, too, when its
file has changed. A change that cannot be used is refused before it is stored, by the rules of Apache Kafka's SslFactory: the certificate
keeps its names, and on the listener of other brokers those with the old and those with the new stores can connect to each other. Besides,
those with the new stores can connect to each other, since otherwise the next start would be refused.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.broker.security.tls.der import MalformedDer
from ottla.broker.security.tls.distinguished_names import alternative_names_of, subject_of
from ottla.config.errors import ConfigError
from ottla.config.keys.tls import SSL_ALLOW_DN_CHANGES, SSL_ALLOW_SAN_CHANGES

if TYPE_CHECKING:
    from ottla.broker.network.socket_server import SocketServer
    from ottla.broker.security.tls.listener import ListenerTls
    from ottla.config.broker import BrokerConfig
    from ottla.config.broker_properties import BrokerProperties
    from ottla.config.listeners import EndPoint

logger = logging.getLogger(__name__)


class CertificateRenewal:
    """Follows the configuration from `start` on."""

    def __init__(self, config: BrokerConfig, socket_server: SocketServer) -> None:
        self._config = config
        self._socket_server = socket_server

    def start(self) -> None:
        """Begin to follow changes."""
        self._config.on_check(self._check)
        self._config.on_update(self._renew)

    def _check(self, proposed: BrokerProperties) -> None:
        """Raises ConfigError when a listener could not use the proposed properties."""
        for acceptor in self._socket_server.acceptors:
            self._built(proposed, acceptor.endpoint, acceptor.tls)

    def _renew(self) -> None:
        for acceptor in self._socket_server.acceptors:
            endpoint = acceptor.endpoint
            try:
                built = self._built(self._config.current, endpoint, acceptor.tls)
            except ConfigError as error:
                logger.error("the certificates of a listener are not exchanged: %s", error)
                continue
            if built is not None:
                acceptor.tls = built
                logger.info("listener %s uses new keys and certificates", endpoint.listener_name)

    def _built(self, properties: BrokerProperties, endpoint: EndPoint, present: ListenerTls | None) -> ListenerTls | None:
        """The new TLS of a listener; None when it stays as it is. Raises ConfigError."""
        if present is None:
            return None
        from ottla.broker.security.tls.listener import source_of, tls_of

        if present.source == source_of(properties, endpoint.listener_name):
            return None
        name = endpoint.listener_name
        built = tls_of(properties, endpoint, between_brokers=present.peer_context is not None)
        allowed = properties.for_listener(name)
        try:
            old, new = subject_of(present.certificate), subject_of(built.certificate)
            lacks_names = not alternative_names_of(present.certificate) <= alternative_names_of(built.certificate)
        except MalformedDer as reason:  # OpenSSL reads more than is used here
            raise ConfigError(f"listener {name}: the names in the old and the new certificate cannot be compared: {reason}") from None
        if _comparable(old) != _comparable(new) and not allowed[SSL_ALLOW_DN_CHANGES]:
            raise ConfigError(
                f"listener {name}: the new certificate names {new}, the old one {old}; {SSL_ALLOW_DN_CHANGES.name} is not set"
            )
        if lacks_names and not allowed[SSL_ALLOW_SAN_CHANGES]:
            raise ConfigError(
                f"listener {name}: the new certificate lacks alternative names of the old one; {SSL_ALLOW_SAN_CHANGES.name} is not set"
            )
        if built.has_trust_store and not present.has_trust_store:
            raise ConfigError(f"listener {name}: it has no trust store, and none can be added while the broker runs")
        check_exchange(name, present, built)
        return built


def _comparable(name: str) -> str:
    """A distinguished name without the differences that Java does not see: case, and the number of blanks."""
    return " ".join(name.lower().split())


def check_exchange(name: str, old: ListenerTls, new: ListenerTls) -> None:
    """Raises ConfigError unless brokers with the old stores and brokers with the new ones can connect to each other, and new ones, too."""
    import ssl

    from ottla.broker.security.tls.listener import check_peers
    from ottla.broker.security.tls.trial import reason_of, shake_hands

    for server, client, which in (
        (old, new, ("new", "old")),
        (new, old, ("old", "new")),
    ):
        if client.peer_context is None:
            continue
        try:
            shake_hands(server.context, client.peer_context)
        except ssl.SSLError as error:
            raise ConfigError(
                f"listener {name}: a broker with the {which[0]} stores cannot connect to one with the {which[1]}: {reason_of(error)}"
            ) from None
    check_peers(name, new)
