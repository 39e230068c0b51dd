"""Gives a handler the context of its request: the header, the connection, and the services to which it may delegate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from broker.network.throttle import QuotaType
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
    """The part of a connection that handlers may use."""

    @property
    def client(self) -> Client:
        """The client of the connection."""

    @property
    def access(self) -> Access:
        """Decides which operations the client may perform."""

    @property
    def throttle(self) -> Callable[[QuotaType, int], int]:
        """Counts an amount against a quota of the client; returns the throttle time, ms."""

    @property
    def offend(self) -> Callable[[str], None]:
        """Logs, at a limited rate, the reason why a handler closes the connection with CLOSE."""


class RequestContext:
    """The context of one request; every handler gets one."""

    __slots__ = (
        "_encode",
        "_encode_steps",
        "_is_throttled",
        "access",
        "api_key",
        "api_version",
        "broker",
        "client",
        "client_id",
        "correlation_id",
        "is_large",
        "offend",
        "throttle",
        "work_ns",
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
        *,
        is_throttled: bool = False,
    ) -> None:
        """`is_throttled`: whether the response has a `throttle_time_ms`."""
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
        """Whether the request is large enough to be handled in steps."""
        self._encode_steps = encode_steps
        self.throttle = connection.throttle
        self._is_throttled = is_throttled
        self.work_ns = 0
        """The handler's processing time, ns; 0 unless a quota of the client counts it."""

    def encode(self, response: Message) -> Completion:
        """The response in the form that the network sends; a handler completes its Pending with it."""
        self._say_throttle_time(response)
        return self._encode(self.correlation_id, response)

    def encode_steps(self, response: Message) -> Steps[Completion]:
        """Like `encode`, in steps, for a large response."""
        if self._encode_steps is None:
            return self.encode(response)
        self._say_throttle_time(response)
        return (yield from self._encode_steps(self.correlation_id, response))

    def _say_throttle_time(self, response: Any) -> None:
        if self._is_throttled:
            response.throttle_time_ms = self.throttle(QuotaType.REQUEST, self.work_ns)

    def is_authorized(self, operation: Operation, resource: ResourceType, name: str = CLUSTER_NAME, *, log_if_denied: bool = True) -> bool:
        """Whether the client may do `operation` on the named resource. `name` is optional for the cluster, which has only one name.

        `log_if_denied`: see `Access.may`.
        """
        return self.access.may(operation, resource, name, log_if_denied)
