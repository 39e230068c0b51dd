"""Turns a frame into an answer: reads the header, finds the route, calls the handler of frames or of messages.

The network code calls it with every complete frame. The rules are those of Apache Kafka:
* A header that cannot be read, an API that is not advertised, a version out of range, or a body that cannot be decoded closes the
  connection, with one line in the log.
* ApiVersions in an unknown version is answered in version 0 with UNSUPPORTED_VERSION, so that the client learns the supported versions
  (KIP-511).
* Bytes after the body are ignored.

A request of an API without a handler of frames is decoded to a message. Its handler is a function or a coroutine, and returns a message or
an `Answer`. `RunningRequests` runs coroutines. A request of LARGE_BYTES waits for its turn, and is read and answered with pauses. A request
of a broker never waits for others, and may have any number of elements. The right of the sender to act as a broker is checked before the
request is read. An unexpected error becomes UNKNOWN_SERVER_ERROR in the answer, if the answer has a field for it, and a stack trace in the
log.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, final

from ottla.broker.handlers.api_versions import unsupported_version_response
from ottla.broker.handlers.table import handlers_of
from ottla.broker.network.buffer_supplier import is_reused
from ottla.broker.network.handler import RequestHandler
from ottla.broker.network.request_channel import CLOSE, Answer, Completion, Pending
from ottla.broker.quotas.quota_type import REQUEST
from ottla.broker.request.context import CORRELATION_ID, RequestContext
from ottla.broker.request.large_requests import LARGE_BYTES
from ottla.broker.request.listed_apis import needs_of
from ottla.broker.request.malformed import MALFORMED, name_of, refuse
from ottla.broker.request.running import RunningRequests, settle
from ottla.broker.request.services import Services
from ottla.broker.security.client import Client
from ottla.broker.serving.oversized import OversizedRequests
from ottla.broker.serving.refused_protocols import RefusedProtocols
from ottla.broker.serving.route import BETWEEN_BROKERS, Route
from ottla.coordination.error_map import error_code, is_expected
from ottla.pauses import COROUTINES, in_slices
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors import fields
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api
from ottla.protocol.schema.wire import ANY_ELEMENTS, MAX_ELEMENTS, ProtocolError, skip_tagged_fields

if TYPE_CHECKING:
    from ottla.broker.metrics.request_metrics import RequestMetrics
    from ottla.broker.network.connection import Connection

logger = logging.getLogger(__name__)

PRODUCE: Final = int(ApiKey.PRODUCE)


@final
class Dispatcher(RequestHandler):
    """The handler of connections whose clients are authenticated."""

    __slots__ = ("_metrics", "_oversized", "_refused_protocols", "_running", "_services", "large_bytes", "max_elements", "routes")

    def __init__(self, services: Services, metrics: RequestMetrics | None = None) -> None:
        self._refused_protocols = RefusedProtocols(services.clock.monotonic)
        self._services = services
        self._metrics = metrics
        # (api key << 16 | version) -> Route, made for the first such request: start-up imports and compiles nothing unused.
        self.routes: dict[int, Route] = {}
        self._oversized = OversizedRequests(services)
        self._running: RunningRequests = services.running
        self.large_bytes = LARGE_BYTES
        """Smallest request that waits for its turn, bytes."""
        self.max_elements = MAX_ELEMENTS
        """The most elements in a request of a client."""
        services.listed.on_change(self._on_listed_change)

    def handle(self, frame: memoryview, connection: Connection) -> Answer:
        """Answer one request."""
        data: fields.View = frame
        try:
            kind, correlation_id, client_id_length = fields.read_request_header(data, 0)
            route = self.routes.get(kind)
            if route is None:
                route = self.route_of(kind >> 16, kind & 0xFFFF)  # a negative version becomes a high one; neither exists
                if route is None:
                    return self._unsupported(frame, kind >> 16, correlation_id, connection)
            offset = 10
            client: Client = connection.client
            client.api_key = kind >> 16
            if client_id_length < 0 or not route.has_client_id:
                client.identify(None)
                if not route.has_client_id:
                    offset = 8
            else:
                offset += client_id_length
                if offset > len(frame):
                    raise ProtocolError(f"client id of {client_id_length} bytes in a frame of {len(frame)}")
                if client.client_id_bytes is None or not fields.holds(data, 10, offset, client.client_id_bytes):
                    client.identify(fields.take(data, 10, offset))
            if route.flexible_request_header:
                offset = skip_tagged_fields(frame, offset) if fields.uint8(data, offset) else offset + 1
        except MALFORMED as malformed:
            return refuse(name_of(frame), connection, malformed)
        route.requests = count = route.requests + 1
        if count == route.sample_at and self._metrics is not None:
            return self._metrics.handle(self.handle, frame, connection, route)
        if route.frame_handler is None:
            return self._handle_message(frame, offset, correlation_id, route, connection)
        try:
            answer = route.frame_handler(frame, offset, route.version, correlation_id, connection, self._services)
        except ProtocolError as malformed:
            return refuse(name_of(frame), connection, malformed)
        except Exception as error:
            # The handler may have done part of its work already.
            context = self._context(route, correlation_id, connection.client.client_id, connection)
            return self._unexpected(route, context, error)
        if answer is None:
            return self._handle_message(frame, offset, correlation_id, route, connection)
        return answer

    def _handle_message(self, frame: memoryview, offset: int, correlation_id: int, route: Route, connection: Connection) -> Answer:
        """Answers a request that is decoded to a message; its body begins at `offset`."""
        if len(frame) >= self.large_bytes:
            return self._wait(frame, offset, correlation_id, route, connection)
        try:
            request, _ = route.decode(frame, offset)
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
        context.scratch(request)
        try:
            response = route.handler(request, context)
            if type(response) in COROUTINES:
                response = await response
        except Exception as error:
            return self._unexpected(route, context, error)
        answer = response
        if isinstance(response, Message):
            answer = await context.encode_in_slices(context.scratch(response))
        settle(pending, answer)
        if pending.completed:
            await context.discard_scratches()
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

    def is_urgent(self, view: memoryview, begin: int, end: int, connection: Connection) -> bool:
        """Whether the frame is a request between brokers or from the controller, and its sender may act as one of them."""
        return end - begin >= 2 and fields.int16(view, begin) in BETWEEN_BROKERS and connection.access.acts_for_cluster()

    def may_follow_appends(self, view: memoryview, begin: int, end: int) -> bool:
        """Whether the frame is another Produce."""
        return end - begin >= 2 and fields.int16(view, begin) == PRODUCE

    def route_of(self, api_key: int, version: int) -> Route | None:
        """The route of an API and version seen for the first time; None when it is not accepted."""
        if not self._services.listed.accepts(api_key, version):
            return None
        types = api(ApiKey(api_key))
        route = Route(types, version, *handlers_of(types.key))
        self.routes[api_key << 16 | version] = route
        if self._metrics is not None:
            self._metrics.watch(route)
        return route

    def _on_listed_change(self) -> None:
        """Drops the routes of versions that are not accepted any more."""
        for kind in [kind for kind in self.routes if not self._services.listed.accepts(kind >> 16, kind & 0xFFFF)]:
            del self.routes[kind]

    def _unsupported(self, frame: memoryview, api_key: int, correlation_id: int, connection: Connection) -> Answer:
        if api_key == ApiKey.API_VERSIONS:
            connection.throttle(REQUEST, 0)  # version 0 has no field for the throttle time
            supported = self._services.listed.versions[ApiKey.API_VERSIONS]
            return CORRELATION_ID.pack(correlation_id) + unsupported_version_response(supported).encode(0)
        needs = needs_of(api_key, fields.int16(frame, 2))
        if needs is None:
            connection.offend(f"{name_of(frame)} is not supported here")
        else:
            self._refused_protocols.report(connection.client, name_of(frame), needs)
        return CLOSE

    def error_answer(self, frame: memoryview, code: ErrorCode) -> Completion:
        """The answer with an error to a request that is not handled. CLOSE if there is none: the request cannot be read, or its answer has
        no error code."""
        try:
            kind, correlation_id, _ = fields.read_request_header(frame, 0)
        except MALFORMED:
            return CLOSE
        route = self.routes.get(kind) or self.route_of(kind >> 16, kind & 0xFFFF)
        if route is None or not route.has_error_code:
            return CLOSE
        return route.encode(correlation_id, route.response_class(error_code=code))

    async def drain(self) -> None:
        """Wait for the handlers that still run; the caller bounds the time."""
        await self._running.drain()

    async def close(self) -> None:
        """End the handlers that still run or wait."""
        await self._running.close()
