"""An answer that comes now or later, from a service that calls back: what the handlers of the coordinators return.

A service may call back while it is called, and often does; then the response goes out with no further ado.
"""

from __future__ import annotations

from broker.network.request_channel import Answer, Completion, Pending
from broker.request.context import RequestContext
from broker.request.turns import Steps, Unfinished
from protocol.schema.message import Message


class DelayedAnswer:
    """Hand `complete` to the service, then return `answer()` to the dispatcher."""

    __slots__ = ("_context", "_pending", "_response")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._response: Message | Steps[Message] | Completion | None = None
        self._pending: Pending | None = None

    def complete(self, response: Message) -> None:
        """The response is known."""
        if self._pending is None:
            self._response = response
        else:
            self._pending.complete(self._context.encode(response))

    def complete_steps(self, steps: Steps[Message]) -> None:
        """The response is known; it is made in steps, at once if there are few."""
        if self._pending is None:
            self._response = steps
            return
        turns = self._context.broker.turns
        response = turns.first_slice(steps)
        if isinstance(response, Unfinished):
            turns.go_on(self._answer_steps(steps, self._pending), self._pending)
        else:
            self._pending.complete(self._context.encode(response))

    def _answer_steps(self, steps: Steps[Message], pending: Pending) -> Steps[None]:
        pending.complete((yield from self._context.encode_steps((yield from steps))))

    def complete_encoded(self, answer: Completion) -> None:
        """The response is known as it goes to the network."""
        if self._pending is None:
            self._response = answer
        else:
            self._pending.complete(answer)

    def answer(self) -> Message | Steps[Message] | Answer:
        """The response if it is known by now, or the promise of it."""
        if self._response is not None:
            return self._response
        self._pending = Pending()
        return self._pending
