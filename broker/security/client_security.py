"""Secures connections to brokers (`ottla.protocol.client_security`) by a broker's configuration, or by a client's properties."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.config.errors import ConfigError, ConfigValueError
from ottla.config.listeners import SecurityProtocol
from ottla.config.sasl import GSSAPI, OAUTHBEARER

if TYPE_CHECKING:
    import ssl

    from ottla.config.broker import BrokerConfig
    from ottla.config.client_properties import ClientProperties
    from ottla.protocol.sasl_login import SaslClient


logger = logging.getLogger(__name__)


class InterBrokerSecurity:
    """The security of connections to one listener of other brokers, by the configuration of this broker's listener of that name."""

    def __init__(self, config: BrokerConfig, listener_name: str, random_bytes: Callable[[int], bytes], now_ms: Callable[[], int]) -> None:
        """`listener_name` is the inter-broker listener or the control plane's, `now_ms` the time of day."""
        self.random_bytes = random_bytes
        self._config = config
        self._listener_name = listener_name
        self._now_ms = now_ms
        self._context: ssl.SSLContext | None = None
        self._source: object = None

    @property
    def protocol(self) -> SecurityProtocol:
        """See `ClientSecurity`."""
        return self._config.listeners.security_protocols[self._listener_name]

    def context(self) -> ssl.SSLContext:
        """See `ClientSecurity`. The context is made again when the configuration or a file has changed.

        If that fails, the earlier one stays: a file may be replaced in several steps, and other brokers have to be reached meanwhile.
        """
        from ottla.broker.security.tls.connecting import connecting_context
        from ottla.broker.security.tls.listener import source_of

        properties = self._config.current
        source = source_of(properties, self._listener_name)
        if self._context is None or source != self._source:
            try:
                self._context = connecting_context(properties.for_listener(self._listener_name), f"connections to {self._listener_name}")
            except ConfigError as reason:
                text = f"listener {self._listener_name}, between brokers: {reason}"
                if self._context is None:
                    raise ConfigError(text) from None
                logger.error("%s; new connections use the earlier keys and certificates", text)
            self._source = source
        return self._context

    def begin(self, host: str) -> SaslClient:
        """See `ClientSecurity`."""
        from ottla.broker.security.sasl.clients import SaslContext, sasl_client
        from ottla.config.sasl import inter_broker_login, inter_broker_login_setting

        properties, name = self._config.current, self._listener_name
        try:
            mechanism, module = inter_broker_login(properties, name)
            return sasl_client(mechanism, module, SaslContext(self.random_bytes, self._now_ms, host))()
        except ConfigError as reason:
            setting = "" if isinstance(reason, ConfigValueError) else f"{inter_broker_login_setting(properties, name)}: "
            raise ConfigError(f"this broker cannot log in at listener {name} of other brokers: {setting}{reason}") from None


class ConfiguredSecurity:
    """The security of a client by its own properties."""

    random_bytes: Final = staticmethod(os.urandom)

    def __init__(self, properties: ClientProperties) -> None:
        """Reads the files that the properties name. Raises ConfigError."""
        self.properties = properties
        self._context: ssl.SSLContext | None = None
        if self.protocol.uses_tls:
            self.context()
        if self.protocol.uses_sasl:
            self.begin("")  # to find what is missing

    @property
    def protocol(self) -> SecurityProtocol:
        """See `ClientSecurity`."""
        return self.properties.protocol

    def context(self) -> ssl.SSLContext:
        """See `ClientSecurity`."""
        from ottla.broker.security.tls.connecting import connecting_context

        if self._context is None:
            self._context = connecting_context(self.properties, "the client")
        return self._context

    def begin(self, host: str) -> SaslClient:
        """See `ClientSecurity`."""
        from ottla.broker.security.sasl.clients import SaslContext, sasl_client

        context = SaslContext(os.urandom, lambda: time.time_ns() // 1_000_000, host)
        return sasl_client(self.properties.mechanism, self.properties.login, context)()

    def librdkafka(self) -> dict[str, str]:
        """The same security for a client of librdkafka. Raises ConfigError for OAUTHBEARER, and for GSSAPI, which its wheels lack."""
        found = {"security.protocol": self.protocol.name}
        if self.protocol.uses_tls:
            from ottla.broker.security.tls.context import TlsConfig

            found |= TlsConfig(self.properties, "the client").in_pem()
            if not self.context().check_hostname:
                found["ssl.endpoint.identification.algorithm"] = "none"
        if self.protocol.uses_sasl:
            mechanism = self.properties.mechanism
            if mechanism in (GSSAPI, OAUTHBEARER):
                raise ConfigError(f"{mechanism} cannot be passed on to clients of librdkafka; use another mechanism")
            options = self.properties.login.options
            found |= {"sasl.mechanisms": mechanism, "sasl.username": options["username"], "sasl.password": options["password"]}
        return found
