"""Logs in to ZooKeeper by Kerberos: adapts a GSSAPI client to the port of the store (`ottla.controller.store.sasl_exchange`)."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.security.sasl.kerberos import KerberosClient
from ottla.broker.security.sasl.kerberos_library import initiating
from ottla.config.errors import ConfigError
from ottla.config.kerberos import KerberosIdentity
from ottla.controller.store.sasl_exchange import LoginFailed, SaslExchange
from ottla.protocol.sasl_login import CredentialUnavailable, ServerNotTrusted


def kerberos_login(identity: KerberosIdentity) -> Callable[[str], SaslExchange]:
    """A function that begins a login at a host. Raises ConfigError. The store's own thread waits for the KDC."""
    initiating(identity, "")  # to find what is missing
    return lambda host: _KerberosExchange(identity, host)


class _KerberosExchange:
    """Implements `SaslExchange`."""

    def __init__(self, identity: KerberosIdentity, host: str) -> None:
        self._identity = identity
        self._host = host
        self._client: KerberosClient | None = None

    def first(self) -> bytes:
        """See `SaslExchange`."""
        try:
            self._client = initiating(self._identity, self._host)()
            return self._client.first()
        except (ConfigError, CredentialUnavailable) as reason:
            raise LoginFailed(str(reason)) from None

    def answer(self, challenge: bytes) -> bytes | None:
        """See `SaslExchange`."""
        assert self._client is not None, "first comes first"
        try:
            return self._client.answer(challenge)
        except ServerNotTrusted as reason:
            raise LoginFailed(str(reason)) from None
