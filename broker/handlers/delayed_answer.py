"""Turns the callback of a coordinator into the answer of a handler, at once or later.

A coordinator often calls back before its method returns; the handler then returns the response itself.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from ottla.broker.network.request_channel import Answer, Completion, Pending
from ottla.broker.request.context import RequestContext
from ottla.protocol.schema.message import Message


class DelayedAnswer:
    """A handler passes `complete` to the coordinator, then returns `answer()` to the dispatcher."""

    __slots__ = ("_context", "_pending", "_response")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._response: Message | Answer | None = None
        self._pending: Pending | None = None

    def complete(self, response: Message) -> None:
        """Complete with a response."""
        if self._pending is None:
            self._response = response
        else:
            self._pending.complete(self._context.encode(response))

    def complete_by(self, response: Coroutine[Any, Any, Message]) -> None:
        """Complete with the response of a coroutine, whose first slice runs at once. After a bug of the broker the connection is closed."""
        answer = self._context.broker.running.begin(self._encoded(response), self._pending)
        if self._pending is None:
            self._response = answer

    async def _encoded(self, response: Coroutine[Any, Any, Message]) -> Completion:
        return await self._context.encode_in_slices(await response)

    def complete_encoded(self, answer: Completion) -> None:
        """Complete with a response that is encoded already."""
        if self._pending is None:
            self._response = answer
        else:
            self._pending.complete(answer)

    def answer(self) -> Message | Answer:
        """The response if it is complete by now, otherwise a Pending for it."""
        if self._response is not None:
            return self._response
        self._pending = Pending()
        return self._pending
