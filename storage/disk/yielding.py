"""Yields the interpreter to the event loop during long computations in threads.

A computing thread holds the interpreter until the loop requests it, which takes effect after 5 ms
(`sys.getswitchinterval`). A system call is not enough, because the thread is back before the loop has woken up; a short
sleep is. A thread that computes for more than a millisecond beside the loop yields as often: 10,000 lines of a
checkpoint then delay the loop by 0.35 ms instead of 2.1.
"""

import time

_SECONDS = 0.0001
_SLICE_SECONDS = 0.0005
"""Work after which a thread yields, where many small pieces of work follow each other."""


def yield_to_loop() -> None:
    """Lets the loop run if it is waiting for the interpreter."""
    time.sleep(_SECONDS)


class PacedYield:
    """Yields to the loop when it is called, but not more often than every half millisecond."""

    __slots__ = ("_yielded",)

    def __init__(self) -> None:
        self._yielded = time.perf_counter()

    def __call__(self) -> None:
        if time.perf_counter() - self._yielded > _SLICE_SECONDS:
            yield_to_loop()
            self._yielded = time.perf_counter()


def no_yield() -> None:
    """Replaces `yield_to_loop` where no loop runs: when the broker starts."""
