"""Serves requests that are decoded to messages.

The dispatcher hands over the requests of every API that has no handler of frames. A handler is a function or a coroutine, and returns a
message or an `Answer`. `RunningRequests` runs coroutines. A request of LARGE_BYTES waits for its turn, and is read and answered with
pauses. A request of a broker never waits for others, and may have any number of elements. The right of the sender to act as a broker is
checked before the request is read. An unexpected error becomes UNKNOWN_SERVER_ERROR in the answer, if the answer has a field for it, and a
stack trace in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.network.buffer_supplier import is_reused
from ottla.broker.network.request_channel import CLOSE, Answer, Completion, Pending
from ottla.broker.request.context import RequestContext
from ottla.broker.request.large_requests import LARGE_BYTES, free
from ottla.broker.request.malformed import MALFORMED, name_of, refuse
from ottla.broker.request.running import RunningRequests, settle
from ottla.broker.request.services import Services
from ottla.broker.serving.oversized import OversizedRequests
from ottla.coordination.error_map import error_code, is_expected
from ottla.pauses import COROUTINES, in_slices
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.wire import ANY_ELEMENTS, MAX_ELEMENTS

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.broker.serving.route import Route

logger = logging.getLogger(__name__)


class MessageRequests:
    """See the module."""

    __slots__ = ("_oversized", "_running", "_services", "large_bytes", "max_elements")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._oversized = OversizedRequests(services)
        self._running: RunningRequests = services.running
        self.large_bytes = LARGE_BYTES
        """Smallest request that waits for its turn, bytes."""
        self.max_elements = MAX_ELEMENTS
        """The most elements in a request of a client."""

    def handle(self, frame: memoryview, offset: int, correlation_id: int, route: Route, connection: Connection) -> Answer:
        """Answers one request, whose body begins at `offset`."""
        if len(frame) >= self.large_bytes:
            return self._wait(frame, offset, correlation_id, route, connection)
        try:
            request, _ = route.request_class.decode(frame, route.version, offset)
        except MALFORMED as malformed:
            return refuse(name_of(frame), connection, malformed)
        context = self._context(route, correlation_id, connection.client.client_id, connection)
        try:
            response: Any = route.handler(request, context)
        except Exception as error:
            return self._unexpected(route, context, error)
        if isinstance(response, Message):
            return context.encode(response)
        if type(response) in COROUTINES:
            return self._running.begin(self._answer(response, route, context))
        answer: Answer = response
        return answer

    def _wait(self, frame: memoryview, offset: int, correlation_id: int, route: Route, connection: Connection) -> Answer:
        """Lets a large request wait for its turn, or refuses it."""
        if refusal := self._oversized.error_of(route.api_key, len(frame), connection):
            return self._context(route, correlation_id, None, connection).encode(route.response_class(error_code=refusal))
        # Later requests overwrite the receive buffer and the client's id.
        kept, client_id = bytes(frame) if is_reused(frame) else frame, connection.client.client_id
        is_of_broker = route.is_between_brokers and connection.access.acts_for_cluster()
        pending = Pending(in_turns=True, waiting_bytes=0 if is_of_broker else len(frame))
        most = ANY_ELEMENTS if is_of_broker else self.max_elements
        work = self._read(kept, offset, client_id, correlation_id, route, connection, pending, most)
        if is_of_broker:
            self._running.begin(work, pending)
        else:
            self._running.large.wait(work, pending, needs_room=route.waits_for_store)
        return pending

    async def _read(
        self,
        frame: bytes | memoryview,
        offset: int,
        client_id: str | None,
        correlation_id: int,
        route: Route,
        connection: Connection,
        pending: Pending,
        most_elements: int,
    ) -> Answer:
        """Decodes, handles and answers a large request with pauses."""
        try:
            request, _ = await in_slices(route.request_class.decode_steps(frame, route.version, offset, most_elements))
        except MALFORMED as malformed:
            return refuse(name_of(memoryview(frame)), connection, malformed)
        del frame
        context = self._context(route, correlation_id, client_id, connection)
        context.is_large = True
        try:
            response = route.handler(request, context)
            is_in_slices = type(response) in COROUTINES
            if is_in_slices:
                response = await response
        except Exception as error:
            return self._unexpected(route, context, error)
        answer = response
        if isinstance(response, Message):
            answer = await context.encode_in_slices(response)
        settle(pending, answer)
        if is_in_slices and pending.completed and not route.waits_for_store:
            await free(request)
            if isinstance(response, Message):
                await free(response)
        return pending

    async def _answer(self, coroutine: Coroutine[Any, Any, Message | Answer], route: Route, context: RequestContext) -> Answer:
        """The answer of a handler that is a coroutine."""
        try:
            response = await coroutine
        except Exception as error:
            return self._unexpected(route, context, error)
        if not isinstance(response, Message):
            return response
        return await context.encode_in_slices(response)

    def _context(self, route: Route, correlation_id: int, client_id: str | None, connection: Connection) -> RequestContext:
        return RequestContext(
            route.api_key,
            route.version,
            correlation_id,
            client_id,
            connection,
            self._services,
            route.encode,
            route.encode_in_slices,
            route.is_exempt,
            route.has_throttle_time,
        )

    def _unexpected(self, route: Route, context: RequestContext, error: Exception) -> Completion:
        """Answers a request whose handler raised."""
        code = error_code(error)
        if code == ErrorCode.UNKNOWN_SERVER_ERROR:
            expected = is_expected(error)
            logger.error(
                "%s v%d of %s (client id %s) failed%s",
                ApiKey(context.api_key).name, context.api_version, context.client.connection_id, context.client_id,
                f": {type(error).__name__}: {error}" if expected else "",
                exc_info=None if expected else error,
            )  # fmt: skip
        if route.has_error_code:
            return context.encode(route.response_class(error_code=code))
        return CLOSE

    def on_unexpected(self, route: Route, correlation_id: int, connection: Connection, error: Exception) -> Completion:
        """Answers a request whose handler of frames raised."""
        return self._unexpected(route, self._context(route, correlation_id, connection.client.client_id, connection), error)
