"""Bounds the connections of clients, and the time in which a client sends its request, and takes its answer.

At most MOST_CONNECTIONS are open. One more takes the place of the one whose request has been incomplete for the longest time.
If there is none, the one whose client has taken nothing of its answer for the longest time yields. So clients that are slow on
purpose do not lock out others. Over TLS a connection counts here after its handshake, which `handshakes` bounds.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS: Final = 200

REQUEST_SECONDS: Final = 30.0
"""Time from the accept, or the TLS handshake, or from the end of the last answer, until the next request is complete, seconds."""

STALLED_SECONDS: Final = 600.0
"""Time in which a client takes no part of an answer, seconds. A download that is paused for longer is cut off."""


class BoundedRequests(H11Protocol):
    """uvicorn's protocol, which ends idle connections only after their first request, and waits forever until an answer is taken."""

    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class has it
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > MOST_CONNECTIONS:
            self._take_a_place()

    def _take_a_place(self) -> None:
        """End the connection that waits longest for its client. If all clients wait for answers instead, this one gets a 503."""
        others = [each for each in self.connections if isinstance(each, BoundedRequests) and each is not self]
        idle = [(each.idle_until, each) for each in others if each.idle_until]
        stalled = [(each.stalled_until, each) for each in others if each.stalled_until]
        # A download stalls for a moment again and again, so it yields only if no connection is idle, and after paused ones.
        if waiting := idle or stalled:
            oldest = min(waiting, key=lambda each: each[0])[1]
            self.connections.discard(oldest)  # now, because uvicorn counts them
            oldest.transport.abort()

    @property
    def idle_until(self) -> float:
        """The time at which the request has to be complete; 0 while it is answered."""
        return 0.0 if self._deadline is None else self._deadline.when()

    @property
    def stalled_until(self) -> float:
        """The time until which the client has to take a part of its answer; 0 while it takes what there is."""
        return 0.0 if self._stalled is None else self._stalled.when()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """The next request may have begun already."""
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Limit the time unless a complete request is being answered."""
        if self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body:
            self._cancel()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        super().pause_writing()
        self._stalled = self.loop.call_later(STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        super().resume_writing()
        self._end_stall()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._cancel()
        self._end_stall()
        super().connection_lost(exc)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
