"""Serves requests that are decoded to messages: at once, in steps, or by a task.

The dispatcher hands over the requests of every API that has no handler of frames. A request of LARGE_BYTES is read, handled and answered in
steps (`ottla.broker.request.turns`); it is handled in steps if its handler is a generator. A generator that is not done in its first slice
also continues in steps. A request of a broker never waits for others, and may have any number of elements. The right of the sender to act
as a broker is checked before the request is read. An unexpected error becomes UNKNOWN_SERVER_ERROR in the answer, if the answer has a field
for it, and a stack trace in the log.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.network.request_channel import CLOSE, Answer, Completion, Pending
from ottla.broker.request.context import RequestContext
from ottla.broker.request.error_map import error_code, is_expected
from ottla.broker.request.malformed import MALFORMED, name_of, refuse
from ottla.broker.request.services import Services
from ottla.broker.request.turns import GENERATORS, LARGE_BYTES, Steps, Unfinished, free_in_steps
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

    __slots__ = ("_clock_ns", "_loop", "_services", "_tasks", "large_bytes", "turns")

    def __init__(self, services: Services, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._services = services
        self._clock_ns = clock_ns
        self._tasks: dict[asyncio.Task[None], _Running] = {}
        self._loop = asyncio.get_running_loop()
        self.large_bytes = LARGE_BYTES
        """Smallest request that waits for its turn, bytes."""
        self.turns = services.turns

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
            if type(response) in GENERATORS:
                response = self.turns.first_slice(steps := response)
        except Exception as error:
            return self._unexpected(route, context, error)
        if isinstance(response, Message):
            return context.encode(response)
        if isinstance(response, Unfinished):
            pending = Pending(in_turns=True)
            self.turns.go_on(self._answer(steps, route, context, pending), pending)
            return pending
        if inspect.iscoroutine(response):
            pending = Pending(occupies_slot=True)
            self._run(response, route, context, pending)
            return pending
        answer: Answer = response
        return answer

    def _wait(self, frame: memoryview, offset: int, correlation_id: int, route: Route, connection: Connection) -> Pending:
        """Lets a large request wait for its turn."""
        # Copies, since later requests overwrite the receive buffer and the client's id.
        copy, client_id = bytes(frame), connection.client.client_id
        is_of_broker = route.is_between_brokers and connection.access.acts_for_cluster()
        pending = Pending(in_turns=True, waiting_bytes=0 if is_of_broker else len(frame))
        most = ANY_ELEMENTS if is_of_broker else MAX_ELEMENTS
        work = self._read(copy, offset, client_id, correlation_id, route, connection, pending, most)
        if is_of_broker:
            self.turns.go_on(work, pending)
        else:
            self.turns.wait(work, pending, needs_task=inspect.iscoroutinefunction(route.handler))
        return pending

    def _read(
        self,
        frame: bytes,
        offset: int,
        client_id: str | None,
        correlation_id: int,
        route: Route,
        connection: Connection,
        pending: Pending,
        most_elements: int,
    ) -> Steps[asyncio.Task[None] | None]:
        """Decodes, handles and answers a large request in steps."""
        try:
            request, _ = yield from route.request_class.decode_steps(frame, route.version, offset, most_elements)
        except MALFORMED as malformed:
            pending.complete(refuse(name_of(memoryview(frame)), connection, malformed))
            return None
        del frame
        context = self._context(route, correlation_id, client_id, connection)
        context.is_large = True
        try:
            response = route.handler(request, context)
        except Exception as error:
            pending.complete(self._unexpected(route, context, error))
            return None
        is_in_steps = type(response) in GENERATORS
        task = yield from self._answer(response, route, context, pending)
        if is_in_steps and pending.completed:
            yield from free_in_steps(request)
        return task

    def _answer(self, response: Any, route: Route, context: RequestContext, pending: Pending) -> Steps[asyncio.Task[None] | None]:
        """Completes `pending` from a handler's return value of any kind. Returns the task that does so, if the value is a coroutine."""
        is_in_steps = type(response) in GENERATORS
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
                yield from free_in_steps(response)
        elif isinstance(response, Pending):
            follow(response, pending)
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
            route.is_exempt,
            route.has_throttle_time,
        )

    def _run(self, coroutine: Coroutine[Any, Any, Any], route: Route, context: RequestContext, pending: Pending) -> asyncio.Task[None]:
        """Runs a coroutine, which waits for the store or a thread, as a task. It holds a handler slot, or the turn of a large request."""
        running = _Running(pending, context, self._clock_ns())
        task = self._loop.create_task(self._complete(coroutine, route, running))
        self._tasks[task] = running
        task.add_done_callback(self._tasks.pop)
        return task

    def on_wait(self) -> None:
        """Releases the slot of the handler in the current task, which merely waits from now on, and ends it when its client leaves.

        Otherwise a few requests for events that never happen, each with a timeout of weeks, would block all others.
        """
        task = asyncio.current_task()
        running = None if task is None else self._tasks.get(task)
        if task is not None and running is not None:
            running.end_work(self._clock_ns())
            pending = running.pending
            pending.leave_slot()
            pending.in_turns = False
            self.turns.leave(pending)

            def end() -> None:
                task.cancel()

            pending.on_closed = end

    async def _complete(self, coroutine: Coroutine[Any, Any, Any], route: Route, running: _Running) -> None:
        pending, context = running.pending, running.context
        try:
            response = await coroutine
            if type(response) in GENERATORS:
                response = await self.turns.spread(response)
            running.end_work(self._clock_ns())
            if isinstance(response, Message):
                response = await self.turns.spread(context.encode_steps(response))
        except asyncio.CancelledError:
            pending.complete(CLOSE)
            raise
        except Exception as error:
            running.end_work(self._clock_ns())
            pending.complete(self._unexpected(route, context, error))
            return
        pending.complete(response)

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

    async def drain(self) -> None:
        """Wait for the handlers that still run; the caller bounds the time."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def on_unexpected(self, route: Route, correlation_id: int, connection: Connection, error: Exception) -> Completion:
        """Answers a request whose handler of frames raised."""
        return self._unexpected(route, self._context(route, correlation_id, connection.client.client_id, connection), error)

    async def close(self) -> None:
        """End the handlers that still run or wait."""
        self.turns.close()
        for task in self._tasks:
            task.cancel()
        await self.drain()


class _Running:
    """A request that a task handles. As in Apache Kafka, the time for which it holds a handler slot is its request time."""

    __slots__ = ("_began_ns", "context", "pending")

    def __init__(self, pending: Pending, context: RequestContext, began_ns: int) -> None:
        self.pending = pending
        self.context = context
        self._began_ns: int | None = began_ns

    def end_work(self, now_ns: int) -> None:
        """Count the time until now. Later calls count nothing."""
        if self._began_ns is not None:
            self.context.connection.add_work(now_ns - self._began_ns)
            self._began_ns = None


class _Relay:
    """Passes the answer of an inner Pending on to the outer one."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, inner: Pending, outer: Pending) -> None:
        self._inner = inner
        self._outer = outer

    def on_answer_ready(self) -> None:
        """See Waiter."""
        self._outer.complete(self._inner.answer)

    def begin_work(self) -> None:
        """See Waiter. The outer Pending counts the work."""

    def end_work(self) -> None:
        """See Waiter."""


def follow(inner: Pending, outer: Pending) -> None:
    """Lets the Pending of a request in steps complete together with the Pending that its handler returned."""
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
