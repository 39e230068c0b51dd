"""Long computations in a thread, so that the event loop is not held up by them: a thread that computes has the interpreter for itself.

The loop asks for it back, and gets it after 5 ms (`sys.getswitchinterval`). To make a system call is not enough, for the thread is back
before the loop has woken up; to sleep a moment is. Whoever computes for more than a millisecond beside the loop gives way that often: then
10,000 lines of a checkpoint hold up the loop for 0.35 ms, not 2.1.
"""

import time

_SECONDS = 0.0001


def give_way() -> None:
    """Lets the loop have its turn, if it waits for one."""
    time.sleep(_SECONDS)


def never_mind() -> None:
    """In the place of `give_way` where no loop runs: when the broker starts."""
