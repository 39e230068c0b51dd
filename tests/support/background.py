"""Provides a `Background` for storage that the test drives by hand."""

from asyncio.events import _get_running_loop
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.clocks import ManualClock
from tests.support.pauses import HandLoop


def carry_out(work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
    """Run what was submitted, and tell the end of it."""
    try:
        work()
    except Exception as error:
        then(error)
    else:
        then(None)


class ManualBackground:
    """Timers fire in `advance`; work runs in `run_work`, which `advance` calls too. Nothing happens by itself."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.timers: list[tuple[int, int, str, int, Callable[[], None]]] = []
        self.work: list[tuple[str, Callable[[], None], Callable[[BaseException | None], None]]] = []
        self.is_closed = False
        self.done_at_once: set[str] = set()
        """First words of the names of work that runs when it is submitted."""
        self._count = 0
        self._is_hurried = False

    def schedule(self, name: str, delay_ms: int, period_ms: int, callback: Callable[[], None]) -> None:
        if self._is_hurried and not delay_ms and not period_ms:
            callback()
            return
        self._count += 1
        self.timers.append((self.clock.now_ms() + delay_ms, self._count, name, period_ms, callback))

    def schedule_once(self, name: str, action: Callable[[], None], delay_ms: int) -> None:
        self.schedule(name, delay_ms, 0, lambda: self.submit(name, action, lambda error: None))

    def submit(self, name: str, work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        self.work.append((name, work, then))
        if self._is_hurried or name.partition(" ")[0] in self.done_at_once:
            self._run(len(self.work) - 1)

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Runs all due work, and work that becomes due meanwhile at once: for callers that wait for it without a loop."""
        self.advance()
        self._is_hurried = True
        try:
            yield
        finally:
            self._is_hurried = False

    def turn(self) -> bool:
        """One turn of the loop: what became due before it, and what it makes due now waits for the next; False if nothing is due."""
        now_ms = self.clock.now_ms()
        due = sorted(timer for timer in self.timers if timer[0] <= now_ms)
        for timer in due:
            self.timers.remove(timer)
            _, _, name, period_ms, callback = timer
            if period_ms:
                self.schedule(name, period_ms, period_ms, callback)
            callback()
        return self._loop_turn() or bool(due)

    @staticmethod
    def _loop_turn() -> bool:
        """Resumes long work that has paused, if the turns of the loop are called by hand."""
        loop = _get_running_loop()
        return isinstance(loop, HandLoop) and loop.turn()

    def run_work(self) -> None:
        """Everything that was submitted, and what follows from it."""
        while self.work or self._loop_turn():
            if self.work:
                self._run(0)

    def _run(self, at: int) -> None:
        _, work, then = self.work.pop(at)
        carry_out(work, then)

    def advance(self, milliseconds: int = 0) -> None:
        """Lets time pass, firing each timer at its time."""
        end = self.clock.now_ms() + milliseconds
        self.run_work()
        while self.timers and min(self.timers)[0] <= end:
            timer = min(self.timers)
            self.timers.remove(timer)
            due_ms, _, name, period_ms, callback = timer
            self.clock.move(max(due_ms - self.clock.now_ms(), 0))
            if period_ms:
                self.schedule(name, period_ms, period_ms, callback)
            callback()
            self.run_work()
        self.clock.move(end - self.clock.now_ms())
