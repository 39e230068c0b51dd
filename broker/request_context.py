"""Who asks what: the header of a request, whose connection it came by, and the services a handler may delegate to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.network.connection import ConnectionInfo
    from broker.services import Services


class RequestContext:
    """Given to every handler. `connection` carries connection_id, client_host, listener_name, security_protocol and principal."""

    __slots__ = ("api_key", "api_version", "broker", "client_id", "connection", "correlation_id")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        connection: ConnectionInfo,
        broker: Services,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection = connection
        self.broker = broker
