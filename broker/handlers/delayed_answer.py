"""Turns the callback of a coordinator into the answer of a handler, at once or later.

A coordinator often calls back before its method returns; the handler then returns the response itself.
"""

from __future__ import annotations

from ottla.broker.network.request_channel import CLOSE, Answer, Completion, Pending
from ottla.broker.request.context import RequestContext
from ottla.broker.request.turns import Steps, Unfinished
from ottla.protocol.schema.message import Message


class DelayedAnswer:
    """A handler passes `complete` to the coordinator, then returns `answer()` to the dispatcher."""

    __slots__ = ("_context", "_pending", "_response")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._response: Message | Steps[Message] | Completion | None = None
        self._pending: Pending | None = None

    def complete(self, response: Message) -> None:
        """Complete with a response."""
        if self._pending is None:
            self._response = response
        else:
            self._pending.complete(self._context.encode(response))

    def complete_steps(self, steps: Steps[Message]) -> None:
        """Complete with a response that is made in steps. A few steps are done at once."""
        if self._pending is None:
            self._response = steps
            return
        turns = self._context.broker.turns
        try:
            response = turns.first_slice(steps)
        except Exception:
            # A bug of the broker, which the coordinator logs. The client would wait for an answer forever.
            self._pending.complete(CLOSE)
            raise
        if isinstance(response, Unfinished):
            turns.go_on(self._answer_steps(steps, self._pending), self._pending)
        else:
            self._pending.complete(self._context.encode(response))

    def _answer_steps(self, steps: Steps[Message], pending: Pending) -> Steps[None]:
        pending.complete((yield from self._context.encode_steps((yield from steps))))

    def complete_encoded(self, answer: Completion) -> None:
        """Complete with a response that is encoded already."""
        if self._pending is None:
            self._response = answer
        else:
            self._pending.complete(answer)

    def answer(self) -> Message | Steps[Message] | Answer:
        """The response if it is complete by now, otherwise a Pending for it."""
        if self._response is not None:
            return self._response
        self._pending = Pending()
        return self._pending
