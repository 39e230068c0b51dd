"""From a frame to an answer: header, version check, decode, handler, encode.

Called by the network floor with every complete frame. Rules, as Apache Kafka has them:
* a header that cannot be read, an api that is not advertised, a version out of its range, or a body that cannot be decoded closes the
  connection, with one line in the log; ApiVersions in a version we do not know is answered in version 0 with UNSUPPORTED_VERSION, so that
  the client learns what it may say (KIP-511);
* bytes after the body are ignored;
* a request of LARGE_BYTES is read, handled as far as its handler is a generator, and answered in steps (`broker.request.turns`), and so is
  whatever a generator has not done in its first slice; one between brokers waits for no other;
* an error nobody expected becomes UNKNOWN_SERVER_ERROR in the answer where it has a field for it, and a stack trace in the log.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import struct
from collections.abc import Coroutine
from struct import Struct
from types import GeneratorType
from typing import TYPE_CHECKING, Any, cast

from broker.handlers.api_versions import unsupported_version_response
from broker.handlers.table import SERVED, handlers_of
from broker.network.connection import Connection
from broker.network.request_channel import CLOSE, Answer, Completion, Pending, Several
from broker.request.context import RequestContext
from broker.request.error_map import error_code, is_expected
from broker.request.services import Services
from broker.request.turns import Steps, Unfinished, let_go
from broker.serving.route import CORRELATION_ID, Route
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.schema.message import Message
from protocol.schema.registry import api
from protocol.schema.wire import ProtocolError, skip_tagged_fields

if TYPE_CHECKING:
    from broker.metrics.request_metrics import RequestMetrics

logger = logging.getLogger(__name__)

_MALFORMED = (ProtocolError, IndexError, struct.error)
"""What decoders raise about bytes that are no such request."""

_unpack_header = Struct(">iih").unpack_from
"""The api key and the version as one number, by which routes are found; the correlation id; the length of the client id."""
_kind_at = Struct(">i").unpack_from
_TOGETHER = 16


class Dispatcher:
    """The one door from the network to the handlers."""

    __slots__ = ("_loop", "_metrics", "_routes", "_services", "_tasks", "turns")

    def __init__(self, services: Services, metrics: RequestMetrics | None = None) -> None:
        self._services = services
        self._metrics = metrics
        # (api key << 16 | version) -> Route, made when the first such request comes: start-up imports and compiles nothing in vain.
        self._routes: dict[int, Route] = {}
        self._tasks: dict[asyncio.Task[None], Pending] = {}
        self._loop = asyncio.get_running_loop()
        self.turns = services.turns

    def handle(self, frame: memoryview, connection: Connection) -> Answer:
        """Answer one request."""
        try:
            kind, correlation_id, client_id_length = _unpack_header(frame)
            route = self._routes.get(kind)
            if route is None:
                route = self._route(kind >> 16, kind & 0xFFFF)  # a version below 0 is a high one, then: there is neither
                if route is None:
                    return self._unsupported(frame, kind >> 16, correlation_id, connection)
            offset = 10 if client_id_length < 0 else 10 + client_id_length
            if offset > len(frame):
                raise ProtocolError(f"client id of {client_id_length} bytes in a frame of {len(frame)}")
            if route.flexible_request_header:
                if frame[offset]:
                    offset = skip_tagged_fields(frame, offset)
                else:
                    offset += 1
        except _MALFORMED as malformed:
            return _refuse(frame, connection, malformed)
        route.requests = count = route.requests + 1
        if count == route.sample_at and self._metrics is not None:
            return self._metrics.handle(self.handle, frame, connection, route)
        version = route.version
        frame_handler = route.frame_handler
        if frame_handler is not None:
            try:
                answer = frame_handler(frame, offset, version, correlation_id, connection, self._services)
            except ProtocolError as malformed:
                return _refuse(frame, connection, malformed)
            except Exception as error:
                # It may have done its work already: the ordinary way must not do it again.
                return self._unexpected(route, self._context(route, correlation_id, None, connection), error)
            if answer is not None:
                return answer
        if len(frame) >= route.large_bytes:
            return self._wait(frame, offset, client_id_length, correlation_id, route, connection)
        try:
            request = None if route.read is None else route.read(frame, offset, version)
            if route.read_steps:
                if isinstance(found := self.turns.first_slice(route.request_class.decode_steps(frame, version, offset)), Unfinished):
                    return self._wait(frame, offset, client_id_length, correlation_id, route, connection)
                request, _ = found
            elif request is None:
                request, _ = route.request_class.decode(frame, version, offset)
            client_id = None if client_id_length < 0 else str(frame[10 : 10 + client_id_length], "utf-8", "replace")
        except _MALFORMED as malformed:
            return _refuse(frame, connection, malformed)
        context = self._context(route, correlation_id, client_id, connection)
        try:
            response = route.handler(request, context)
        except Exception as error:
            return self._unexpected(route, context, error)
        if isinstance(response, Message):
            return route.encode(correlation_id, response)
        if type(response) is GeneratorType:
            try:
                response = self.turns.first_slice(steps := cast("Steps[Any]", response))
            except Exception as error:
                return self._unexpected(route, context, error)
            if isinstance(response, Message):
                return route.encode(correlation_id, response)
            if isinstance(response, Unfinished):
                pending = Pending(in_turns=True)
                self.turns.go_on(self._answer(steps, route, context, pending), pending)
                return pending
        if inspect.iscoroutine(response):
            pending = Pending(occupies_slot=True)
            self._run(response, route, context, pending)
            return pending
        return cast("Answer", response)

    def handle_several(self, view: memoryview, position: int, end: int, connection: Connection) -> Several | None:
        """Answer the first requests of those that stand behind one another from `position` on, with their lengths.

        None: nothing was done, `handle` takes each. An error nobody expected closes the connection: who knows what of them was done.
        """
        route = self._routes.get(_kind_at(view, position + 4)[0])
        if route is None or (handler := route.several_handler) is None or route.requests < route.sample_at <= route.requests + _TOGETHER:
            return None  # `handle` makes the route, and measures
        done = handler(view, position, end, route.version, connection, self._services)
        if done is not None:
            route.requests += done[1]
        return done

    def _wait(
        self, frame: memoryview, offset: int, client_id_length: int, correlation_id: int, route: Route, connection: Connection
    ) -> Pending:
        """A large request waits for its turn."""
        if route.is_between_brokers:
            pending = Pending(in_turns=True)
            self.turns.go_on(self._read(bytes(frame), offset, client_id_length, correlation_id, route, connection, pending), pending)
            return pending
        pending = Pending(in_turns=True, waiting_bytes=len(frame))
        # The receive buffer is used again meanwhile.
        self.turns.wait(self._read(bytes(frame), offset, client_id_length, correlation_id, route, connection, pending), pending)
        return pending

    def _read(
        self,
        frame: bytes,
        offset: int,
        client_id_length: int,
        correlation_id: int,
        route: Route,
        connection: Connection,
        pending: Pending,
    ) -> Steps[asyncio.Task[None] | None]:
        """A large request, from its first byte to its answer."""
        try:
            request, _ = yield from route.request_class.decode_steps(frame, route.version, offset)
            client_id = None if client_id_length < 0 else str(frame[10 : 10 + client_id_length], "utf-8", "replace")
        except _MALFORMED as malformed:
            pending.complete(_refuse(memoryview(frame), connection, malformed))
            return None
        del frame
        context = self._context(route, correlation_id, client_id, connection)
        context.is_large = True
        try:
            response = route.handler(request, context)
        except Exception as error:
            pending.complete(self._unexpected(route, context, error))
            return None
        is_in_steps = type(response) is GeneratorType
        task = yield from self._answer(response, route, context, pending)
        if is_in_steps and pending.completed:
            yield from let_go(request)
        return task

    def _answer(self, response: Any, route: Route, context: RequestContext, pending: Pending) -> Steps[asyncio.Task[None] | None]:
        """Whatever a handler returned, made the answer to a request that is done in steps; the task that does it, if it needs one."""
        is_in_steps = type(response) is GeneratorType
        try:
            if is_in_steps:
                response = yield from response
        except Exception as error:
            pending.complete(self._unexpected(route, context, error))
            return None
        if inspect.iscoroutine(response):
            return self._run(response, route, context, pending)
        if isinstance(response, Message):
            pending.complete((yield from context.encode_steps(response)))
            if is_in_steps:
                yield from let_go(response)
        elif isinstance(response, Pending):
            _follow(response, pending)
        else:
            pending.complete(response)
        return None

    def _context(self, route: Route, correlation_id: int, client_id: str | None, connection: Connection) -> RequestContext:
        return RequestContext(
            route.api_key,
            route.version,
            correlation_id,
            client_id,
            connection,
            self._services,
            route.encode,
            route.encode_steps,
        )

    def _route(self, api_key: int, version: int) -> Route | None:
        """The route of a request seen for the first time; None when it is not advertised."""
        if api_key not in SERVED:
            return None
        types = api(ApiKey(api_key))
        if not types.versions.cover(version):
            return None
        route = Route(types, version, *handlers_of(types.key))
        self._routes[api_key << 16 | version] = route
        if self._metrics is not None:
            self._metrics.watch(route)
        return route

    def _unsupported(self, frame: memoryview, api_key: int, correlation_id: int, connection: Connection) -> Answer:
        if api_key == ApiKey.API_VERSIONS:
            return CORRELATION_ID.pack(correlation_id) + unsupported_version_response().encode(0)
        connection.offend(f"{name_of(frame)} is not supported here")
        return CLOSE

    def _run(self, coroutine: Coroutine[Any, Any, Any], route: Route, context: RequestContext, pending: Pending) -> asyncio.Task[None]:
        """Admin work, which waits for the store or a thread: a task that holds a handler slot, or the place of large requests."""
        task = self._loop.create_task(self._complete(coroutine, route, context, pending))
        self._tasks[task] = pending
        task.add_done_callback(self._tasks.pop)
        return task

    def on_wait(self) -> None:
        """The handler whose task this is merely waits from now on: it leaves its slot, and ends when its client does.

        Otherwise a few requests for what never comes, each with a timeout of weeks, would stand in everybody's way.
        """
        task = asyncio.current_task()
        pending = None if task is None else self._tasks.get(task)
        if task is not None and pending is not None:
            pending.leave_slot()
            pending.in_turns = False
            self.turns.leave(pending)

            def end() -> None:
                task.cancel()

            pending.on_closed = end

    async def _complete(self, coroutine: Coroutine[Any, Any, Any], route: Route, context: RequestContext, pending: Pending) -> None:
        try:
            response = await coroutine
            if type(response) is GeneratorType:
                response = await self.turns.spread(response)
            if isinstance(response, Message):
                response = await self.turns.spread(context.encode_steps(response))
        except asyncio.CancelledError:
            pending.complete(CLOSE)
            raise
        except Exception as error:
            pending.complete(self._unexpected(route, context, error))
            return
        pending.complete(response)

    def _unexpected(self, route: Route, context: RequestContext, error: Exception) -> Completion:
        """The answer to a request whose handler raised."""
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
            return route.encode(context.correlation_id, route.response_class(error_code=code))
        return CLOSE

    async def drain(self) -> None:
        """Wait for the handlers that still run; the caller bounds the time."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """End the handlers that still run or wait."""
        self.turns.close()
        for task in self._tasks:
            task.cancel()
        await self.drain()


class _Relay:
    """Hands the answer of one Pending on to the one that stands for it."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, inner: Pending, outer: Pending) -> None:
        self._inner = inner
        self._outer = outer

    def on_answer_ready(self) -> None:
        """See Waiter."""
        self._outer.complete(self._inner.answer)


def _follow(inner: Pending, outer: Pending) -> None:
    """What a handler waits for is what the request waits for that was begun in steps."""
    if inner.completed:
        outer.complete(inner.answer)
        return
    inner.connection = _Relay(inner, outer)
    outer.in_turns = False
    outer.appended = inner.appended

    def on_closed() -> None:
        inner.connection = None
        if inner.on_closed is not None:
            inner.on_closed()

    if outer.connection is None:
        on_closed()
    else:
        outer.on_closed = on_closed


def _refuse(frame: memoryview, connection: Connection, malformed: Exception) -> Completion:
    connection.offend(f"a request that cannot be read ({name_of(frame)}): {malformed}")
    return CLOSE


def name_of(frame: memoryview) -> str:
    """What the first bytes say a request is, for the log."""
    if len(frame) < 4:
        return f"{len(frame)} bytes"
    api_key, version = struct.unpack_from(">hh", frame)
    try:
        return f"{ApiKey(api_key).name} v{version}"
    except ValueError:
        return f"api {api_key} v{version}"
