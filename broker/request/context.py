"""Who asks what: the header of a request, whose connection it came by, and the services a handler may delegate to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.network.request_channel import Completion, ConnectionInfo
    from broker.request.services import Services
    from broker.request.turns import Steps
    from broker.security.authorizer import Operation, ResourceType
    from protocol.schema.message import Message


class RequestContext:
    """Given to every handler. `connection` carries connection_id, client_host, listener_name, security_protocol and principal."""

    __slots__ = (
        "_encode",
        "_encode_steps",
        "api_key",
        "api_version",
        "broker",
        "client_id",
        "connection",
        "correlation_id",
        "is_large",
        "offend",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        connection: ConnectionInfo,
        broker: Services,
        encode: Callable[[int, Message], Completion],
        offend: Callable[[str], None],
        encode_steps: Callable[[int, Message], Steps[Completion]] | None = None,
    ) -> None:
        """`offend` says in the log, but not too often, why the connection is closed that a handler answers with CLOSE."""
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection = connection
        self.broker = broker
        self.offend = offend
        self._encode = encode
        self.is_large = False
        """Whether the request is so large that it is better handled in steps."""
        self._encode_steps = encode_steps

    @property
    def info(self) -> ConnectionInfo:
        """The same, as a connection calls it."""
        return self.connection

    def encode(self, response: Message) -> Completion:
        """The response as it goes to the network: what a handler that answered with a Pending completes it with."""
        return self._encode(self.correlation_id, response)

    def encode_steps(self, response: Message) -> Steps[Completion]:
        """The same in steps, for a response that takes long."""
        if self._encode_steps is not None:
            return (yield from self._encode_steps(self.correlation_id, response))
        return self._encode(self.correlation_id, response)

    def is_authorized(self, operation: Operation, resource: ResourceType, name: str = "kafka-cluster") -> bool:
        """Whether the client may do `operation` on the named resource; the name of the cluster is always the same."""
        return self.broker.authorizer.is_authorized(str(self.connection.principal), self.connection.client_host, operation, resource, name)
