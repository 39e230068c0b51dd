"""Transfers the bytes of one connection to another broker: one request out, one frame in. `PeerConnection` owns it.

Invariants:

* A frame has its own memory, which is not written again, because the records in a message are views of it. A fetcher's connection is an
  exception: its answers stay in one buffer until the next request, because fresh memory for each would cost more than reading it.
* A correlation id is never used twice on a connection. An answer without a matching request closes it.
* Any failure during a request closes the connection, because the answer may still arrive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from struct import Struct
from typing import Final, cast

from ottla.replication.ports.peer import PeerAddress, PeerUnavailable

logger = logging.getLogger(__name__)

WINDOW_BYTES: Final = 64 * 1024
"""Bytes read before the length of a response is known. The rest of a longer response is read directly into memory of its size."""
FETCH_BYTES: Final = 256 * 1024
"""Size of the buffer for answers to Fetch; longer answers get memory of their own. Untouched pages of it cost nothing."""

JOINED_BYTES: Final = 64 * 1024
"""Size of a request from which its parts are not copied, bytes. Requests to all brokers of a cluster share their long parts."""

_REQUEST_HEAD: Final = Struct(">ihhi")  # length, api key, version, correlation id
_RESPONSE_HEAD: Final = Struct(">ii")  # length, correlation id
_CORRELATION_IDS: Final = 2**31 - 1
_HEAD_BYTES: Final = 4 + 2 + 2 + 4


class Wire:
    """One connection: one request out, one frame in. `PeerConnection` gives uvloop a subclass that is a BufferedProtocol."""

    __slots__ = (
        "_correlation_id",
        "_deadline",
        "_filled",
        "_frame",
        "_head",
        "_keeps_window",
        "_loop",
        "_max_response_bytes",
        "_timer",
        "_transport",
        "_waiter",
        "_window",
        "host",
        "is_lost",
        "name",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, address: PeerAddress, window: memoryview, max_response_bytes: int) -> None:
        self.host: str = address.host
        self.name: str = f"{address.host}:{address.port}"
        self.is_lost = False
        self._loop = loop
        self._window = window
        self._max_response_bytes = max_response_bytes
        self._transport: asyncio.Transport | None = None
        self._correlation_id = -1
        self._waiter: asyncio.Future[memoryview] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._frame: memoryview | None = None  # a response that did not arrive in one read, with its length; of exactly its size
        self._head = b""  # an incomplete length and correlation id
        self._keeps_window = False  # whether the window belongs to this connection, so that received bytes stay there
        self._filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A BufferedProtocol over a socket always gets a Transport; uvloop's is not of asyncio's class.
        self._transport = cast("asyncio.Transport", transport)
        if self.is_lost:
            self._transport.abort()

    async def exchange(
        self, api_key: int, version: int, client_id: bytes, body: Sequence[bytes | memoryview], deadline: float
    ) -> memoryview:
        """The frame of the answer, from the correlation id on. `body` is in parts. Raises PeerUnavailable."""
        if self._waiter is not None:
            raise RuntimeError(f"a second request to {self.name} while one is in flight")
        if self.is_lost or self._transport is None:
            raise PeerUnavailable(f"{self.name} closed the connection")
        self._correlation_id = correlation_id = (self._correlation_id + 1) & _CORRELATION_IDS
        size = _HEAD_BYTES - 4 + len(client_id) + sum(map(len, body))
        self._waiter = waiter = self._loop.create_future()
        self._deadline = deadline
        if self._timer is None or self._timer.when() > deadline:
            self._arm(deadline)
        frame = (_REQUEST_HEAD.pack(size, api_key, version, correlation_id), client_id, *body)
        try:
            if size < JOINED_BYTES:
                self._transport.write(b"".join(frame))
            else:
                self._transport.writelines(frame)
            answer: memoryview = await waiter
        finally:
            self._waiter = None
        return answer

    def keep_window(self) -> None:
        """Read into a separate buffer from now on, where an answer stays until the next request. Call it between requests."""
        if not self._keeps_window and self._waiter is None and not self._head:
            self._window = memoryview(bytearray(FETCH_BYTES))
            self._keeps_window = True
            self._filled = 0

    def lose(self, why: str) -> None:
        """Close the connection, and fail the request in flight."""
        if self.is_lost:
            return
        self.is_lost = True
        self._frame = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(PeerUnavailable(f"{self.name}: {why}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lose(f"the connection was lost ({exc})" if exc is not None else "the other side closed the connection")
        self._transport = None

    def eof_received(self) -> bool:
        return False

    # Time -----------------------------------------------------------------------------------------------------------------------------

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        """Check the deadline. Most requests are answered long before. The timer of one serves the following ones, and ends when it finds
        none."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._deadline > self._loop.time():
            self._arm(self._deadline)
        else:
            self.lose("no answer in time")

    # Bytes in -------------------------------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        frame = self._frame
        if frame is not None:
            rest: memoryview = frame[self._filled :]
            return rest
        if self._keeps_window:
            return self._window[self._filled :]
        head = self._head
        if head:
            self._window[: len(head)] = head
            return self._window[len(head) :]
        return self._window

    def buffer_updated(self, nbytes: int) -> None:
        frame = self._frame
        if frame is None:
            if self._keeps_window:
                self._go_on(self._filled + nbytes)
            else:
                self._begin(nbytes + len(self._head))
            return
        self._filled += nbytes
        if self._filled == len(frame):
            self._frame = None
            self._filled = 0
            self._answered(frame[4:])

    def _begin(self, filled: int) -> None:
        """Read the beginning of a response in the window."""
        window = self._window
        if filled < _RESPONSE_HEAD.size:
            self._head = bytes(window[:filled])
            return
        self._head = b""
        size, correlation_id = _RESPONSE_HEAD.unpack_from(window)
        if not self._is_expected(size, correlation_id, filled):
            return
        if filled == 4 + size:
            self._answered(memoryview(bytes(window[4:filled])))
        else:
            self._frame = frame = memoryview(bytearray(4 + size))
            frame[:filled] = window[:filled]
            self._filled = filled

    def _go_on(self, filled: int) -> None:
        """Continue with a response in the connection's own window."""
        window = self._window
        self._filled = filled
        if filled < _RESPONSE_HEAD.size:
            return
        size, correlation_id = _RESPONSE_HEAD.unpack_from(window)
        if not self._is_expected(size, correlation_id, filled):
            return
        if filled == 4 + size:
            self._filled = 0
            self._answered(window[4:filled])
        elif 4 + size > len(window):
            self._frame = frame = memoryview(bytearray(4 + size))
            frame[:filled] = window[:filled]

    def _is_expected(self, size: int, correlation_id: int, filled: int) -> bool:
        """Whether the received bytes can be the expected answer or its beginning. If not, the connection is closed."""
        if self._waiter is not None and self._waiter.cancelled() and correlation_id == self._correlation_id:
            self.lose("the request was cancelled")  # before the cancelled task runs and says so itself
        elif self._waiter is None or self._waiter.done() or correlation_id != self._correlation_id:
            self._offend(f"an unexpected answer (correlation id {correlation_id})")
        elif not 4 <= size <= self._max_response_bytes:
            self._offend(f"an answer of {size} bytes; at most {self._max_response_bytes} are allowed")
        elif filled > 4 + size:
            self._offend(f"{filled - 4 - size} extra bytes after the answer")
        else:
            return True
        return False

    def _answered(self, frame: memoryview) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(frame)

    def _offend(self, what: str) -> None:
        logger.warning("%s does not speak the protocol: %s; closing the connection", self.name, what)
        self.lose(what)
