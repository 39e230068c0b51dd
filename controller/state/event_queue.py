"""Runs the controller's events one after the other in a single task, so that controller state needs no locks.

While an event waits for the store, no other event runs. An exception goes to the caller that waits for the event, or is
logged.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ottla.controller.errors import ControllerError, NotController, SessionExpired, StoreError

logger = logging.getLogger(__name__)

LAST_EVENT_SECONDS = 5.0
SESSION_ENDED = "the session of this broker's controller ended"

T = TypeVar("T")
Event = Callable[[], Awaitable[None]]
OnEventDone = Callable[[str, float, float], None]
"""Event name, seconds in the queue, seconds of handling."""


class EventQueue:
    """The queue of one controller. Started once, stopped once."""

    def __init__(self, on_error: Callable[[Exception], Awaitable[None]], monotonic: Callable[[], float]) -> None:
        """`on_error` is called with every exception of an event, before the next event."""
        self.on_done: OnEventDone | None = None
        """Called after every event, for metrics."""
        self.current: str | None = None
        """Name of the event that is being handled."""
        self._monotonic = monotonic
        self._on_error = on_error
        self._events: deque[tuple[str, Event, float]] = deque()
        self._filled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._waiting: set[asyncio.Future[Any]] = set()
        self._queued: set[asyncio.Future[Any]] = set()
        """The futures in `_waiting` whose event has not begun."""

    @property
    def is_closed(self) -> bool:
        """Whether the queue was stopped."""
        return self._closed

    def __len__(self) -> int:
        """Number of waiting events, without the one that is being handled (EventQueueSize)."""
        return len(self._events)

    def start(self) -> None:
        """Begin to handle events."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="controller-events")

    async def stop(self) -> None:
        """Finish the current event and drop the others; callers that wait for one of them are cancelled.

        An event that takes longer than LAST_EVENT_SECONDS is cancelled: it waits for an unavailable store.
        """
        self._closed = True
        self._filled.set()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=LAST_EVENT_SECONDS)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for future in list(self._waiting):
            future.cancel()

    def put(self, name: str, event: Event) -> None:
        """Queue an event without waiting for it. Does nothing after `stop`."""
        if not self._closed:
            self._events.append((name, event, self._monotonic()))
            self._filled.set()

    def put_alone(self, name: str, event: Event) -> None:
        """Queue an event and drop those that wait; their callers get NotController. For the end of a session."""
        self._events.clear()
        for future in self._queued:
            if not future.done():
                future.set_exception(NotController(SESSION_ENDED))
        self._queued.clear()
        self.put(name, event)

    async def call(self, name: str, event: Callable[[], Awaitable[T]]) -> T:
        """Queue an event and wait for its result or exception."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def answered() -> None:
            self._queued.discard(future)
            try:
                result = await event()
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
                raise
            if not future.done():
                future.set_result(result)

        if self._closed:
            raise NotController("the controller of this broker has stopped")
        self._waiting.add(future)
        self._queued.add(future)
        self.put(name, answered)
        try:
            return await future
        finally:
            self._waiting.discard(future)
            self._queued.discard(future)

    async def ask(self, name: str, event: Callable[[], Awaitable[T]]) -> T:
        """Like `call`, for requests to the active controller. Raises NotController if its session ends before or during
        the event.

        The change may have been made; the next controller knows.
        """
        try:
            return await self.call(name, event)
        except SessionExpired:
            raise NotController(SESSION_ENDED) from None

    async def _run(self) -> None:
        while not self._closed:
            await self._filled.wait()
            while self._events and not self._closed:
                name, event, queued_at = self._events.popleft()
                began_at = self._monotonic()
                self.current = name
                try:
                    await event()
                except (ControllerError, StoreError) as error:
                    await self._report(error)
                except Exception as error:
                    logger.exception("controller event %s failed; the controller goes on with the next one", name)
                    await self._report(error)
                self.current = None
                if self.on_done is not None:
                    self.on_done(name, began_at - queued_at, self._monotonic() - began_at)
            self._filled.clear()

    async def _report(self, error: Exception) -> None:
        """Calls `on_error`, and again with a ControllerError of its own: the controller may move once more meanwhile."""
        while True:
            try:
                await self._on_error(error)
            except ControllerError as another:
                error = another
                continue
            except SessionExpired:
                pass  # the next session joins again
            except StoreError as another:
                logger.warning("the controller could not react to an error (%s), because of another one: %s", error, another)
            except Exception:
                logger.exception("the controller could not react to an error; it goes on with the next event")
            return
