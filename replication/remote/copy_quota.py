"""Limits the bytes that are copied to the remote store (`remote.log.manager.copy.max.bytes.per.second`): Kafka's RLMCopy quota."""

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

_SHORTEST_SECONDS = 0.01
_LONGEST_SECONDS = 1.0
"""Limits of a wait, after which the copy looks at the rate again: the limit may have changed meanwhile."""


class CopyQuota:
    """The quota of one broker. Follows its dynamic configuration."""

    __slots__ = ("_clock", "_config", "_rate", "throttle_ms_max", "throttle_ms_total", "throttled")

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        window_ms = config[REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_SIZE_SECONDS] * 1000
        self._rate = WindowedRate(config[REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_NUM], window_ms)
        self.throttled = 0
        """Number of copies that waited."""
        self.throttle_ms_total = 0
        self.throttle_ms_max = 0

    async def reserve(self, size: int) -> None:
        """Waits until the rate is below the limit, and counts the bytes, before they are sent."""
        began = elapsed_ms(self._clock)
        while True:
            wait_seconds = self._wait_seconds()
            if not wait_seconds:
                break
            await asyncio.sleep(wait_seconds)
        now = elapsed_ms(self._clock)
        self._rate.count(size, now)
        if now > began:
            self.throttled += 1
            self.throttle_ms_total += now - began
            self.throttle_ms_max = max(self.throttle_ms_max, now - began)

    def give_back(self, size: int) -> None:
        """Takes back bytes that were reserved and not sent."""
        self._rate.count(-size, elapsed_ms(self._clock))

    def bytes_per_second(self) -> float:
        """The rate of the last windows."""
        return max(self._rate.per_second(elapsed_ms(self._clock)), 0.0)

    def _wait_seconds(self) -> float:
        """The time until the rate may be below the limit; 0 if it is."""
        limit = self._config[REMOTE_LOG_MANAGER_COPY_MAX_BYTES_PER_SECOND]
        rate = self._rate.per_second(elapsed_ms(self._clock))
        return 0.0 if rate <= limit else min(rate / limit - 1, _LONGEST_SECONDS) + _SHORTEST_SECONDS
