"""An event loop on a virtual clock: time stands still while something runs, and jumps when nothing does. No thread, no socket, no chance.

Everything that is scheduled belongs to the node in whose name it was (`in_the_name_of`), down to the last step of a task. So a node can be
killed, after which nothing of it ever runs again, and paused, after which nothing of it runs until it is resumed: SIGKILL and SIGSTOP.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import ContextVar
from random import Random
from typing import Any

NODE: ContextVar[Life | None] = ContextVar("node", default=None)


class Life:
    """One life of a node, from its start to its death."""

    __slots__ = ("_held", "_loop", "context", "is_dead", "is_paused")

    def __init__(self, loop: SimulatedLoop) -> None:
        self.is_dead = False
        self.is_paused = False
        self._held: deque[Callable[[], None]] = deque()
        self._loop = loop
        self.context = contextvars.copy_context()
        self.context.run(NODE.set, self)

    def run(self, step: Callable[[], None]) -> None:
        """Run a step of this life: now, when it is resumed, or never."""
        if self.is_paused:
            self._held.append(step)
        elif not self.is_dead:
            step()

    def die(self) -> None:
        """SIGKILL."""
        self.is_dead = True
        self.is_paused = False
        self._held.clear()

    def pause(self) -> None:
        """SIGSTOP."""
        self.is_paused = not self.is_dead

    def resume(self) -> None:
        """SIGCONT: what came meanwhile happens at once."""
        self.is_paused = False
        while self._held and not self.is_paused:
            self._loop.call_soon(self._held.popleft())

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Schedule something in the name of this node, from outside of it."""
        self._loop.call_soon(callback, *arguments, context=self.context.copy())


class Stalled(AssertionError):
    """Everybody waits and nothing is scheduled: a future that nobody will ever complete."""


class _Selector(selectors.BaseSelector):
    """Instead of waiting, time passes."""

    def __init__(self) -> None:
        self.now = 0.0
        self._map: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._map[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._map.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stalled("nothing is scheduled and somebody waits")
        if timeout > 0:
            self.now += timeout
        return []

    def get_map(self) -> Any:
        return self._map


class SimulatedLoop(asyncio.SelectorEventLoop):
    """See the module. `random` says how long what a real broker does in a thread takes."""

    def __init__(self, random: Random) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self._random = random
        self.steps = 0
        self.set_exception_handler(self._on_exception)
        self.exceptions: list[BaseException] = []
        self.tasks: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual.now

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """See asyncio. Tasks are kept: a dead node's must not be tidied up by the collector, whose time is not ours."""
        task = super().create_task(coro, **options)
        self.tasks.append(task)
        return task

    def call_soon(  # type: ignore[override]  # any callback
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        return super().call_soon(self._owned(callback, context), *args, context=context)

    def call_at(  # type: ignore[override]  # any callback
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        return super().call_at(when, self._owned(callback, context), *args, context=context)

    def _owned(self, callback: Any, context: contextvars.Context | None) -> Any:
        life = NODE.get() if context is None else context.get(NODE)
        self.steps += 1
        if life is None:
            return callback

        def step(*arguments: Any) -> None:
            if life.is_paused:
                around = contextvars.copy_context()
                life.run(lambda: around.run(callback, *arguments))
            elif not life.is_dead:
                callback(*arguments)

        return step

    def run_in_executor(self, executor: Executor | None, func: Any, *args: Any) -> Any:  # type: ignore[override]  # any function
        """What a thread would do is done in one step, a moment later."""
        future: asyncio.Future[Any] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self._random.expovariate(1000), work)
        return future

    def _on_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            self.exceptions.append(error)


class NoThreads(Executor):
    """The executor of a simulated broker: whatever is submitted past the loop is done at once."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See Executor."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future
