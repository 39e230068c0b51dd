"""Defines the port through which a connection has its requests answered: by the dispatcher, or by authentication before it.

The network floor knows frames, not requests. A rule that depends on the kind of a request is a question to the handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.network.connection import Connection
    from broker.network.request_channel import Answer


class RequestHandler:
    """Base of handlers. Positions are those of a frame in the bytes that were received, without its length."""

    __slots__ = ()

    def handle(self, frame: memoryview, connection: Connection) -> Answer:
        """Answers one request. `frame` is valid only until this returns."""
        raise NotImplementedError

    def is_urgent(self, view: memoryview, begin: int, end: int) -> bool:
        """Whether the request from `begin` to `end` must not wait behind those of clients: requests in the slots may wait for just that."""
        return False

    def may_follow_appends(self, view: memoryview, begin: int, end: int) -> bool:
        """Whether the request may be handled while those before it are in the log and wait for replicas (`Pending.appended`)."""
        return False
