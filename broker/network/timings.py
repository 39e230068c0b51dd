"""Where the requests of a connection that are measured stand: their answers are written, then sent.

Whoever measures (`broker.metrics`) adds a `Timing` for an answer that goes out next, or sets it on a `Pending`; the connection tells of the
writes. Most requests are not measured, and a connection none of whose requests is holds nothing for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from broker.network.answer_writer import AnswerWriter


class Timing(Protocol):
    """One measured request; each method is called once, in this order, `on_completed` only of what waited."""

    def on_completed(self) -> None:
        """What it waited for has come."""

    def on_write(self) -> None:
        """Its answer is about to be written; called again when the connection writes more before it is sent."""

    def on_sent(self) -> None:
        """Its answer has left."""


NO_TIMINGS: Final[tuple[Timing, ...]] = ()


def add_timing(connection: AnswerWriter, timing: Timing) -> None:
    """The answer of this request goes out with the next write."""
    connection.timings = (*connection.timings, timing)


def on_write(connection: AnswerWriter) -> None:
    """The connection writes."""
    for timing in connection.timings:
        timing.on_write()


def on_sent(connection: AnswerWriter) -> None:
    """Everything written has left."""
    timings = connection.timings
    connection.timings = NO_TIMINGS
    for timing in timings:
        timing.on_sent()
