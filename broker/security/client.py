"""Describes the client of a connection: its address, its principal, its client id and its software.

`ottla.broker.network` makes one per connection. Handlers read it; authentication sets `principal`, ApiVersions the client's software.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from ottla.broker.security.acl_hosts import java_host
from ottla.broker.security.principals import ANONYMOUS, Principal

if TYPE_CHECKING:
    from ottla.broker.security.sasl.session import SaslSession


@final
class Client:
    """See the module."""

    __slots__ = (
        "api_key",
        "client_host",
        "client_id",
        "client_id_bytes",
        "client_port",
        "client_software_name",
        "client_software_version",
        "connection_id",
        "is_lost",
        "java_host",
        "listener_name",
        "on_lost",
        "principal",
        "sasl",
        "security_protocol",
    )

    def __init__(
        self,
        connection_id: str,
        client_host: str,
        client_port: int,
        listener_name: str,
        security_protocol: str = "PLAINTEXT",
        principal: Principal = ANONYMOUS,
    ) -> None:
        self.connection_id = connection_id
        self.client_host = client_host
        self.java_host: str = java_host(client_host)
        """The address as ACLs and Apache Kafka's answers have it."""
        self.client_port = client_port
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.principal = principal
        self.client_software_name: str = "unknown"
        self.client_software_version: str = "unknown"
        self.sasl: SaslSession | None = None
        """The state of the client's authentication; None on a listener without SASL."""
        self.is_lost = False
        """Whether the connection is closed."""
        self.on_lost: Callable[[], None] | None = None
        """Called when the connection is closed; releases the state that is kept for the client between requests."""
        self.api_key = -1
        """The API of the request that is handled, or was handled last."""
        self.client_id_bytes: bytes | None = None
        self.client_id: str | None = None
        """The client id in the header of the latest request; None for a null one."""

    def identify(self, client_id: bytes | None) -> None:
        """Sets the client id from the header of a request. Clients repeat their id, so its text is kept while the bytes are equal."""
        if client_id != self.client_id_bytes:
            self.client_id_bytes = client_id
            self.client_id = None if client_id is None else client_id.decode("utf-8", "replace")
