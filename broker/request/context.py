"""Tells a handler who asks what: the header of a request, the connection it came by, and the services a handler may delegate to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from broker.security.access import CLUSTER_NAME

if TYPE_CHECKING:
    from broker.network.request_channel import Completion
    from broker.request.services import Services
    from broker.request.turns import Steps
    from broker.security.access import Access
    from broker.security.authorizer import Operation, ResourceType
    from broker.security.client import Client
    from protocol.schema.message import Message


class Asker(Protocol):
    """What handlers may know of the connection by which a request came."""

    @property
    def client(self) -> Client:
        """The client."""

    @property
    def access(self) -> Access:
        """What the client may do."""

    @property
    def offend(self) -> Callable[[str], None]:
        """Says in the log, but not too often, why the connection is closed that a handler answers with CLOSE."""


class RequestContext:
    """Given to every handler."""

    __slots__ = (
        "_encode",
        "_encode_steps",
        "access",
        "api_key",
        "api_version",
        "broker",
        "client",
        "client_id",
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
        connection: Asker,
        broker: Services,
        encode: Callable[[int, Message], Completion],
        encode_steps: Callable[[int, Message], Steps[Completion]] | None = None,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.client = connection.client
        self.access = connection.access
        self.offend = connection.offend
        self.broker = broker
        self._encode = encode
        self.is_large = False
        """Whether the request is so large that it is better handled in steps."""
        self._encode_steps = encode_steps

    def encode(self, response: Message) -> Completion:
        """The response as it goes to the network: what a handler that answered with a Pending completes it with."""
        return self._encode(self.correlation_id, response)

    def encode_steps(self, response: Message) -> Steps[Completion]:
        """The same in steps, for a response that takes long."""
        if self._encode_steps is not None:
            return (yield from self._encode_steps(self.correlation_id, response))
        return self._encode(self.correlation_id, response)

    def is_authorized(self, operation: Operation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may do `operation` on the named resource; the name of the cluster is always the same."""
        return self.access.may(operation, resource, name)
