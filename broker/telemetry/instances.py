"""Keeps the client instances that ask for subscriptions and push metrics, with the latest values of each.

Pure: time is an argument. There are at most `max_instances`, with at most `max_series` values together. The instances that were used least
recently are forgotten first, and each when it has been silent for three intervals, at least a minute. A client that was forgotten is
known again with its next request, as in Apache Kafka.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from ottla.broker.telemetry.series import Sample, Series
from ottla.broker.telemetry.subscriptions import Merged
from ottla.protocol.errors import ErrorCode

MIN_EXPIRY_MS: Final = 60_000
INTERVALS_TO_EXPIRY: Final = 3
MAX_SERIES_OF_INSTANCE: Final = 1_000


class Instance:
    """A client instance and its subscription."""

    __slots__ = (
        "_last_get_ms",
        "_last_push_ms",
        "is_terminating",
        "last_error",
        "seen_ms",
        "subscription",
        "values",
        "version",
    )

    def __init__(self, subscription: Merged, version: int) -> None:
        self.values: dict[Series, float] = {}
        self.seen_ms = 0
        self.begin(subscription, version)

    def begin(self, subscription: Merged, version: int) -> None:
        """Have a subscription from now on; `version` is that of all subscriptions."""
        self.subscription = subscription
        self.version = version
        self._last_get_ms = 0
        self._last_push_ms = 0
        self.is_terminating = False
        self.last_error = ErrorCode.NONE

    def may_get(self, now_ms: int) -> bool:
        """Whether an interval has passed since the latest request."""
        if now_ms - max(self._last_get_ms, self._last_push_ms) < self.subscription.interval_ms:
            return False
        self._last_get_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Whether an interval has passed since the latest push. The first push after a get comes earlier, because clients vary its time."""
        if self._last_get_ms <= self._last_push_ms and now_ms - self._last_push_ms < self.subscription.interval_ms:
            return False
        self._last_push_ms = now_ms
        return True

    def is_expired(self, now_ms: int) -> bool:
        """Whether the client has been silent for too long."""
        return now_ms - self.seen_ms >= max(MIN_EXPIRY_MS, INTERVALS_TO_EXPIRY * self.subscription.interval_ms)


class Instances:
    """The instances of one broker, by their ids."""

    __slots__ = ("_by_id", "_max_instances", "_max_series", "not_shown", "series")

    def __init__(self, max_instances: int, max_series: int) -> None:
        self._by_id: OrderedDict[bytes, Instance] = OrderedDict()
        self._max_instances = max_instances
        self._max_series = max_series
        self.series = 0
        """The number of values of all instances."""
        self.not_shown = 0
        """The number of pushed values for which there was no room."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Instance]:
        return iter(self._by_id.values())

    def get(self, instance_id: bytes) -> Instance | None:
        """A known instance."""
        return self._by_id.get(instance_id)

    def use(self, instance_id: bytes, instance: Instance, now_ms: int) -> None:
        """Remember an instance that has sent a request now."""
        self._by_id[instance_id] = instance
        self._by_id.move_to_end(instance_id)
        instance.seen_ms = now_ms
        while len(self._by_id) > self._max_instances:
            self._forget(next(iter(self._by_id)))

    def expire(self, now_ms: int) -> None:
        """Forget the instances that have been silent for too long."""
        for instance_id in [each for each, instance in self._by_id.items() if instance.is_expired(now_ms)]:
            self._forget(instance_id)

    def add(self, instance_id: bytes, instance: Instance, samples: Iterable[Sample]) -> None:
        """Take over the values of a push, unless the instance was forgotten meanwhile."""
        if self._by_id.get(instance_id) is not instance:
            return
        values = instance.values
        before = len(values)
        most = min(MAX_SERIES_OF_INSTANCE, self._max_series)
        for series, value, is_delta in samples:
            if series in values:
                values[series] = values[series] + value if is_delta else value
            elif len(values) < most:
                values[series] = value
            else:
                self.not_shown += 1
        self.series += len(values) - before
        while self.series > self._max_series:
            oldest = next(iter(self._by_id))
            if oldest == instance_id:  # it waited for the worker thread, and others were used meanwhile
                self._by_id.move_to_end(instance_id)
            else:
                self._forget(oldest)

    def _forget(self, instance_id: bytes) -> None:
        self.series -= len(self._by_id.pop(instance_id).values)
