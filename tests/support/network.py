"""Connections without sockets: a transport that records, a loop that is turned by hand, and a processor with an observable handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct

from ottla.broker.network.connection import Connection
from ottla.broker.network.handler import RequestHandler
from ottla.broker.network.limits import NetworkLimits
from ottla.broker.network.offenders import Offenders
from ottla.broker.network.processor import Processor
from ottla.broker.network.request_channel import Answer, RequestChannel
from ottla.broker.quotas.throttle import Quotas
from ottla.broker.security import client as security
from ottla.broker.security.authorizer import Authorizer

_SIZE = Struct(">i")


def framed(*bodies: bytes) -> bytes:
    """The bodies as a client sends them."""
    return b"".join(_SIZE.pack(len(body)) + body for body in bodies)


def unframed(data: bytes) -> list[bytes]:
    """The bodies in what was sent; there must be nothing left over."""
    bodies = []
    position = 0
    while position < len(data):
        (size,) = _SIZE.unpack_from(data, position)
        position += 4 + size
        assert position <= len(data), f"a frame of {size} bytes is cut {position - len(data)} bytes before its end"
        bodies.append(data[position - size : position])
    return bodies


def produce(body: bytes = b"") -> bytes:
    """A request whose api key is Produce."""
    return b"\x00\x00" + body


def other(body: bytes = b"") -> bytes:
    """A request that is no Produce."""
    return b"\x00\x03" + body


Handle = Callable[[memoryview, Connection], Answer]

BETWEEN_BROKERS = 4
"""The API key of LeaderAndIsr."""


class FunctionHandler(RequestHandler):
    """Answers by a function. Produce may follow appends, LeaderAndIsr is urgent."""

    __slots__ = ("function",)

    def __init__(self, function: Handle) -> None:
        self.function = function

    def handle(self, frame: memoryview, connection: Connection) -> Answer:
        return self.function(frame, connection)

    def is_urgent(self, view: memoryview, begin: int, end: int, connection: Connection) -> bool:
        return end - begin >= 2 and int.from_bytes(view[begin : begin + 2], "big") == BETWEEN_BROKERS

    def may_follow_appends(self, view: memoryview, begin: int, end: int) -> bool:
        return end - begin >= 2 and int.from_bytes(view[begin : begin + 2], "big") == 0


class FakeTransport(asyncio.Transport):
    """Records. `takes` is how many bytes the peer takes before the transport has to buffer; None: all."""

    def __init__(self, takes: int | None = None) -> None:
        super().__init__()
        self.protocol: asyncio.BaseProtocol | None = None
        self.sent = bytearray()
        self.buffered = bytearray()
        self.takes = takes
        self.writes = 0
        self.reading = True
        self.closing = False
        self.aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (0, 0)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.aborted, "a write after abort"
        self.writes += 1
        was_empty = not self.buffered
        self.buffered += data
        self._drain()
        if was_empty and self.buffered and self.protocol is not None:
            self.protocol.pause_writing()

    def take(self, count: int) -> None:
        """The peer reads."""
        assert self.takes is not None
        self.takes += count
        self._on_room()

    def take_all(self) -> None:
        """The peer reads everything from now on."""
        self.takes = None
        self._on_room()

    def _on_room(self) -> None:
        had = bool(self.buffered)
        self._drain()
        if had and not self.buffered and self.protocol is not None:
            self.protocol.resume_writing()

    def _drain(self) -> None:
        count = len(self.buffered) if self.takes is None else min(self.takes, len(self.buffered))
        self.sent += self.buffered[:count]
        del self.buffered[:count]
        if self.takes is not None:
            self.takes -= count

    def get_write_buffer_size(self) -> int:
        return len(self.buffered)

    def pause_reading(self) -> None:
        assert self.reading, "paused twice"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "resumed twice"
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True


class Timer:
    """The handle that `Turns.call_at` returns."""

    def __init__(self, at: float, callback: Callable[[], object]) -> None:
        self._at = at
        self.callback: Callable[[], object] | None = callback

    def when(self) -> float:
        return self._at

    def cancel(self) -> None:
        self.callback = None


class Turns:
    """Stands in for the loop where only call_soon and call_at are used; its time passes when `pass_time` says so."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], object]] = []
        self._timers: list[Timer] = []
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        self._timers.append(Timer(when, callback))
        return self._timers[-1]

    def pass_time(self, seconds: float) -> None:
        """Time passes, and what is due by then is called."""
        self._now += seconds
        due = [timer for timer in self._timers if timer.when() <= self._now]
        self._timers = [timer for timer in self._timers if timer.when() > self._now]
        for timer in due:
            if timer.callback is not None:
                timer.callback()
        self.run()

    @property
    def timers(self) -> int:
        """Those that are armed."""
        return sum(timer.callback is not None for timer in self._timers)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call back in the next turn."""
        self._callbacks.append(callback)

    def turn(self) -> bool:
        """One turn; whether there was anything to do."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        return bool(callbacks)

    def run(self) -> None:
        """Turn until nothing is left."""
        for _ in range(10_000):
            if not self.turn():
                return
        raise AssertionError("the loop never comes to rest")


