"""Defines what secures a client's connections to brokers: the protocol, the TLS context, the credential.

Peer connections of a broker and the library `ottla.client` take a `ClientSecurity`. They call it for every new connection, so that changed
certificates and passwords take effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    import ssl

    from ottla.protocol.sasl_login import SaslClient


class SecurityProtocol(Protocol):
    """A security protocol, such as SASL_SSL."""

    @property
    def name(self) -> str:
        """Kafka's name."""

    @property
    def uses_tls(self) -> bool:
        """Whether connections begin with a TLS handshake."""

    @property
    def uses_sasl(self) -> bool:
        """Whether clients authenticate by SASL before their first request."""


class ClientSecurity(Protocol):
    """See the module."""

    @property
    def protocol(self) -> SecurityProtocol:
        """The protocol of new connections."""

    def random_bytes(self, count: int, /) -> bytes:
        """The source of chance; called only if the protocol uses SASL."""

    def context(self) -> ssl.SSLContext:
        """The TLS context; called only if the protocol uses TLS. Raises an exception whose text is for the operator."""

    def begin(self, host: str) -> SaslClient:
        """A new SASL exchange with the server on a host; called only if the protocol uses SASL. Raises as `context` does."""


class _Unsecured(NamedTuple):
    name: str = "PLAINTEXT"
    uses_tls: bool = False
    uses_sasl: bool = False


class Plaintext:
    """No security."""

    protocol: Final = _Unsecured()

    def random_bytes(self, count: int, /) -> bytes:
        """See `ClientSecurity`."""
        raise NotImplementedError

    def context(self) -> ssl.SSLContext:
        """See `ClientSecurity`."""
        raise NotImplementedError

    def begin(self, host: str) -> SaslClient:
        """See `ClientSecurity`."""
        raise NotImplementedError


PLAINTEXT: Final = Plaintext()
