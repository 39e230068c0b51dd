"""Limits the bytes that are copied to the remote store (`remote.log.manager.copy.max.bytes.per.second`): Kafka's RLMCopy quota.

A segment counts as a whole, and may be larger than all that the limit allows in the windows of the rate. So the next copy waits until the
bytes before it may have been sent at the limit. The rate is for metrics alone.
"""

from __future__ import annotations

import asyncio

from ottla.config.broker import BrokerConfig
from ottla.config.keys.tiered import (
    REMOTE_LOG_MANAGER_COPY_MAX_BYTES_PER_SECOND,
    REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_NUM,
    REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_SIZE_SECONDS,
)
from ottla.replication.ports.throttle import WindowedRate
from ottla.storage.disk.clock import Clock, elapsed_ms

_LONGEST_SECONDS = 1.0
"""Time after which a copy that waits looks at the limit again: it may have changed."""
_NO_SECONDS = 0.001


class CopyQuota:
    """The quota of one broker. Follows its dynamic configuration."""

    __slots__ = ("_clock", "_config", "_free_at", "_limit", "_rate", "throttle_ms_max", "throttle_ms_total", "throttled")

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        window_ms = config[REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_SIZE_SECONDS] * 1000
        self._rate = WindowedRate(config[REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_NUM], window_ms)
        self._limit = 0
        self._free_at = 0.0
        """Time at which the reserved bytes may all have been sent."""
        self.throttled = 0
        """Number of copies that waited."""
        self.throttle_ms_total = 0
        self.throttle_ms_max = 0

    async def reserve(self, size: int) -> None:
        """Waits until the bytes before may have been sent, and counts these, before they are sent."""
        began = elapsed_ms(self._clock)
        while True:
            wait_seconds = self._wait_seconds()
            if not wait_seconds:
                break
            await asyncio.sleep(wait_seconds)
        now = elapsed_ms(self._clock)
        self._rate.count(size, now)
        self._free_at = max(self._free_at, self._clock.monotonic()) + size / self._limit
        if now > began:
            self.throttled += 1
            self.throttle_ms_total += now - began
            self.throttle_ms_max = max(self.throttle_ms_max, now - began)

    def give_back(self, size: int) -> None:
        """Takes back bytes that were reserved and not sent."""
        self._rate.count(-size, elapsed_ms(self._clock))
        self._free_at -= size / self._limit

    def bytes_per_second(self) -> float:
        """The rate of the last windows."""
        return max(self._rate.per_second(elapsed_ms(self._clock)), 0.0)

    def _wait_seconds(self) -> float:
        """The time until the bytes before may have been sent at the limit, at most _LONGEST_SECONDS; 0 if that is now."""
        limit = self._config[REMOTE_LOG_MANAGER_COPY_MAX_BYTES_PER_SECOND]
        if limit != self._limit:
            self._limit = limit
            self._free_at = 0.0
        left = self._free_at - self._clock.monotonic()
        return 0.0 if left < _NO_SECONDS else min(left, _LONGEST_SECONDS)
