"""Closes a connection whose client failed to authenticate, after `connection.failed.authentication.delay.ms`."""

from __future__ import annotations

import asyncio

from ottla.broker.network.request_channel import CLOSE, Completion, LastAnswer, Pending

_CLOCK_STEP_MS = 1
"""The loop's clock drops fractions of a millisecond, so a timer may fire up to this much early."""


def last_answer(delay_ms: int, answer: Completion = CLOSE) -> Pending:
    """An answer that is sent after the delay, and ends the connection. Without `answer` the client gets none."""
    pending = Pending()
    completion = LastAnswer(answer) if isinstance(answer, bytes) else CLOSE
    timer = asyncio.get_running_loop().call_later((delay_ms + _CLOCK_STEP_MS) / 1000, pending.complete, completion)
    pending.on_closed = timer.cancel
    return pending
