"""Prepares the security of this broker's listeners, and of its connections to listeners of other brokers.

`ottla.broker.server` makes one `ListenerSecurity` per broker. Certificates are read before anything is bound, so that a wrong one ends the
start.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.broker.configuration.scram_credentials import ScramCredentials
from ottla.broker.network.authentication_counts import AuthenticationCounts
from ottla.broker.security.client_security import InterBrokerSecurity
from ottla.broker.security.sasl.key_sets import KeySets
from ottla.broker.security.sasl.offers import Credentials, check_listeners, offer_of
from ottla.broker.serving.authentication import ListenerAuthentication
from ottla.broker.serving.dispatch import Dispatcher
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.listeners import EndPoint, SecurityProtocol, check_principal_builder
from ottla.config.sasl import accepts_unsecured_tokens, ignored_jaas_key, offers_scram, sasl_listener
from ottla.controller.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.request.services import Services
    from ottla.broker.security.tls.listener import ListenerTls
    from ottla.controller.store.metadata_store import MetadataStore
    from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)


class ListenerSecurity:
    """See the module. Certificates and logins are read once for each listener."""

    def __init__(self, config: BrokerConfig, clock: Clock, random_bytes: Callable[[int], bytes], clock_ns: Callable[[], int]) -> None:
        self._config = config
        self._clock = clock
        self._random_bytes = random_bytes
        self._clock_ns = clock_ns
        self._tls: dict[tuple[str, SecurityProtocol], ListenerTls] = {}
        """By the listener's name and protocol, as long as neither its configuration nor its files change."""
        self._of_peers: dict[str, InterBrokerSecurity] = {}

    # -- connections to other brokers ------------------------------------------------------------------------------------

    def of_peers(self, listener_name: str) -> InterBrokerSecurity:
        """The security of connections to a listener of other brokers."""
        found = self._of_peers.get(listener_name)
        if found is None:
            found = InterBrokerSecurity(self._config, listener_name, self._random_bytes, self._clock.now_ms)
            self._of_peers[listener_name] = found
        return found

    def _between_brokers(self) -> list[InterBrokerSecurity]:
        listeners = self._config.listeners
        names = (listeners.inter_broker_listener_name, listeners.control_plane_listener_name)
        return [self.of_peers(name) for name in names if name is not None]

    # -- the configuration -----------------------------------------------------------------------------------------------

    def problem(self) -> ConfigError | None:
        """The first problem with principals, logins, keys and certificates, by the configuration as it is known now."""
        try:
            for endpoint in self._config.listeners.listeners:
                check_principal_builder(self._config.current, endpoint.listener_name)
            check_listeners(self._config)
            for security in self._between_brokers():
                if security.protocol.uses_sasl:
                    security.begin("")
            for endpoint in self._config.listeners.listeners:
                if endpoint.security_protocol.uses_tls:
                    self.tls_of(endpoint)
            for security in self._between_brokers():
                if security.protocol.uses_tls:
                    security.context()
        except ConfigError as problem:
            return problem
        return None

    def tls_of(self, endpoint: EndPoint) -> ListenerTls:
        """Keys and certificates of a listener. Raises ConfigError."""
        # Only brokers with such a listener load OpenSSL's part of Python's library.
        from ottla.broker.security.tls.listener import check_peers, source_of, tls_of

        properties, name = self._config.current, endpoint.listener_name
        found = self._tls.get((name, endpoint.security_protocol))
        if found is None or found.source != source_of(properties, name):
            found = tls_of(properties, endpoint, between_brokers=name == self._config.listeners.inter_broker_listener_name)
            check_peers(name, found)
            self._tls[name, endpoint.security_protocol] = found
        return found

    # -- clients ---------------------------------------------------------------------------------------------------------

    async def prepare(self, scram: ScramCredentials, store: MetadataStore, endpoint: EndPoint) -> None:
        """Check a listener before it is added to a running broker, and read what it needs from the metadata store. Raises ConfigError."""
        check_principal_builder(self._config.current, endpoint.listener_name)
        if endpoint.security_protocol.uses_sasl and offers_scram(sasl_listener(self._config.current, endpoint.listener_name)):
            try:
                await scram.load_secret(store)
            except StoreError as error:
                logger.warning(
                    "the answers of listener %s reveal which SCRAM users exist, because the secret of the cluster cannot be read: %s; "
                    "remove the listener and add it again once the metadata store answers",
                    endpoint.listener_name, error,
                )  # fmt: skip

    def authentication(
        self,
        services: Services,
        scram: ScramCredentials,
        key_sets: KeySets,
        dispatcher: Dispatcher,
        endpoint: EndPoint,
        counts: AuthenticationCounts,
    ) -> ListenerAuthentication:
        """How clients of a SASL listener authenticate. Raises ConfigError."""
        config = self._config
        listener = sasl_listener(config.current, endpoint.listener_name)
        if accepts_unsecured_tokens(listener):
            logger.warning(
                "listener %s accepts unsecured tokens by OAUTHBEARER, which anyone can make; set sasl.server.callback.handler.class for it",
                endpoint.listener_name,
            )
        if ignored := ignored_jaas_key(config.current, endpoint.listener_name, listener.mechanisms):
            logger.warning(
                "listener %s ignores %s: the key of a broker needs the mechanism, too, listener.name.%s.MECHANISM.sasl.jaas.config",
                endpoint.listener_name, ignored, endpoint.listener_name.lower(),
            )  # fmt: skip
        tokens = services.administration.delegation_tokens
        credentials = Credentials(
            scram_credential_of=scram.credential_of,
            token_credential_of=(lambda mechanism, token_id: None) if tokens is None else tokens.credential_of,
            signed_token_validator=key_sets.validator,
            prepare_token=(lambda mechanism, token_id: None) if tokens is None else tokens.preparation,
            random_bytes=self._random_bytes,
            now_ms=self._clock.now_ms,
            unknown_key=scram.unknown_key,
            usual_iterations=scram.usual_iterations,
        )
        return ListenerAuthentication(
            endpoint.listener_name,
            offer_of(listener, credentials),
            listener.max_receive_size,
            config,
            dispatcher,
            self._clock_ns,
            self._clock.now_ms,
            counts,
        )
