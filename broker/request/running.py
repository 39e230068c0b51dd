"""Runs the coroutines of requests: the first slice at once, without a task, and the rest in a task if the coroutine waits.

A coroutine returns the answer to its request. Most end in their first slice, and cost neither a task nor a `Pending`. Its waits decide
about the handler slots (`num.io.threads`):

* One that only pauses (`ottla.pauses`) needs no slot.
* From its first other wait on, for the metadata store or a thread, it holds a slot, or the place of a large request (`LargeRequests`).
* One that waits for an event (`on_wait`) releases both. It is cancelled when its client leaves. Otherwise a few requests for events that
  never happen, each with a timeout of weeks, would block all others.

As in Apache Kafka, the time for which a request holds a handler is its request time. Here these are its slices, and its other waits, except
those for events. An unexpected error closes the connection of the request, with a stack trace in the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeAlias, final

from ottla.broker.network.request_channel import CLOSE, Answer, Completion, Pending
from ottla.broker.request.large_requests import LargeRequests
from ottla.pauses import Paused, Rest

logger = logging.getLogger(__name__)

Work: TypeAlias = Coroutine[Any, Any, Answer]
"""Returns the answer to its request, or a Pending for it."""


@final
class RunningRequests:
    """See the module. The event loop owns this state; nothing here is thread safe."""

    __slots__ = ("_loop", "_tasks", "clock_ns", "current", "large")

    def __init__(
        self, clock_ns: Callable[[], int] = time.monotonic_ns, while_large: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """The context `while_large` is entered while a large request is in progress."""
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Answer]] = set()
        self.clock_ns = clock_ns
        self.large = LargeRequests(self._loop.call_soon, self.begin, while_large)
        self.current: _Running | None = None
        """The request that is worked on now."""

    def begin(self, work: Work, pending: Pending | None = None, holds_slot: bool = True) -> Answer:
        """Runs `work` until it ends or waits. Returns the answer, or `pending`, or a new Pending, which the answer completes.

        `holds_slot`: whether a wait for the store or a thread holds a slot, and counts as request time.
        """
        running = _Running(work, self, pending, holds_slot)
        try:
            running.waits_for = running.advance(work.send, None)
        except StopIteration as end:
            answer: Answer = end.value
        except Exception as error:
            answer = _failed(error, pending)
        else:
            return self._go_on(running)
        if pending is None:
            return answer
        settle(pending, answer)
        self.large.leave(pending)
        return pending

    def _go_on(self, running: _Running) -> Pending:
        """Lets a task continue work that waits."""
        pending = running.pending
        if pending is None:
            pending = running.pending = Pending(in_turns=True)
        running.task = task = self._loop.create_task(_answer(running))
        if running.is_idle:
            running.release()
        elif running.since_ns:
            running.hold()
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_end, running, pending))
        return pending

    def _on_end(self, running: _Running, pending: Pending, task: asyncio.Task[Answer]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            running.coroutine.close()  # the task may have been cancelled before it began
            pending.complete(CLOSE)
        elif (error := task.exception()) is not None:
            pending.complete(_failed(error, pending))
        else:
            settle(pending, task.result())
        self.large.leave(pending)

    @property
    def has_waited(self) -> bool:
        """Whether the current request is not in its first slice."""
        return self.current is not None and self.current.task is not None

    def on_wait(self) -> None:
        """Releases what the current request holds, if there is one. It merely waits from now on, and ends when its client leaves."""
        if self.current is not None:
            self.current.release()

    async def drain(self) -> None:
        """Wait for the requests that are in progress; the caller bounds the time."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """End the requests that are in progress or wait."""
        self.large.close()
        for task in self._tasks:
            task.cancel()
        await self.drain()


def _failed(error: BaseException, pending: Pending | None) -> Completion:
    """The answer after a bug of the broker. A request does not know its connection before it waits."""
    client = None if pending is None else getattr(pending.connection, "client", None)
    who = "" if client is None else f" of {client.connection_id}"
    logger.error("unexpected error in a request%s; closing its connection", who, exc_info=error)
    return CLOSE


async def _answer(running: _Running) -> Answer:
    return await running  # type: ignore[no-any-return]  # what the coroutine returned


@final
class _Running(Rest):
    """A request whose work is in progress. Its connection counts the first slice; later ones are added."""

    __slots__ = ("_holds_slot", "_requests", "is_idle", "pending", "since_ns", "task")

    def __init__(self, work: Work, requests: RunningRequests, pending: Pending | None, holds_slot: bool) -> None:
        super().__init__(work, None)
        self._requests = requests
        self._holds_slot = holds_slot
        self.since_ns = 0
        """Since when it waits for the store or a thread; 0 if it does not."""
        self.pending = pending
        self.task: asyncio.Task[Answer] | None = None
        self.is_idle = False
        """Whether it merely waits for events."""

    def advance(self, step: Callable[[Any], object], value: object) -> object:
        """See Rest."""
        requests = self._requests
        pending = self.pending
        connection = None if pending is None else pending.connection
        if connection is not None:
            if self.since_ns:
                connection.add_work(requests.clock_ns() - self.since_ns)
            connection.begin_work()
        self.since_ns = 0
        before, requests.current = requests.current, self
        try:
            waits_for = step(value)
        finally:
            requests.current = before
            if connection is not None:
                connection.end_work()
        if self._holds_slot and not self.is_idle and not isinstance(waits_for, Paused):
            self.since_ns = requests.clock_ns()
            if self.pending is not None:
                self.hold()
        return waits_for

    def hold(self) -> None:
        """Holds a slot, or the place of a large request, to the end, because the work waits for the store or a thread."""
        pending = self.pending
        if pending is not None and not self._requests.large.hand_on(pending):
            pending.take_slot()

    def _cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def release(self) -> None:
        """See RunningRequests.on_wait."""
        self.is_idle = True
        pending = self.pending
        if pending is not None:
            pending.leave_slot()
            pending.in_turns = False
            self._requests.large.leave(pending)
            pending.on_closed = self._cancel


def settle(pending: Pending, answer: Answer) -> None:
    """Completes a Pending by an answer. If that is another Pending, both complete together."""
    if not isinstance(answer, Pending):
        pending.complete(answer)
    elif answer is not pending:
        follow(answer, pending)


@final
class _Relay:
    """Passes the answer of an inner Pending on to the outer one."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, inner: Pending, outer: Pending) -> None:
        self._inner = inner
        self._outer = outer

    def on_answer_ready(self) -> None:
        """See Waiter."""
        self._outer.complete(self._inner.answer)

    def hold_slot(self, pending: Pending) -> None:
        """See Waiter. The work of the outer Pending is done."""

    def begin_work(self) -> None:
        """See Waiter. The outer Pending counts the work."""

    def end_work(self) -> None:
        """See Waiter."""

    def add_work(self, work_ns: int) -> None:
        """See Waiter."""


def follow(inner: Pending, outer: Pending) -> None:
    """Lets the Pending of a request complete together with the Pending that its handler returned."""
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
