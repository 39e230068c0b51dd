"""Counts requests of each kind and measures the time that they spend in each stage. Kafka's RequestMetrics.

Every request is counted, by one increment in the dispatcher. Times are sampled: every request at a low rate, one in up
to 1024 at a high rate, so that measuring costs next to nothing at any load. A sample counts for all requests since the
sample before it. The stages of a request in order:

  received -> RequestQueueTimeMs -> handler -> LocalTimeMs -> answered or waits -> RemoteTimeMs -> completed
    -> ResponseQueueTimeMs -> written -> ResponseSendTimeMs -> sent; TotalTimeMs is all of it

An admin request that a coroutine handles holds a handler slot, so its whole time is local, as is that of a request that
is handled in slices. Bytes that the transport still holds for a slow client count as sent, file regions only when the
socket has taken them.

While requests are logged (`ottla.broker.metrics.request_log`) every request is a sample.

`RequestMetrics` exists only if metrics are exposed or slow requests are logged; otherwise no route has a `sample_at` and the dispatcher
only counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from ottla.broker.metrics.histogram import Histogram
from ottla.broker.metrics.request_log import LoggedRequest, RequestLog
from ottla.broker.metrics.response_errors import ErrorCounts, count_answers
from ottla.broker.network.request_channel import Answer, Control, Pending
from ottla.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.broker.serving.route import Route
    from ottla.replication.ports.topic_stats import BrokerTopicStats

MAX_INTERVAL: Final = 1024
"""Largest number of requests for which one sample counts."""
SAMPLE_SPACING_NS: Final = 5_000_000
"""Samples of one (api, version) that are closer than this, in nanoseconds, double the interval."""

FETCH_CONSUMER: Final = "FetchConsumer"
FETCH_FOLLOWER: Final = "FetchFollower"
VERIFICATION: Final = "AddPartitionsToTxnVerification"
FIRST_VERSION_OF_BROKERS: Final = 4
"""Of AddPartitionsToTxn. Brokers use no older version, and only verify with it; clients use no newer one (KIP-890)."""


class Stations:
    """The histograms of one request name: times in microseconds, request sizes in bytes, throttle times in milliseconds."""

    __slots__ = ("local", "queue", "remote", "request_bytes", "response_queue", "response_send", "throttle", "total")

    def __init__(self) -> None:
        self.queue = Histogram()
        self.local = Histogram()
        self.remote = Histogram()
        self.response_queue = Histogram()
        self.response_send = Histogram()
        self.throttle = Histogram()
        self.total = Histogram()
        self.request_bytes = Histogram()

    def all(self) -> Iterator[Histogram]:
        """Every histogram."""
        return (getattr(self, name) for name in self.__slots__)


class Conversions:
    """The histograms of conversions between message formats; microseconds, and bytes in memory."""

    __slots__ = ("temporary_bytes", "time")

    def __init__(self) -> None:
        self.time = Histogram()
        self.temporary_bytes = Histogram()


class Throttled(Protocol):
    """A connection whose requests may have a throttle time."""

    @property
    def last_throttle_time_ms(self) -> int:
        """The throttle time of the last answer, ms."""


class Timing:
    """One sampled request. The network floor reports when its answer is completed, written and sent; times are
    monotonic ns."""

    __slots__ = ("_clock_ns", "_completed_ns", "_connection", "_handled_ns", "_local_until_completed", "_logged", "_queue_ns",
                 "_received_ns", "_size", "_stations", "_throttle_time_ms", "_weight", "_written_ns")  # fmt: skip

    def __init__(
        self,
        clock_ns: Callable[[], int],
        stations: tuple[Stations, ...],
        weight: int,
        size: int,
        times: tuple[int, int, int],
        connection: Throttled,
        logged: LoggedRequest | None,
        *,
        local_until_completed: bool,
    ) -> None:
        """`times`: when the request was received, passed to its handler, and when the handler returned. `logged` is None while no
        request is logged."""
        received_ns, began_ns, self._handled_ns = times
        self._clock_ns = clock_ns
        self._stations = stations
        self._weight = weight
        self._size = size
        self._received_ns = received_ns
        self._queue_ns = began_ns - received_ns
        self._completed_ns = self._handled_ns
        self._written_ns = 0
        self._connection = connection
        self._throttle_time_ms = connection.last_throttle_time_ms
        self._local_until_completed = local_until_completed
        self._logged = logged

    def on_completed(self) -> None:
        """The event for which the request waited has happened."""
        self._completed_ns = self._clock_ns()
        self._throttle_time_ms = self._connection.last_throttle_time_ms

    def on_write(self) -> None:
        """The answer is about to be written."""
        if not self._written_ns:
            self._written_ns = self._clock_ns()

    def on_sent(self) -> None:
        """The answer was sent, or there is none: the request is finished."""
        sent_ns = self._clock_ns()
        completed_ns = self._completed_ns
        written_ns = self._written_ns or completed_ns
        local_ns = self._handled_ns - self._received_ns - self._queue_ns
        remote_ns = completed_ns - self._handled_ns
        if self._local_until_completed:
            local_ns += remote_ns
            remote_ns = 0
        weight = self._weight
        for stations in self._stations:
            stations.queue.add(self._queue_ns // 1000, weight)
            stations.local.add(local_ns // 1000, weight)
            stations.remote.add(remote_ns // 1000, weight)
            stations.response_queue.add((written_ns - completed_ns) // 1000, weight)
            stations.response_send.add((sent_ns - written_ns) // 1000, weight)
            stations.total.add((sent_ns - self._received_ns) // 1000, weight)
            stations.request_bytes.add(self._size, weight)
            stations.throttle.add(self._throttle_time_ms, weight)
        if self._logged is not None:
            times_ns = (self._queue_ns, local_ns, remote_ns, written_ns - completed_ns, sent_ns - written_ns)
            self._logged.on_sent(times_ns, self._throttle_time_ms)


class _Sampling:
    """Decides when the next request of a route is measured."""

    __slots__ = ("interval", "route", "sampled", "sampled_ns", "seen")

    def __init__(self, route: Route) -> None:
        self.route = route
        self.interval = 1
        self.sampled = 0  # requests for which the samples so far count
        self.sampled_ns = 0
        self.seen = 0  # requests at the last `RequestMetrics.on_beat`

    def take(self, now_ns: int, every: bool) -> int:
        """A request was measured: returns for how many requests it counts, and schedules the next sample, with `every` the next request."""
        route = self.route
        interval = self.interval
        if every:
            self.interval = 1
        elif now_ns - self.sampled_ns < SAMPLE_SPACING_NS:
            self.interval = interval * 2 if interval < MAX_INTERVAL else interval
        elif interval > 1:
            self.interval = interval // 2
        self.sampled_ns = now_ns
        weight = route.requests - self.sampled
        self.sampled = route.requests
        route.sample_at = route.requests + self.interval
        return weight


class RequestMetrics:
    """The metrics of all requests of a broker. The dispatcher calls `watch` and `handle`, the network floor the
    `Timing`s."""

    def __init__(
        self, clock_ns: Callable[[], int], topic_stats: BrokerTopicStats, error_counts: dict[int, int], log: RequestLog | None = None
    ) -> None:
        self.errors = ErrorCounts(error_counts)
        self.log = log or RequestLog(None)
        self._clock_ns = clock_ns
        self._topic_stats = topic_stats
        self._samplings: dict[int, _Sampling] = {}
        self._stations: dict[str, Stations] = {}
        self.conversions = {name: Conversions() for name in ("Produce", "Fetch")}
        """The cost of conversions between message formats, by request name."""
        topic_stats.on_conversion = self._on_conversion

    def watch(self, route: Route) -> None:
        """The first request of its kind arrived: begin to sample its route."""
        self._samplings[route.api_key << 16 | route.version] = _Sampling(route)
        route.sample_at = route.requests + 1
        count_answers(route, self.errors)

    def handle(self, handle: Callable[[memoryview, Connection], Answer], frame: memoryview, connection: Connection, route: Route) -> Answer:
        """Handle a request with `handle` and measure it. The dispatcher has counted it already, and will count it
        again."""
        route.requests -= 1
        route.sample_at = 0
        size = len(frame)
        logged = LoggedRequest(self.log, frame, route, connection.client) if self.log.is_on else None
        follower_fetches = self._follower_fetches() if route.api_key == ApiKey.FETCH else 0
        clock_ns = self._clock_ns
        began_ns = clock_ns()
        try:
            answer = handle(frame, connection)
        finally:
            handled_ns = clock_ns()
            weight = self._samplings[route.api_key << 16 | route.version].take(handled_ns, logged is not None)
        timing = Timing(
            clock_ns,
            self._stations_of(route, follower_fetches),
            weight,
            size,
            (connection.received_ns, began_ns, handled_ns),
            connection,
            logged,
            local_until_completed=isinstance(answer, Pending) and (answer.occupies_slot or answer.in_turns),
        )
        if isinstance(answer, Pending) and not answer.completed:
            answer.timing = timing
        elif isinstance(answer, Control):
            timing.on_sent()
        else:
            connection.add_timing(timing)
        return answer

    def on_beat(self) -> None:
        """Called about every second: if requests have become so rare that the next sample is far away, measure the next
        request. While requests are logged, every next request is measured."""
        self.log.on_beat()
        for sampling in self._samplings.values():
            route = sampling.route
            if (self.log.is_on or route.requests - sampling.seen < MAX_INTERVAL) and route.sample_at > route.requests + 1:
                sampling.interval = 1
                route.sample_at = route.requests + 1
            sampling.seen = route.requests

    def turn(self) -> None:
        """Rotate the windows of the quantiles."""
        for stations in self._stations.values():
            for histogram in stations.all():
                histogram.turn()
        for conversions in self.conversions.values():
            conversions.time.turn()
            conversions.temporary_bytes.turn()

    def requests(self) -> Iterator[tuple[str, int, int]]:
        """(request name, version, number of requests)."""
        followers = self._topic_stats.follower_fetches
        for sampling in self._samplings.values():
            route = sampling.route
            yield _name(route), route.version, route.requests
            if route.api_key == ApiKey.FETCH:
                of_followers = min(followers.get(route.version, 0), route.requests)
                yield FETCH_CONSUMER, route.version, route.requests - of_followers
                if of_followers:
                    yield FETCH_FOLLOWER, route.version, of_followers

    def named(self) -> list[tuple[str, Stations]]:
        """The stages by request name."""
        return list(self._stations.items())

    def _on_conversion(self, request: str, nanoseconds: int, temporary_bytes: int) -> None:
        conversions = self.conversions[request]
        conversions.time.add(nanoseconds // 1000)
        conversions.temporary_bytes.add(temporary_bytes)

    def _stations_of(self, route: Route, follower_fetches: int) -> tuple[Stations, ...]:
        of_all = self._named(_name(route))
        if route.api_key != ApiKey.FETCH:
            return (of_all,)
        is_follower = self._follower_fetches() > follower_fetches
        return of_all, self._named(FETCH_FOLLOWER if is_follower else FETCH_CONSUMER)

    def _follower_fetches(self) -> int:
        return sum(self._topic_stats.follower_fetches.values())

    def _named(self, name: str) -> Stations:
        stations = self._stations.get(name)
        if stations is None:
            stations = self._stations[name] = Stations()
        return stations


def _name(route: Route) -> str:
    is_verification = route.api_key == ApiKey.ADD_PARTITIONS_TO_TXN and route.version >= FIRST_VERSION_OF_BROKERS
    return VERIFICATION if is_verification else request_name(route.api_key)


def request_name(api_key: int) -> str:
    """The name of an api in Kafka's metrics: `AlterPartitionReassignments`, `LeaderAndIsr`."""
    return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))