class Bench:
    """A processor and its connections on a hand-turned loop. `handled` has the frames in the order they were handled."""

    def __init__(
        self,
        handler: Handle | None = None,
        *,
        slots: int = 8,
        limits: NetworkLimits | None = None,
        turns: Turns | None = None,
        quotas: Quotas | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.turns = turns or Turns()
        self.now_ns = 0
        self.lines: list[str] = []
        self.lost: list[Connection] = []
        self.handled: list[bytes] = []
        self._limits = limits = limits or NetworkLimits()
        self._quotas, self._authorizer = quotas, authorizer
        self.channel = RequestChannel(
            slots,
            limits.queued_max_requests,
            limits.queued_max_request_bytes,
            self.turns.call_soon,
            limits.large_requests_max_bytes,
            lambda: self.now_ns,
        )
        self._handler = handler or (lambda frame, connection: bytes(frame))
        self.processor = self._new_processor()

    def _new_processor(self) -> Processor:
        return Processor(
            self.turns,  # type: ignore[arg-type]  # only call_soon of the loop is used without file regions
            FunctionHandler(self._handle),
            self.channel,
            self._limits,
            lambda: self.now_ns,
            Offenders(self.lines.append),
            self.lost.append,
            quotas=self._quotas,
            authorizer=self._authorizer,
        )

    def change_processor(self) -> None:
        """Let another processor have the connections that are made from now on."""
        self.processor = self._new_processor()

    def _handle(self, frame: memoryview, connection: Connection) -> Answer:
        self.handled.append(bytes(frame))
        return self._handler(frame, connection)

    def connect(self, takes: int | None = None) -> Client:
        """A new connection."""
        return Client(self, takes)


class Client:
    """One connection, from the other side."""

    def __init__(self, bench: Bench, takes: int | None, transport: FakeTransport | None = None) -> None:
        """`takes`: see `FakeTransport`; `transport` may be another one."""
        self.bench = bench
        self.transport = transport or FakeTransport(takes)
        self.connection = Connection(bench.processor, security.Client("local:1-host:2-0", "host", 2, "PLAINTEXT"), None)
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> int:
        """Bytes arrive, as long as the connection reads; returns how many it took."""
        taken = 0
        while taken < len(data) and self.transport.reading and not self.transport.closing:
            buffer = self.connection.get_buffer(-1)
            count = min(len(buffer), len(data) - taken)
            assert count > 0
            buffer[:count] = data[taken : taken + count]
            del buffer
            self.connection.buffer_updated(count)
            # Another connection of the processor reads next: what this one left in memory that others use, too, is gone.
            for memory in (self.bench.processor.buffer, *self.bench.processor.buffers.free()):
                memory[:] = b"\xee" * len(memory)
            taken += count
        return taken

    def send_all(self, data: bytes) -> None:
        """Bytes arrive, and the loop turns whenever the connection does not read."""
        taken = 0
        for _ in range(100_000):
            taken += self.send(data[taken:])
            self.bench.turns.run()
            if taken == len(data):
                return
        raise AssertionError(f"the connection reads no more after {taken} of {len(data)} bytes")

    @property
    def answers(self) -> list[bytes]:
        """The answers that were sent to the client."""
        return unframed(bytes(self.transport.sent))
