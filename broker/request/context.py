"""Gives a handler the context of its request: the header, the connection, the services to which it may delegate, the form of its answer.

A handler that waits for the callback of a coordinator returns a `DelayedAnswer`. A coordinator often calls back before its method returns;
the handler then returns the response itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, final

from ottla.broker.network.request_channel import CLOSE, Answer, Completion, Pending
from ottla.broker.quotas.quota_type import REQUEST
from ottla.broker.request.large_requests import free
from ottla.broker.security.access import CLUSTER_NAME
from ottla.pauses import discard, in_slices, pause
from ottla.protocol.acls import Operation
from ottla.protocol.schema.message import Message

if TYPE_CHECKING:
    from ottla.broker.quotas.token_bucket import MutationQuota
    from ottla.broker.request.services import Services
    from ottla.broker.security.access import Access
    from ottla.broker.security.client import Client
    from ottla.protocol.acls import ResourceType


logger = logging.getLogger(__name__)

CORRELATION_ID = Struct(">i")
_FLEXIBLE_RESPONSE_HEADER = Struct(">ib")


class Asker(Protocol):
    """The part of a connection that handlers may use."""

    @property
    def client(self) -> Client:
        """The client of the connection."""

    @property
    def access(self) -> Access:
        """Decides which operations the client may perform."""

    def throttle(self, quota: int, amount: int) -> int:
        """Count an amount, and the time of the request, against quotas of the client; returns the throttle time, ms."""

    def throttle_mutations(self, quota: MutationQuota) -> int:
        """The same for the partitions that the request has created and deleted."""

    def exempt(self) -> None:
        """Have the request not count towards the client's request quota."""

    def mutation_quota(self, *, is_strict: bool) -> MutationQuota:
        """The quota for partitions that the request creates and deletes."""

    @property
    def offend(self) -> Callable[[str], None]:
        """Logs, at a limited rate, the reason why a handler closes the connection with CLOSE."""


_Items = TypeVar("_Items", bound="list[Any] | dict[Any, Any] | Message")


@final
class RequestContext:
    """The context of one request; every handler gets one."""

    __slots__ = (
        "_encode",
        "_encode_in_slices",
        "_has_throttle_time",
        "_is_exempt",
        "_mutations",
        "_scratches",
        "access",
        "api_key",
        "api_version",
        "broker",
        "client",
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
        connection: Asker,
        broker: Services,
        encode: Callable[[int, Message], Completion],
        encode_in_slices: Callable[[int, Message], Coroutine[Any, Any, Completion]] | None = None,
        is_exempt: bool = False,
        has_throttle_time: bool = False,
    ) -> None:
        """`is_exempt`: whether the request has no quota for its time, if the client may send it. `has_throttle_time`: whether the response
        has a `throttle_time_ms`."""
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
        """Whether the request is large."""
        self._encode_in_slices = encode_in_slices
        self.connection = connection
        self._is_exempt = is_exempt
        self._has_throttle_time = has_throttle_time
        self._mutations: MutationQuota | None = None
        self._scratches: list[Any] = []

    def scratch(self, items: _Items) -> _Items:
        """A message, list or dict that is needed until the answer. That of a large request is emptied then, with pauses."""
        self._scratches.append(items)
        return items

    async def discard_scratches(self) -> None:
        """Empty all of them."""
        while self._scratches:
            items = self._scratches.pop()
            await (free(items) if isinstance(items, Message) else discard(items))
            await pause()

    def encode(self, response: Message) -> Completion:
        """The response in the form that the network sends; a handler completes its Pending with it."""
        self._say_throttle_time(response)
        return self._encode(self.correlation_id, response)

    async def encode_in_slices(self, response: Message) -> Completion:
        """Like `encode`. The response to a large request, or one that took several slices, is encoded with pauses."""
        if self._encode_in_slices is None or not (self.is_large or self.broker.running.has_waited):
            return self.encode(response)
        self._say_throttle_time(response)
        return await self._encode_in_slices(self.correlation_id, response)

    def _say_throttle_time(self, response: Any) -> None:
        if self._is_exempt:
            self.connection.exempt()
            return
        mutations = self._mutations
        if mutations is None:
            time_ms = self.connection.throttle(REQUEST, 0)
        else:
            time_ms = self.connection.throttle_mutations(mutations)
        if self._has_throttle_time:
            response.throttle_time_ms = time_ms

    def mutation_quota(self, *, strict_since: int) -> MutationQuota:
        """The client's quota for the partitions that this request creates and deletes (KIP-599). The answer has the throttle time.

        Versions before `strict_since` are served although the quota is exhausted.
        """
        mutations = self._mutations = self.connection.mutation_quota(is_strict=self.api_version >= strict_since)
        return mutations

    def is_authorized(self, operation: Operation, resource: ResourceType, name: str = CLUSTER_NAME, *, log_if_denied: bool = True) -> bool:
        """Whether the client may do `operation` on the named resource. `name` is optional for the cluster, which has only one name.

        `log_if_denied`: see `Access.may`.
        """
        is_allowed = self.access.may(operation, resource, name, log_if_denied)
        if not is_allowed and operation is Operation.CLUSTER_ACTION:
            self._is_exempt = False  # a client that is no broker has a quota for requests between brokers, too
        return is_allowed


