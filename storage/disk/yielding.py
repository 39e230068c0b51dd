"""Yields the interpreter to the event loop during long computations in threads.

A computing thread holds the interpreter until the loop requests it, which takes effect after 5 ms
(`sys.getswitchinterval`). A system call is not enough, because the thread is back before the loop has woken up; a short
sleep is. A thread that computes for more than a millisecond beside the loop yields as often: 10,000 lines of a
checkpoint then delay the loop by 0.35 ms instead of 2.1.
"""

import time

_SECONDS = 0.0001


def yield_to_loop() -> None:
    """Lets the loop run if it is waiting for the interpreter."""
    time.sleep(_SECONDS)


def no_yield() -> None:
    """Replaces `yield_to_loop` where no loop runs: when the broker starts."""
