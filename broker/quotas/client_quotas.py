"""Keeps the quotas of users and client ids, and the sensors of the clients that they limit. Kafka's ClientQuotaManager.

The server makes one; `ottla.broker.configuration.client_quotas` sets the quotas. Only clients with a quota have sensors. Client ids come
from clients, so the number of sensors is limited: at the limit the least recently used ones are dropped. Idle sensors expire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from ottla.broker.quotas.quota_bounds import Entity, QuotaBounds, Tags
from ottla.broker.quotas.quota_type import NS_PER_MS, PERCENT_OF_SECOND, QuotaType
from ottla.broker.quotas.sensors import Average, Rate, Sensor
from ottla.broker.quotas.throttle import Quotas
from ottla.broker.quotas.token_bucket import TokenBucket

MAX_SENSORS: Final = 10_000
"""Sensors of one resource; at the limit a tenth of them is dropped."""
SENSOR_EXPIRATION_MS: Final = 3_600_000
"""Time after which an unused sensor is dropped, ms; Apache Kafka's InactiveSensorExpirationTimeSeconds."""
LONGEST_MS: Final = 1 << 53
"""Longest time over which a rate is measured, ms; numbers stay exact up to here."""
NO_LIMIT: Final = 2**63 - 1

_S = TypeVar("_S", Sensor, TokenBucket)


class Windows(NamedTuple):
    """The windows of a rate: their number, and the length of each, ms."""

    samples: int
    window_ms: int

    @classmethod
    def of(cls, samples: int, window_ms: int) -> Windows:
        """The configured windows. They are shortened if all together are longer than LONGEST_MS."""
        return cls(samples, min(window_ms, LONGEST_MS // samples))


class _Resource(Generic[_S]):
    """The quotas and sensors of one resource."""

    def __init__(self, make: Callable[[Tags, int], _S]) -> None:
        self.bounds = QuotaBounds()
        self.sensors: dict[Tags, _S] = {}
        self._make: Callable[[Tags, int], _S] = make

    def find(self, user: str, client_id: str, now_ms: int) -> _S | None:
        """The sensor of a client, if there is a quota and the sensor exists; a missing one is made."""
        found = self.bounds.find(user, client_id)
        if found is None:
            return None
        tags, bound = found
        sensor = self.sensors.get(tags)
        if sensor is None:
            sensor = self.sensors[tags] = self._make(tags, now_ms)
        sensor.bound = bound
        return sensor

    def drop_before(self, last_ms: int) -> bool:
        """Drop the sensors that were last used before a time. Returns whether there were any."""
        idle = [tags for tags, sensor in self.sensors.items() if sensor.last_ms < last_ms]
        for tags in idle:
            del self.sensors[tags]
        return bool(idle)

    def make_room(self) -> bool:
        """Drop the tenth of the sensors that was used longest ago if there are too many. Returns whether there were."""
        if len(self.sensors) < MAX_SENSORS:
            return False
        for tags in sorted(self.sensors, key=lambda tags: self.sensors[tags].last_ms)[: MAX_SENSORS // 10]:
            del self.sensors[tags]
        return True


class ClientQuotas(Quotas):
    """See the module."""

    def __init__(self, client: Windows, controller: Windows, metrics: Windows, clock_ns: Callable[[], int]) -> None:
        """`client` has the windows of the quotas of bytes and time, `controller` those of mutations, `metrics` those of all averages."""
        Quotas.__init__(self)
        self._clock_ns = clock_ns

        def sensor(max_throttle_ms: int) -> Callable[[Tags, int], Sensor]:
            return lambda tags, now_ms: Sensor(tags, *client, max_throttle_ms, Average(*metrics, now_ms), now_ms)

        def bucket(tags: Tags, now_ms: int) -> TokenBucket:
            seconds = controller.samples * controller.window_ms // 1000
            return TokenBucket(tags, seconds, Rate(*metrics, now_ms), Average(*metrics, now_ms), now_ms)

        self.produce = _Resource(sensor(NO_LIMIT))
        self.fetch = _Resource(sensor(NO_LIMIT))
        self.request = _Resource(sensor(client.window_ms))
        self.mutations = _Resource(bucket)
        self.exempt_request_time = Rate(*metrics, self.now_ms())

    def now_ms(self) -> int:
        """The monotonic time of the sensors."""
        return self._clock_ns() // NS_PER_MS

    def set(self, entity: Entity, bounds: Mapping[QuotaType, float]) -> None:
        """Set all quotas of an entity; those that are not in `bounds` are removed."""
        changed = [resource.bounds.set(entity, bounds.get(quota)) for quota, resource in self._resources()]
        if any(changed):
            self.generation += 1
        self.is_limited = any(len(resource.bounds) for _, resource in self._resources())
        self.counts_time = len(self.request.bounds) > 0

    def sensors_of(self, user: str, client_id: str, now_ms: int) -> tuple[Sensor | None, Sensor | None, Sensor | None, TokenBucket | None]:
        """See `Quotas`."""
        dropped = [resource.make_room() for _, resource in self._resources()]
        if any(dropped):
            self.generation += 1
        return (
            self.produce.find(user, client_id, now_ms),
            self.fetch.find(user, client_id, now_ms),
            self.request.find(user, client_id, now_ms),
            self.mutations.find(user, client_id, now_ms),
        )

    def count_exempt(self, work_ns: int, now_ms: int) -> None:
        """See `Quotas`."""
        self.exempt_request_time.add(work_ns * PERCENT_OF_SECOND, now_ms)

    def expire(self) -> None:
        """Drop the sensors that were idle for SENSOR_EXPIRATION_MS."""
        before_ms = self.now_ms() - SENSOR_EXPIRATION_MS
        dropped = [resource.drop_before(before_ms) for _, resource in self._resources()]
        if any(dropped):
            self.generation += 1

    def _resources(self) -> Iterator[tuple[QuotaType, _Resource[Sensor] | _Resource[TokenBucket]]]:
        yield QuotaType.PRODUCE, self.produce
        yield QuotaType.FETCH, self.fetch
        yield QuotaType.REQUEST, self.request
        yield QuotaType.CONTROLLER_MUTATION, self.mutations
