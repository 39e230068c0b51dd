"""Makes requests of an ephemeral broker fail, wait or get lost, for its tests.

Faults use the interface of the metrics that measures requests: all requests pass through `FaultyRequests`; other brokers do not have it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.environment import Environment
from ottla.broker.loop.clock import SystemClock
from ottla.broker.metrics.request_metrics import RequestMetrics
from ottla.broker.network.request_channel import CLOSE, Answer, Pending
from ottla.broker.request.running import follow
from ottla.broker.serving.route import Route
from ottla.ephemeral.advanced_time import AdvancedTime
from ottla.ephemeral.disk import DiskFaults, FaultyFileSystem
from ottla.ephemeral.error_answers import error_answer
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema.wire import ProtocolError
from ottla.replication.waiting.timing_wheel import Cancellable
from ottla.storage.disk.filesystem import RealFileSystem

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.controller.store.metadata_store import MetadataStore

_FIRST_NUMBER: Final = re.compile(r"\d+")


class Faults:
    """The active faults. There are none until a test sets them."""

    def __init__(self) -> None:
        self.disk = DiskFaults()
        self.time = AdvancedTime()
        """Time that the test has advanced, which no `heal` takes back."""
        self.delay_seconds = 0.0
        """Time by which every request waits before it is handled."""
        self.clock_shift_ms = 0
        """Time by which the broker's clock is ahead of that of the machine; negative if it is behind."""
        self.cut_off: set[int] = set()
        """Brokers whose requests are answered by closing their connections."""
        self._failing: dict[int, deque[ErrorCode | None]] = {}

    def fail(self, api_key: ApiKey, error: ErrorCode | None, times: int) -> None:
        """Answer the next requests of an API with an error; None closes the connection instead."""
        self._failing.setdefault(int(api_key), deque()).extend([error] * times)

    def heal(self) -> None:
        """End all faults."""
        self.delay_seconds = 0.0
        self.clock_shift_ms = 0
        self.cut_off.clear()
        self._failing.clear()
        self.disk.heal()

    def answer(self, frame: memoryview, route: Route, client_id: str | None) -> Answer | None:
        """The answer to a request that a fault hits; None if it is to be handled."""
        if self.cut_off and route.is_between_brokers | (route.api_key == ApiKey.FETCH):
            sender = _FIRST_NUMBER.search(client_id or "")
            if sender is not None and int(sender[0]) in self.cut_off:
                return CLOSE
        failing = self._failing.get(route.api_key)
        if not failing:
            return None
        error = failing.popleft()
        try:
            return CLOSE if error is None else error_answer(frame, route, error)
        except ProtocolError:
            return None  # the broker closes the connection of a malformed request


class FaultyRequests(RequestMetrics):
    """Measures requests, and applies the faults to them."""

    faults: Faults

    def handle(self, handle: Callable[[memoryview, Connection], Answer], frame: memoryview, connection: Connection, route: Route) -> Answer:
        """See RequestMetrics. Every request comes here."""
        try:
            answer = self.faults.answer(frame, route, connection.client.client_id)
            if answer is not None:
                return answer
            if self.faults.delay_seconds:
                return self._later(handle, bytearray(frame), connection, route)
            return super().handle(handle, frame, connection, route)
        finally:
            route.sample_at = route.requests + 1

    def _later(self, handle: Callable[[memoryview, Connection], Answer], frame: bytearray, connection: Connection, route: Route) -> Pending:
        pending = Pending(in_turns=True)

        def run() -> None:
            if pending.connection is None:
                return  # the client has left
            route.sample_at = 0
            try:
                answer = handle(memoryview(frame), connection)
            finally:
                route.sample_at = route.requests + 1
            if isinstance(answer, Pending):
                follow(answer, pending)
            else:
                pending.complete(answer)

        asyncio.get_running_loop().call_later(self.faults.delay_seconds, run)
        return pending


class ShiftedClock(SystemClock):
    """The clocks of the machine, which a test may advance. A fault shifts the time of day, but not durations."""

    __slots__ = ("_faults",)

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def now_ms(self) -> int:
        """See SystemClock."""
        return super().now_ms() + self._faults.clock_shift_ms + int(self._faults.time.advanced_s * 1000)

    def monotonic(self) -> float:
        """See SystemClock."""
        return super().monotonic() + self._faults.time.advanced_s

    def monotonic_ns(self) -> int:
        """The same in nanoseconds."""
        return time.monotonic_ns() + int(self._faults.time.advanced_s * 1e9)


class FaultyEnvironment(Environment):
    """The real machine, with faults."""

    has_store_process = False
    measures_requests = True

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults
        self.clock = clock = ShiftedClock(faults)
        self.clock_ns = clock.monotonic_ns
        self.file_system = FaultyFileSystem(RealFileSystem(), faults.disk)

    @property
    def call_later(self) -> Callable[[float, Callable[[], object]], Cancellable]:
        """See Environment."""
        return self._faults.time.call_later

    def request_metrics(self, *arguments: Any) -> RequestMetrics:
        """See Environment."""
        made = FaultyRequests(*arguments)
        made.faults = self._faults
        return made

    def metadata_store(self, open_store: Callable[[], MetadataStore]) -> MetadataStore:
        """See Environment. The metadata file is not flushed either."""
        from ottla.controller.store.embedded_store import EmbeddedStore

        store = open_store()
        if isinstance(store, EmbeddedStore):
            store.is_durable = False
        return store
