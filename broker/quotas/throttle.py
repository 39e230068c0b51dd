"""Counts the usage of the client of one connection, and determines its throttle time (KIP-124, KIP-219).

Every connection owns a `Throttle`. Handlers charge the cost of each request; the connection is not read for the returned time. A connection
looks up its quotas once. It does so again when `Quotas.generation` changes, or when its client has another principal or client id.

Request time is counted in one place: the connection begins it for each request that it handles, and interrupts it where the request waits.
Later work, in turns of the loop or in a task, is added. The time of a request is charged with its answer. Later work belongs to the next
request of the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ottla.broker.quotas.quota_type import CONTROLLER_MUTATION, FETCH, NS_PER_MS, PERCENT_OF_SECOND, PRODUCE, REQUEST
from ottla.broker.quotas.sensors import Sensor
from ottla.broker.security.client import Client

if TYPE_CHECKING:
    from ottla.broker.quotas.token_bucket import TokenBucket


class Quotas:
    """The quotas of a broker, as its connections see them. This base class limits no client."""

    __slots__ = ("counts_time", "delayed", "generation", "is_limited")

    def __init__(self) -> None:
        self.is_limited = False
        """Whether any quota is set. Otherwise nothing is counted."""
        self.counts_time = False
        """Whether a quota for the time of handlers is set. Only then every request needs the clock."""
        self.generation = 0
        """A number that changes whenever a client may have other sensors."""
        self.delayed = [0, 0, 0, 0]
        """Connections that wait now, by the QuotaType that makes them wait."""

    def sensors_of(self, user: str, client_id: str, now_ms: int) -> tuple[Sensor | None, Sensor | None, Sensor | None, TokenBucket | None]:
        """The sensors of a client by QuotaType; None where the client has no quota. New ones measure from `now_ms` on."""
        return None, None, None, None

    def count_exempt(self, work_ns: int, now_ms: int) -> None:
        """Count the time of a request that has no quota."""


@final
class Throttle:
    """See the module. Times are monotonic."""

    __slots__ = (
        "_cause", "_client", "_client_id", "_delayed_by", "_fetch", "_generation", "_mutations", "_principal", "_produce", "_quotas",
        "_request", "_work_ns", "last_time_ms", "since_ns",
    )  # fmt: skip

    def __init__(self, quotas: Quotas, client: Client) -> None:
        self._quotas = quotas
        self._client = client
        self._generation = -1
        self._principal: object = None
        self._client_id: bytes | None = None
        self._produce: Sensor | None = None
        self._fetch: Sensor | None = None
        self._request: Sensor | None = None
        self._mutations: TokenBucket | None = None
        self.since_ns = 0
        """Since when work is in progress; 0 if none is. The connection sets it."""
        self._work_ns = 0  # work that is not charged yet
        self.last_time_ms = 0
        """The result of the last charge."""
        self._cause = REQUEST  # the quota of the last throttle time
        self._delayed_by = -1  # the quota because of which the connection waits; -1 if it does not

    # Request time -----------------------------------------------------------------------------------------------------------------------

    def interrupt(self, now_ns: int) -> None:
        """Keep the work until now for a request that is answered later."""
        if self.since_ns:
            self._work_ns += now_ns - self.since_ns
            self.since_ns = now_ns

    def add_work(self, work_ns: int) -> None:
        """Add work that was done elsewhere for the request whose answer is awaited."""
        self._work_ns += work_ns

    def _take_work(self, now_ns: int) -> int:
        work_ns = self._work_ns
        self._work_ns = 0
        if self.since_ns:
            work_ns += now_ns - self.since_ns
            self.since_ns = now_ns
        return work_ns

    # Counting ---------------------------------------------------------------------------------------------------------------------------

    def charge(self, quota: int, amount: int, now_ns: int) -> int:
        """Count `amount` towards a quota of the client, and the work towards its request quota. Returns the longer waiting time, ms.

        A fetch that has to wait is not counted, because its answer is empty. The amount of CONTROLLER_MUTATION is the waiting time itself.
        """
        now_ms = now_ns // NS_PER_MS
        self._look_up(now_ms)
        time_ms = 0
        work_ns = self._take_work(now_ns)
        sensor = self._request
        if sensor is not None and work_ns > 0:
            time_ms = sensor.record(work_ns * PERCENT_OF_SECOND, now_ms)
        cause = REQUEST
        other_ms = 0
        if quota == PRODUCE:
            sensor = self._produce
            if sensor is not None:
                other_ms = sensor.record(amount, now_ms)
        elif quota == FETCH:
            sensor = self._fetch
            if sensor is not None:
                other_ms = sensor.record(amount, now_ms)
                if time_ms > 0 or other_ms > 0:
                    sensor.add(-amount, now_ms)
        elif quota == CONTROLLER_MUTATION:
            other_ms = amount
        if other_ms > time_ms:
            time_ms = other_ms
            cause = quota
        self.last_time_ms = time_ms
        if time_ms > 0:
            self._note(cause, time_ms, now_ms)
        return time_ms

    def charge_more(self, quota: int, amount: int, now_ns: int) -> None:
        """Count a further amount of a request that was charged before."""
        sensor = self._fetch if quota == FETCH else self._produce
        if sensor is not None:
            sensor.add(amount, now_ns // NS_PER_MS)

    def exempt(self, now_ns: int) -> None:
        """Take the work out of the account of the client: the request has no quota for its time."""
        work_ns = self._take_work(now_ns)
        if work_ns > 0 and self._quotas.counts_time:
            self._quotas.count_exempt(work_ns, now_ns // NS_PER_MS)

    def most_fetch_bytes(self, now_ns: int) -> float:
        """Bytes up to which a fetch certainly gets no throttle time; infinite without a quota."""
        self._look_up(now_ns // NS_PER_MS)
        sensor = self._fetch
        return float("inf") if sensor is None else sensor.most_at_once()

    def mutations(self, now_ns: int) -> TokenBucket | None:
        """The bucket of the client; None if it has no quota for partitions."""
        self._look_up(now_ns // NS_PER_MS)
        return self._mutations

    def _note(self, cause: int, time_ms: int, now_ms: int) -> None:
        self._cause = cause
        if cause == CONTROLLER_MUTATION:
            if self._mutations is not None:
                self._mutations.throttle_time.add(time_ms, now_ms)
            return
        sensor = self._produce if cause == PRODUCE else self._fetch if cause == FETCH else self._request
        if sensor is not None:
            sensor.throttle_time.add(time_ms, now_ms)

    def _look_up(self, now_ms: int) -> None:
        client = self._client
        quotas = self._quotas
        if self._generation == quotas.generation and client.principal is self._principal and client.client_id_bytes is self._client_id:
            return
        self._principal = client.principal
        self._client_id = client.client_id_bytes
        if client.sasl is not None and not client.sasl.is_authenticated:
            # It has no name yet. Other limits bound the cost of authentication.
            self._produce = self._fetch = self._request = self._mutations = None
        else:
            found = quotas.sensors_of(client.principal.name, client.client_id or "", now_ms)
            self._produce, self._fetch, self._request, self._mutations = found
        self._generation = quotas.generation

    # Waiting ----------------------------------------------------------------------------------------------------------------------------

    def begin_delay(self) -> None:
        """Note that the connection waits from now on, because of the quota of the last charge."""
        self.end_delay()
        self._delayed_by = self._cause
        self._quotas.delayed[self._delayed_by] += 1

    def end_delay(self) -> None:
        """Note that the connection has stopped waiting."""
        if self._delayed_by >= 0:
            self._quotas.delayed[self._delayed_by] -= 1
            self._delayed_by = -1
