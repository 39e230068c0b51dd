"""Plays producers of transactions with frames made beforehand, and measures whole transactions and their commits.

One thread with an epoll plays all producers. It spends some 20 µs on a request, of which a broker makes several hundred in a transaction,
so Python does not hide the broker; a client library would. A refusal with CONCURRENT_TRANSACTIONS is asked again after a pause, as clients
do while the markers of the transaction before are written.
"""

import gc
import heapq
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

from benchmarks.loadgen.runner import LoadFailedError, Measured
from benchmarks.report.histogram import Histogram
from ottla.protocol.errors import ErrorCode
from tests.support.apache_kafka import pinned_to

PATIENCE_S: Final = 60.0
REFUSALS: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""A step with one of these errors is sent again, as clients do."""
_RECEIVED_AT_ONCE: Final = 1 << 20
_LENGTH: Final = struct.Struct(">i")
_CODE: Final = struct.Struct(">h")


class To(NamedTuple):
    """A connection of a producer. It has one to each leader, and others to coordinators, as clients have."""

    port: int
    is_coordinator: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. `frame` makes it for the number of the transaction; places of error codes count from the correlation id."""

    to: To
    frame: Callable[[int], bytes]
    error_offsets: Sequence[int]


Step = Sequence[Asked]
"""Requests that are sent at the same time; the next step begins when all of them are answered."""
Transaction = Sequence[Step]
"""From the first request to EndTxn, which alone is the last step."""


@dataclass(frozen=True, slots=True)
class TransactionLoad:
    """Each producer makes its transactions one after the other. With `total` each makes so many, and nothing ends it before."""

    producers: Sequence[Transaction]
    warm_up_s: float
    duration_s: float
    pause_s: float
    total: int = 0


@dataclass(slots=True)
class _Tally:
    """The counts of the window."""

    is_open: bool = False
    finished: int = 0
    refused: int = 0
    sent: int = 0
    received: int = 0
    commits: Histogram = field(default_factory=Histogram)


