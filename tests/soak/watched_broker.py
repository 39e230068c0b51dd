"""`python -m tests.soak.watched_broker FILE serve --set ...`: a broker that writes the long turns of its event loop to FILE.

A line has the time at which the turn ended (the system's monotonic clock, s), its length, and the processor time of the loop's thread in
it, ms. A turn lasts from one call of a timer of two milliseconds to the next, less these two. Time in which the thread waited for a core
does not count, nor time in which no thread of the process ran, because other programs had it. In the rest of the length the loop may have
waited for the interpreter.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import uvloop

from ottla.cli.main import main

PERIOD_S = 0.002
WORTH_A_LINE_S = 0.005


class Watch:
    """The timer, on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._called = time.monotonic()
        self._computed = time.process_time()
        self._own = time.thread_time()
        self._scheduling = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._queued = self._queued_s()
        loop.call_soon(self._on_time)

    def _queued_s(self) -> float:
        """The time that this thread has waited for a core so far."""
        return int(os.pread(self._scheduling, 100, 0).split()[1]) / 1e9

    def _on_time(self) -> None:
        now, computed, own = time.monotonic(), time.process_time(), time.thread_time()
        queued = self._queued_s()
        turn = min(now - self._called - PERIOD_S - (queued - self._queued), computed - self._computed)
        if turn > WORTH_A_LINE_S:
            os.write(self._descriptor, f"{now:.6f} {turn * 1000:.1f} {(own - self._own) * 1000:.1f}\n".encode())
        self._called, self._computed, self._own, self._queued = now, computed, own, queued
        self._loop.call_later(PERIOD_S, self._on_time)


def watch_loops(path: str) -> None:
    """From now on the event loops of this process are watched."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    new_event_loop = uvloop.new_event_loop

    def watched() -> uvloop.Loop:
        loop = new_event_loop()
        Watch(loop, descriptor)
        return loop

    uvloop.new_event_loop = watched


if __name__ == "__main__":
    watch_loops(sys.argv.pop(1))
    main(prog_name="ottla")
