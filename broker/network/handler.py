"""Defines the port through which a connection passes its requests to the dispatcher, or before that to authentication.

The network folder knows frames, not requests. The handler decides about everything that depends on the kind of a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.broker.network.request_channel import Answer


class RequestHandler:
    """Base of handlers. Positions are those of a frame in the received bytes, without its length."""

    __slots__ = ()

    def handle(self, frame: memoryview, connection: Connection) -> Answer:
        """Answer one request. `frame` is valid only until the return."""
        raise NotImplementedError  # a compiled class has no abstract methods

    def is_urgent(self, view: memoryview, begin: int, end: int, connection: Connection) -> bool:
        """Whether the request from `begin` to `end` needs no free slot, because the requests that hold the slots may wait for it."""
        return False

    def may_follow_appends(self, view: memoryview, begin: int, end: int) -> bool:
        """Whether the request may be handled while earlier ones are appended and wait for replicas (`Pending.appended`)."""
        return False

    def on_kept(self, connection: Connection) -> None:
        """Called when `connection` keeps bytes of frames that cannot be handled yet, and when its memory for them grows."""

    def on_bad_length(self, connection: Connection) -> None:
        """Called before `connection` is closed because of the length of a frame."""

    def takes_empty(self) -> bool:
        """Whether the next frame may be empty. A request is never empty, but a SASL token without a request header may be."""
        return False