@final
class DelayedAnswer:
    """Turns the callback of a coordinator into the answer of a handler.

    A handler passes `complete` to the coordinator, then returns `answer()` to the dispatcher.
    """

    __slots__ = ("_context", "_pending", "_response")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._response: Message | Answer | None = None
        self._pending: Pending | None = None

    def complete(self, response: Message) -> None:
        """Complete with a response."""
        if self._pending is None:
            self._response = response
        else:
            self._pending.complete(self._context.encode(response))

    def complete_by(self, response: Coroutine[Any, Any, Message]) -> None:
        """Complete with the response of a coroutine, whose first slice runs at once. After a bug of the broker the connection is closed."""
        answer = self._context.broker.running.begin(self._encoded(response), self._pending)
        if self._pending is None:
            self._response = answer

    async def _encoded(self, response: Coroutine[Any, Any, Message]) -> Completion:
        context = self._context
        message = context.scratch(await response)
        answer = await context.encode_in_slices(message)
        if context.is_large:
            await context.discard_scratches()
        return answer

    def complete_encoded(self, answer: Completion) -> None:
        """Complete with a response that is encoded already."""
        if self._pending is None:
            self._response = answer
        else:
            self._pending.complete(answer)

    def answer(self) -> Message | Answer:
        """The response if it is complete by now, otherwise a Pending for it."""
        if self._response is not None:
            return self._response
        self._pending = Pending()
        return self._pending


def encoder(response_class: type[Message], version: int, *, header_is_flexible: bool) -> Callable[[int, Message], Completion]:
    """A function of correlation id and response that returns header and body for the network.

    A response that cannot be written is a fault of its handler. It closes the connection, and disturbs no other request, such as the one
    whose progress completed the response.
    """
    header = _FLEXIBLE_RESPONSE_HEADER.pack if header_is_flexible else CORRELATION_ID.pack
    no_tagged_fields = (0,) if header_is_flexible else ()
    body = response_class.encoder(version)

    def encode(correlation_id: int, response: Message) -> Completion:
        try:
            return header(correlation_id, *no_tagged_fields) + body(response)
        except Exception:
            logger.exception("a %s cannot be written in version %d", type(response).__name__, version)
            return CLOSE

    return encode


def slice_encoder(version: int, *, header_is_flexible: bool) -> Callable[[int, Message], Coroutine[Any, Any, Completion]]:
    """Like `encoder`, with pauses, for large responses."""
    header = _FLEXIBLE_RESPONSE_HEADER.pack if header_is_flexible else CORRELATION_ID.pack
    no_tagged_fields = (0,) if header_is_flexible else ()

    async def encode_in_slices(correlation_id: int, response: Message) -> Completion:
        try:
            parts = await in_slices(response.encode_steps(version))
        except Exception:
            logger.exception("a %s cannot be written in version %d", type(response).__name__, version)
            return CLOSE
        return [header(correlation_id, *no_tagged_fields), *parts]

    return encode_in_slices
