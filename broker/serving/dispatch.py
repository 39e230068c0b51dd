"""Turns a frame into an answer: reads the header, finds the route, calls the handler of frames or of messages.

The network code calls it with every complete frame. The rules are those of Apache Kafka:
* A header that cannot be read, an API that is not advertised, a version out of range, or a body that cannot be decoded closes the
  connection, with one line in the log.
* ApiVersions in an unknown version is answered in version 0 with UNSUPPORTED_VERSION, so that the client learns the supported versions
  (KIP-511).
* Bytes after the body are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.handlers.api_versions import unsupported_version_response
from ottla.broker.handlers.table import handlers_of
from ottla.broker.network.handler import RequestHandler
from ottla.broker.network.request_channel import CLOSE, Answer, Completion
from ottla.broker.quotas.quota_type import REQUEST
from ottla.broker.request.listed_apis import needs_of
from ottla.broker.request.malformed import MALFORMED, name_of, refuse
from ottla.broker.request.services import Services
from ottla.broker.security.client import Client
from ottla.broker.serving.message_requests import MessageRequests
from ottla.broker.serving.refused_protocols import RefusedProtocols
from ottla.broker.serving.route import BETWEEN_BROKERS, CORRELATION_ID, Route
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors import fields
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema.registry import api
from ottla.protocol.schema.wire import ProtocolError, skip_tagged_fields

if TYPE_CHECKING:
    from ottla.broker.metrics.request_metrics import RequestMetrics
    from ottla.broker.network.connection import Connection


PRODUCE: Final = int(ApiKey.PRODUCE)


class Dispatcher(RequestHandler):
    """The handler of connections whose clients are authenticated."""

    __slots__ = ("_metrics", "_refused_protocols", "_routes", "_services", "messages")

    def __init__(self, services: Services, metrics: RequestMetrics | None = None) -> None:
        self._refused_protocols = RefusedProtocols(services.clock.monotonic)
        self._services = services
        self._metrics = metrics
        # (api key << 16 | version) -> Route, made for the first such request: start-up imports and compiles nothing unused.
        self._routes: dict[int, Route] = {}
        self.messages = MessageRequests(services)
        services.listed.on_change = self._on_listed_change

    def handle(self, frame: memoryview, connection: Connection) -> Answer:
        """Answer one request."""
        data: fields.View = frame
        try:
            kind, correlation_id, client_id_length = fields.read_request_header(data, 0)
            route = self._routes.get(kind)
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
            return self.messages.handle(frame, offset, correlation_id, route, connection)
        try:
            answer = route.frame_handler(frame, offset, route.version, correlation_id, connection, self._services)
        except ProtocolError as malformed:
            return refuse(name_of(frame), connection, malformed)
        except Exception as error:
            # The handler may have done part of its work already.
            return self.messages.on_unexpected(route, correlation_id, connection, error)
        if answer is None:
            return self.messages.handle(frame, offset, correlation_id, route, connection)
        return answer

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
        self._routes[api_key << 16 | version] = route
        if self._metrics is not None:
            self._metrics.watch(route)
        return route

    def _on_listed_change(self) -> None:
        """Drops the routes of versions that are not accepted any more."""
        for kind in [kind for kind in self._routes if not self._services.listed.accepts(kind >> 16, kind & 0xFFFF)]:
            del self._routes[kind]

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
        route = self._routes.get(kind) or self.route_of(kind >> 16, kind & 0xFFFF)
        if route is None or not route.has_error_code:
            return CLOSE
        return route.encode(correlation_id, route.response_class(error_code=code))

    async def drain(self) -> None:
        """Wait for the handlers that still run; the caller bounds the time."""
        await self._services.running.drain()

    async def close(self) -> None:
        """End the handlers that still run or wait."""
        await self._services.running.close()
