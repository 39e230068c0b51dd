"""An event loop on a virtual clock: time stands still while something runs, and jumps when nothing does. No thread, no socket, no chance.

Everything that is scheduled belongs to the node in whose name it was (`NODE`), down to the last step of a task. So a node can be
killed, after which nothing of it ever runs again, and paused, after which nothing of it runs until it is resumed: SIGKILL and SIGSTOP.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextvars import Context, ContextVar
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from ottla.pauses import begin_slices

NODE: ContextVar[Life | None] = ContextVar("node", default=None)
TASKS_AT_ONCE = 2000
STEP_NS = 100_000
"""How long an element of long work takes, for all that a broker knows."""
_NOBODY = Context()


class Life:
    """One life of a node, from its start to its death."""

    __slots__ = ("_held", "_loop", "broker_id", "context", "is_dead", "is_paused")

    def __init__(self, loop: SimulatedLoop, broker_id: int) -> None:
        self.broker_id = broker_id
        self.is_dead = False
        self.is_paused = False
        self._held: deque[Step] = deque()
        self._loop = loop
        self.context = contextvars.copy_context()
        self.context.run(NODE.set, self)

    @property
    def is_running(self) -> bool:
        """Neither dead nor paused."""
        return not self.is_dead and not self.is_paused

    def hold(self, step: Step) -> None:
        """Keep what is due for the time after the pause."""
        self._held.append(step)

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
        self._loop.do_soon(self._held)
        self._held.clear()

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Schedule something in the name of this node, from outside of it."""
        self._loop.call_soon(callback, *arguments, context=self.context)


class Stalled(AssertionError):
    """Everybody waits and nothing is scheduled: a future that nobody will ever complete."""


class _NoSelector(selectors.BaseSelector):
    """There is nothing to wait for."""

    def __init__(self) -> None:
        self._map: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._map[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._map.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        raise NotImplementedError

    def get_map(self) -> Any:
        return self._map


class Step(asyncio.TimerHandle):
    """Something that is to be done, in the name of a node or in nobody's. asyncio's own handles cost three times as much to make."""

    __slots__ = ("arguments", "callback", "context", "is_over", "life", "moment")

    def __init__(  # asyncio's own would take the traceback of whoever makes it, and more
        self, moment: float, callback: Callable[..., object], arguments: tuple[Any, ...], context: Context, life: Life | None
    ) -> None:
        self.moment = moment
        self.callback = callback
        self.arguments = arguments
        self.context = context
        self.life = life
        self.is_over = False

    def __hash__(self) -> int:
        return hash(self.moment)  # no address, which would make the order of a set chance

    def __eq__(self, other: object) -> bool:
        return self is other

    def cancel(self) -> None:
        """See asyncio."""
        self.is_over = True

    def cancelled(self) -> bool:
        """See asyncio."""
        return self.is_over

    def when(self) -> float:
        """See asyncio."""
        return self.moment


class SimulatedLoop(asyncio.SelectorEventLoop):
    """See the module. `random` says how long what a real broker does in a thread takes.

    `after_step` is called after everything that was done in the name of a node. What a step raises ends everything: a task keeps what it
    raises, and nothing else may.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._now = 0.0
        self._soon: deque[Step] = deque()
        self._later: list[tuple[float, int, Step]] = []
        super().__init__(_NoSelector())
        begin_slices(self, count(0, STEP_NS).__next__)
        self.steps = 0
        self.after_step: Callable[[Life], None] = lambda life: None
        self.tasks: list[asyncio.Task[Any]] = []
        self._tidy_at = TASKS_AT_ONCE
        self.set_exception_handler(lambda loop, context: None)

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def close(self) -> None:
        """See asyncio."""
        self._soon.clear()
        self._later.clear()
        super().close()

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """See asyncio. Tasks are kept: a dead node's must not be tidied up by the collector, whose time is not ours."""
        task = super().create_task(coro, **options)
        self.tasks.append(task)
        if len(self.tasks) >= self._tidy_at:
            self.tasks = [each for each in self.tasks if not each.done()]
            self._tidy_at = len(self.tasks) + TASKS_AT_ONCE
        return task

    def call_soon(  # type: ignore[override]  # any callback
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        if context is None:
            context = contextvars.copy_context()
        step = Step(self._now, callback, args, context, context.get(NODE))
        self._soon.append(step)
        return step

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there are no threads

    def call_at(  # type: ignore[override]  # any callback
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        if context is None:
            context = contextvars.copy_context()
        step = Step(when, callback, args, context, context.get(NODE))
        self.steps += 1
        heappush(self._later, (when, self.steps, step))
        return step

    def call_later(  # type: ignore[override]  # any callback
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def in_nobodys_name(self, delay: float, callback: Callable[..., object], *arguments: Any) -> None:
        """Something that no node does, and that none can do without: what the network carries, what chance does."""
        self.steps += 1
        moment = self._now + delay
        heappush(self._later, (moment, self.steps, Step(moment, callback, arguments, _NOBODY, None)))

    def do_soon(self, steps: Iterable[Step]) -> None:
        """What was held back."""
        self._soon.extend(steps)

    def _run_once(self) -> None:
        """Instead of waiting, time passes. asyncio's `run_forever` calls this until the loop is stopped."""
        soon = self._soon
        later = self._later
        while not self._stopping:  # type: ignore[attr-defined]  # asyncio's
            if not soon:
                if not later:
                    raise Stalled("nothing is scheduled and somebody waits")
                moment, _, step = heappop(later)
                if step.is_over:
                    continue
                self._now = max(self._now, moment)
            else:
                step = soon.popleft()
                if step.is_over:
                    continue
            life = step.life
            if life is not None:
                if life.is_paused:
                    life.hold(step)
                    continue
                if life.is_dead:
                    continue
            step.context.run(step.callback, *step.arguments)
            if life is not None:
                self.after_step(life)

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


class NoThreads(Executor):
    """The executor of a simulated broker: whatever is submitted past the loop is done at once. It takes what makes a pool of threads."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See Executor."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future
