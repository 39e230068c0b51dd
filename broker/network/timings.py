"""Notifies measured requests of a connection when their answers are written, and when they are sent.

`ottla.broker.metrics` adds a `Timing` to a connection for an answer in the next write, or sets it on a `Pending`. The writer of the answers
reports its writes. Most requests are not measured, and a connection without measured requests holds nothing for this.
"""

from __future__ import annotations

from typing import Final, Protocol


class Timing(Protocol):
    """One measured request. The methods are called once each, in this order; `on_completed` only for requests that waited."""

    def on_completed(self) -> None:
        """Called when the awaited event has come."""

    def on_write(self) -> None:
        """Called before its answer is written, and again if the connection writes more before it is sent."""

    def on_sent(self) -> None:
        """Called when its answer was sent."""


NO_TIMINGS: Final[tuple[Timing, ...]] = ()


class Timed(Protocol):
    """A writer of answers, some of them measured."""

    timings: tuple[Timing, ...]


def add_timing(writer: Timed, timing: Timing) -> None:
    """Add a request whose answer is in the next write."""
    writer.timings = (*writer.timings, timing)


def on_write(writer: Timed) -> None:
    """Notify the requests before their answers are written."""
    for timing in writer.timings:
        timing.on_write()


def on_sent(writer: Timed) -> None:
    """Notify the requests after their answers were sent."""
    timings = writer.timings
    writer.timings = NO_TIMINGS
    for timing in timings:
        timing.on_sent()
