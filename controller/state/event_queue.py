"""The controller's single event queue: one task carries out one event after the other, so that controller state needs no locks.

An event may wait for the store; nothing else of the controller happens meanwhile. What fails is given to the caller who waits for it,
or logged.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from controller.errors import ControllerError, NotController, SessionExpired, StoreError

logger = logging.getLogger(__name__)

LAST_EVENT_SECONDS = 5.0
SESSION_ENDED = "the session of this broker's controller ended"

T = TypeVar("T")
Event = Callable[[], Awaitable[None]]
OnEventDone = Callable[[str, float, float], None]
"""Name, seconds in the queue, seconds until it was carried out."""


class EventQueue:
    """Started once, stopped once."""

    def __init__(self, on_error: Callable[[Exception], Awaitable[None]], monotonic: Callable[[], float]) -> None:
        """`on_error` is told of every exception an event raised, before the next event."""
        self.on_done: OnEventDone | None = None
        """Told of every event after it was carried out, for metrics."""
        self.current: str | None = None
        """The event that is being carried out."""
        self._monotonic = monotonic
        self._on_error = on_error
        self._events: deque[tuple[str, Event, float]] = deque()
        self._filled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._waiting: set[asyncio.Future[Any]] = set()
        self._queued: set[asyncio.Future[Any]] = set()
        """Those of the waiting whose event has not begun."""

    @property
    def is_closed(self) -> bool:
        """Whether it was stopped."""
        return self._closed

    def __len__(self) -> int:
        """Events that wait, without the one that is being carried out (EventQueueSize)."""
        return len(self._events)

    def start(self) -> None:
        """Begin to carry out events."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="controller-events")

    async def stop(self) -> None:
        """Finish the current event and drop the others; those who wait for one of them are cancelled.

        An event that takes longer than LAST_EVENT_SECONDS is given up: it waits for a store that is away.
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
        """Queue an event nobody waits for. After `stop` nothing happens."""
        if not self._closed:
            self._events.append((name, event, self._monotonic()))
            self._filled.set()

    def put_alone(self, name: str, event: Event) -> None:
        """Queue an event and drop those that wait; whoever waits for one of them gets NotController. For the end of a session."""
        self._events.clear()
        for future in self._queued:
            if not future.done():
                future.set_exception(NotController(SESSION_ENDED))
        self._queued.clear()
        self.put(name, event)

    async def call(self, name: str, event: Callable[[], Awaitable[T]]) -> T:
        """Queue an event and wait for what it returns or raises."""
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
        """The same for those who ask the active controller: NotController when its session ends before or meanwhile.

        Whether it was done, who is controller next will know.
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
                    await self._tell(error)
                except Exception as error:
                    logger.exception("controller event %s failed; the controller goes on with the next one", name)
                    await self._tell(error)
                self.current = None
                if self.on_done is not None:
                    self.on_done(name, began_at - queued_at, self._monotonic() - began_at)
            self._filled.clear()

    async def _tell(self, error: Exception) -> None:
        with suppress(StoreError):
            await self._on_error(error)
