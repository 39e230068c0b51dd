"""Limits the bytes that are read from the remote store (`remote.log.manager.fetch.max.bytes.per.second`): Kafka's RLMFetch quota.

Unlike in Apache Kafka, bytes count before they are read, and those of a failed read are given back. So parallel reads do not exceed it
together.
"""

from __future__ import annotations

from ottla.config.broker import BrokerConfig
from ottla.config.keys.tiered import (
    REMOTE_LOG_MANAGER_FETCH_MAX_BYTES_PER_SECOND,
    REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_NUM,
    REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_SIZE_SECONDS,
)
from ottla.replication.ports.throttle import WindowedRate
from ottla.storage.disk.clock import Clock, elapsed_ms

_SHORTEST_SECONDS = 0.01
_LONGEST_SECONDS = 1.0
"""Limits of a wait, after which the rate is looked at again: the limit may have changed meanwhile."""


class FetchQuota:
    """The quota of one broker. Follows its dynamic configuration. See ByteQuota."""

    __slots__ = ("_clock", "_config", "_rate")

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        window_ms = config[REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_SIZE_SECONDS] * 1000
        self._rate = WindowedRate(config[REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_NUM], window_ms)

    def reserve(self, size: int) -> float:
        """Takes the bytes and returns 0, or takes none and returns the seconds after which to ask again."""
        now_ms = elapsed_ms(self._clock)
        limit = self._config[REMOTE_LOG_MANAGER_FETCH_MAX_BYTES_PER_SECOND]
        rate = self._rate.per_second(now_ms)
        if rate > limit:
            return min(rate / limit - 1, _LONGEST_SECONDS) + _SHORTEST_SECONDS
        self._rate.count(size, now_ms)
        return 0.0

    def give_back(self, size: int) -> None:
        """Returns bytes that were not read."""
        self._rate.count(-size, elapsed_ms(self._clock))

    def bytes_per_second(self) -> float:
        """Returns the rate of the last windows."""
        return max(self._rate.per_second(elapsed_ms(self._clock)), 0.0)
