"""Presents this broker as one of the brokers that it sends requests to: calls its handlers like a request over the inter-broker listener.

A coordinator may ask the leader of a partition, and a leader the controller. Either may be this broker, whose handlers need the
coordinators and the leaders. So `Itself` refers to services that are made after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

from ottla.broker.handlers.table import Handler, handlers_of
from ottla.broker.network.request_channel import NO_RESPONSE, Completion, Pending
from ottla.broker.quotas.token_bucket import MutationQuota
from ottla.broker.request.context import RequestContext
from ottla.broker.request.services import Services
from ottla.broker.security.access import Access
from ottla.broker.security.authorizer import AllowAll
from ottla.broker.security.client import Client
from ottla.pauses import COROUTINES
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Message


class _OwnConnection:
    """The broker as a client of itself, with all permissions."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.access = Access(AllowAll(), client)

    def throttle(self, quota: int, amount: int) -> int:
        """See `RequestContext`."""
        return 0

    def exempt(self) -> None:
        """See `RequestContext`."""

    def mutation_quota(self, *, is_strict: bool) -> MutationQuota:
        """See `RequestContext`."""
        return MutationQuota(None, lambda: 0, is_strict=is_strict)

    def throttle_mutations(self, quota: MutationQuota) -> int:
        """See `RequestContext`."""
        return 0

    def offend(self, reason: str) -> None:
        """See `RequestContext`."""


class _Arrival:
    """Waits for an answer in the place of a connection (`network.request_channel.Waiter`)."""

    def __init__(self) -> None:
        self.answered = asyncio.Event()

    def on_answer_ready(self) -> None:
        """The answer is complete."""
        self.answered.set()

    def hold_slot(self, pending: Pending) -> None:
        """See `Waiter`. The work of the broker itself is not limited."""

    def begin_work(self) -> None:
        """See `Waiter`."""

    def end_work(self) -> None:
        """See `Waiter`."""

    def add_work(self, work_ns: int) -> None:
        """See `Waiter`."""


class Itself:
    """See the module."""

    __slots__ = ("_listener", "_services", "broker_id")

    def __init__(self, broker_id: int, listener: str, services: Callable[[], Services]) -> None:
        """`listener` is the inter-broker listener. `services` returns those of this broker, which exist before its first request."""
        self.broker_id = broker_id
        self._listener = listener
        self._services = services

    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; -1 before the first one."""
        return self._services().cluster.controller.broker_epoch

    def is_controller(self) -> bool:
        """Whether this broker is the active controller."""
        return self._services().cluster.controller.is_active

    async def ask(self, api_key: ApiKey, version: int, message: Message) -> Message:
        """The answer of this broker's own handler."""
        handler = _handler_of(api_key)
        assert handler is not None  # only Produce and Fetch have none, which no broker asks of itself
        later: list[Message] = []

        def keep(_: int, response: Message) -> Completion:
            later.append(response)
            return NO_RESPONSE

        connection = _OwnConnection(Client(f"broker-{self.broker_id}", "127.0.0.1", 0, self._listener))
        context = RequestContext(api_key, version, 0, str(self.broker_id), connection, self._services(), keep)
        answer: Any = handler(message, context)
        if type(answer) in COROUTINES:
            answer = await answer
        if isinstance(answer, Pending) and not answer.completed:
            arrival = answer.connection = _Arrival()
            await arrival.answered.wait()
        return answer if isinstance(answer, Message) else later[0]


@cache
def _handler_of(api_key: ApiKey) -> Handler | None:
    return handlers_of(api_key)[0]
