"""Lets the sides of a comparison share a machine: one works at a time, and the sides take turns from window to window.

Each side runs in a thread of its own, and only the side that holds the machine works. With two sides the order of their windows is
A BB AA BB ... A, so that a machine that becomes slower or faster affects both alike.
"""

import threading
from collections.abc import Callable, Sequence


class AbandonedError(BaseException):
    """Another side ended with an exception that ends the run. No part may catch this one, so it is no `Exception`."""


class Alternation:
    """Runs the sides. Only the side that holds the machine works."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working: list[int] = []
        """Sides that have not ended."""
        self._holder = 0
        self._failure: BaseException | None = None

    def run(self, sides: Sequence[Callable[["Share"], None]]) -> None:
        """Run the sides to their ends. Raises the first exception of a side, after the others have ended at their next window."""
        self._working, self._holder, self._failure = list(range(len(sides))), 0, None
        threads = [threading.Thread(target=self._run, args=(at, side), name=f"side {at}") for at, side in enumerate(sides)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException as failure:
            self._abandon(failure)
            for thread in threads:
                thread.join()
        if self._failure:
            raise self._failure

    def _run(self, at: int, side: "Callable[[Share], None]") -> None:
        try:
            self._wait(at)
            side(Share(self, at))
        except AbandonedError:
            pass
        except BaseException as failure:
            self._abandon(failure)
        finally:
            with self._changed:
                if self._holder == at:
                    self._holder = self._after(at)
                self._working.remove(at)
                self._changed.notify_all()

    def _abandon(self, failure: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def _after(self, at: int) -> int:
        """The side that is next, which is the same one if it is the last."""
        place = self._working.index(at)
        return self._working[(place + 1) % len(self._working)]

    def _wait(self, at: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._holder == at or self._failure)
            if self._failure:
                raise AbandonedError

    def pass_on(self, at: int) -> None:
        """Give the machine to the next side, and wait until it comes back. Raises AbandonedError."""
        with self._changed:
            self._holder = self._after(at)
            self._changed.notify_all()
        self._wait(at)


class Share:
    """One side's share in an alternation."""

    def __init__(self, alternation: Alternation, at: int) -> None:
        self._alternation = alternation
        self._at = at

    def pass_on(self) -> None:
        """Let the others work. Returns when it is this side's turn again. Raises AbandonedError."""
        self._alternation.pass_on(self._at)

    def after_window(self, number: int) -> None:
        """Call after each window of a load: passes the machine on after every second one, the sides after different ones."""
        if number % 2 == self._at % 2:
            self.pass_on()