class _Connection:
    """One socket with at most one request in flight."""

    def __init__(self, to: To, owner: "_Producer") -> None:
        self.socket = socket.create_connection(("127.0.0.1", to.port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.owner = owner
        self._received = b""

    def answer(self) -> bytes | None:
        """The answer without its length, once all of it is there. Raises LoadFailedError."""
        more = self.socket.recv(_RECEIVED_AT_ONCE)
        if not more:
            raise LoadFailedError("the broker closed the connection of a transactional producer")
        received = self._received = self._received + more
        if len(received) < _LENGTH.size or len(received) < _LENGTH.size + _LENGTH.unpack_from(received)[0]:
            return None
        self._received = b""
        return received[_LENGTH.size :]


class _Producer:
    """Goes through its transactions step by step."""

    def __init__(self, transaction: Transaction, tally: _Tally, total: int) -> None:
        self._transaction = transaction
        self._tally = tally
        self._left = total or -1
        self.connections = {to: _Connection(to, self) for to in {asked.to for step in transaction for asked in step}}
        self._number = 0
        self._at = 0
        self._waiting: dict[_Connection, Asked] = {}
        self._began_ns = 0
        self._is_refused = False
        self._is_last = False
        self.has_ended = False

    @property
    def finished(self) -> int:
        """Transactions so far."""
        return self._number

    def stop(self) -> None:
        """End after the current transaction."""
        self._is_last = True

    def send(self) -> None:
        """Send the requests of the step."""
        self._is_refused = False
        step = self._transaction[self._at]
        frames = [asked.frame(self._number) for asked in step]
        self._began_ns = time.monotonic_ns()
        for asked, frame in zip(step, frames, strict=True):
            connection = self.connections[asked.to]
            self._waiting[connection] = asked
            connection.socket.sendall(frame)
            self._tally.sent += len(frame)

    def take(self, connection: _Connection, answer: bytes) -> bool:
        """Take an answer, and send what comes next. False: after a pause. Raises LoadFailedError."""
        self._tally.received += len(answer)
        asked = self._waiting.pop(connection)
        for place in asked.error_offsets:
            (code,) = _CODE.unpack_from(answer, place)
            if code in REFUSALS:
                self._is_refused = True
            elif code:
                raise LoadFailedError(f"step {self._at + 1} of a transaction was answered with {ErrorCode.of(code).name}")
        if self._waiting:
            return True
        if self._is_refused:
            self._tally.refused += 1
            return False
        self._advance()
        if not self.has_ended:
            self.send()
        return True

    def _advance(self) -> None:
        self._at += 1
        if self._at < len(self._transaction):
            return
        if self._tally.is_open:
            self._tally.finished += 1
            self._tally.commits.record(time.monotonic_ns() - self._began_ns)
        self._at = 0
        self._number += 1
        self._left -= 1
        self.has_ended = self._is_last or not self._left


@dataclass(frozen=True, slots=True)
class MeasuredTransactions:
    """`window` counts transactions, with the latency of their commits; `refused` is how often one of them was refused, on average."""

    window: Measured
    refused: float


def run_transactions(
    load: TransactionLoad, *, pin_cpu: int | None = None, probe: Callable[[], float] = lambda: 0.0
) -> MeasuredTransactions:
    """Run one load to its end. `probe` tells the broker's processor seconds so far. Raises LoadFailedError, OSError."""
    tally = _Tally()
    producers = [_Producer(transaction, tally, load.total) for transaction in load.producers]
    try:
        with pinned_to(pin_cpu), without_collections():
            return _run(load, producers, tally, probe)
    finally:
        for producer in producers:
            for connection in producer.connections.values():
                connection.socket.close()


@contextmanager
def without_collections() -> Iterator[None]:
    """A collection of garbage would be a part of a latency."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _run(load: TransactionLoad, producers: Sequence[_Producer], tally: _Tally, probe: Callable[[], float]) -> MeasuredTransactions:
    loop = _Loop(producers, load.pause_s)
    loop.start()
    if load.total:
        tally.is_open = True
    else:
        loop.run_for(load.warm_up_s)
    before_s, cpu_before_s, began = probe(), time.thread_time(), time.monotonic()
    tally.is_open, tally.refused, tally.sent, tally.received = True, 0, 0, 0
    if load.total:
        loop.run_to_end()
    else:
        loop.run_for(load.duration_s)
    window_s, generator_s, broker_s = time.monotonic() - began, time.thread_time() - cpu_before_s, probe() - before_s
    tally.is_open = False
    refused = tally.refused
    measured = Measured(tally.finished, tally.finished, window_s, tally.sent, tally.received, tally.commits, generator_s, broker_s)
    for producer in producers:
        producer.stop()
    loop.run_to_end()
    return MeasuredTransactions(measured, refused / max(tally.finished, 1))


class _Loop:
    """Waits for answers and for the ends of pauses."""

    def __init__(self, producers: Sequence[_Producer], pause_s: float) -> None:
        self._producers = producers
        self._pause_s = pause_s
        self._poll = select.epoll()
        self._connections: dict[int, _Connection] = {}
        self._pausing: list[tuple[float, int, _Producer]] = []
        self._order = count()
        for producer in producers:
            for connection in producer.connections.values():
                self._connections[connection.socket.fileno()] = connection
                self._poll.register(connection.socket.fileno(), select.EPOLLIN)

    def start(self) -> None:
        for producer in self._producers:
            producer.send()

    def run_for(self, seconds: float) -> None:
        """Raises LoadFailedError."""
        ends_at = time.monotonic() + seconds
        while (now := time.monotonic()) < ends_at:
            self._turn(now, ends_at)

    def run_to_end(self) -> None:
        """Until all producers have ended. Raises LoadFailedError."""
        last = [producer.finished for producer in self._producers]
        deadline = time.monotonic() + PATIENCE_S
        while not all(producer.has_ended for producer in self._producers):
            now = time.monotonic()
            finished = [producer.finished for producer in self._producers]
            if finished != last:
                last, deadline = finished, now + PATIENCE_S
            elif now > deadline:
                raise LoadFailedError(f"a transactional producer has finished nothing for {PATIENCE_S:.0f} s")
            self._turn(now, now + PATIENCE_S)

    def _turn(self, now: float, until: float) -> None:
        while self._pausing and self._pausing[0][0] <= now:
            heapq.heappop(self._pausing)[2].send()
        wakes_at = min(self._pausing[0][0], until) if self._pausing else until
        ready = self._poll.poll(max(wakes_at - now, 0))
        if not ready and wakes_at - now >= PATIENCE_S:
            raise LoadFailedError(f"no answer to a transactional producer within {PATIENCE_S:.0f} s")
        for descriptor, _ in ready:
            connection = self._connections[descriptor]
            answer = connection.answer()
            if answer is not None and not connection.owner.take(connection, answer):
                heapq.heappush(self._pausing, (time.monotonic() + self._pause_s, next(self._order), connection.owner))
