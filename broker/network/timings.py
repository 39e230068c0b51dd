"""Tells measured requests of a connection when their answers are written, and when they are sent.

`broker.metrics` adds a `Timing` to a connection for an answer that goes out next, or sets it on a `Pending`; the writer of the answers
tells of its writes. Most requests are not measured, and a connection none of whose requests is holds nothing for it.
"""

from __future__ import annotations

from typing import Final, Protocol


class Timing(Protocol):
    """One measured request; each method is called once, in this order, `on_completed` only of what waited."""

    def on_completed(self) -> None:
        """What it waited for has come."""

    def on_write(self) -> None:
        """Its answer is about to be written; called again when the connection writes more before it is sent."""

    def on_sent(self) -> None:
        """Its answer has left."""


NO_TIMINGS: Final[tuple[Timing, ...]] = ()


class Timed(Protocol):
    """A writer of answers, some of which are measured."""

    timings: tuple[Timing, ...]


def add_timing(writer: Timed, timing: Timing) -> None:
    """The answer of this request goes out with the next write."""
    writer.timings = (*writer.timings, timing)


def on_write(writer: Timed) -> None:
    """Answers are about to be written."""
    for timing in writer.timings:
        timing.on_write()


def on_sent(writer: Timed) -> None:
    """Everything written has left."""
    timings = writer.timings
    writer.timings = NO_TIMINGS
    for timing in timings:
        timing.on_sent()
