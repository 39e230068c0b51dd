"""Limits the bytes that go to the remote store, and those that come from it: Kafka's quotas RLMCopy and RLMFetch.

Bytes count before they are transferred, and are given back if they are not. So parallel transfers do not exceed a quota together. A
segment counts as a whole, and may be larger than all that the limit allows in the windows of the rate. So a transfer waits until the bytes
before it may have been transferred at the limit. The rate is for metrics alone.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.config.keys.tiered import (
    REMOTE_LOG_MANAGER_COPY_MAX_BYTES_PER_SECOND,
    REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_NUM,
    REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_SIZE_SECONDS,
    REMOTE_LOG_MANAGER_FETCH_MAX_BYTES_PER_SECOND,
    REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_NUM,
    REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_SIZE_SECONDS,
)
from ottla.config.schema.key import Key
from ottla.replication.ports.throttle import WindowedRate
from ottla.storage.disk.clock import Clock, elapsed_ms

_LONGEST_SECONDS = 1.0
"""Time after which a transfer that waits looks at the limit again: it may have changed."""
_NO_SECONDS = 0.001


class QuotaKeys(NamedTuple):
    """The keys of one quota."""

    limit: Key[int]
    windows: Key[int]
    window_seconds: Key[int]


COPY: Final = QuotaKeys(
    REMOTE_LOG_MANAGER_COPY_MAX_BYTES_PER_SECOND,
    REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_NUM,
    REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_SIZE_SECONDS,
)
FETCH: Final = QuotaKeys(
    REMOTE_LOG_MANAGER_FETCH_MAX_BYTES_PER_SECOND,
    REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_NUM,
    REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_SIZE_SECONDS,
)


class ByteQuota:
    """A quota of one broker. Follows its dynamic configuration."""

    __slots__ = ("_clock", "_config", "_free_at", "_key", "_limit", "_rate", "throttle_ms_max", "throttle_ms_total", "throttled")

    def __init__(self, config: BrokerConfig, keys: QuotaKeys, clock: Clock) -> None:
        self._config = config
        self._key = keys.limit
        self._clock = clock
        self._rate = WindowedRate(config[keys.windows], config[keys.window_seconds] * 1000)
        self._limit = 0
        self._free_at = 0.0
        """Time at which the reserved bytes may all have been transferred."""
        self.throttled = 0
        """Number of calls of `wait` that had to wait."""
        self.throttle_ms_total = 0
        self.throttle_ms_max = 0

    async def wait(self, size: int) -> None:
        """Waits until the bytes before may have been transferred, and reserves these."""
        began = elapsed_ms(self._clock)
        while True:
            wait_seconds = self.reserve(size)
            if not wait_seconds:
                break
            await asyncio.sleep(wait_seconds)
        waited = elapsed_ms(self._clock) - began
        if waited:
            self.throttled += 1
            self.throttle_ms_total += waited
            self.throttle_ms_max = max(self.throttle_ms_max, waited)

    def reserve(self, size: int) -> float:
        """Takes the bytes and returns 0, or takes none and returns the seconds after which to ask again."""
        limit = self._config[self._key]
        if limit != self._limit:
            self._limit = limit
            self._free_at = 0.0
        now = self._clock.monotonic()
        left = self._free_at - now
        if left >= _NO_SECONDS:
            return min(left, _LONGEST_SECONDS)
        self._rate.count(size, elapsed_ms(self._clock))
        self._free_at = max(self._free_at, now) + size / limit
        return 0.0

    def give_back(self, size: int) -> None:
        """Takes back bytes that were reserved and not transferred."""
        self._rate.count(-size, elapsed_ms(self._clock))
        if self._limit:
            self._free_at -= size / self._limit

    def bytes_per_second(self) -> float:
        """The rate of the last windows."""
        return max(self._rate.per_second(elapsed_ms(self._clock)), 0.0)
