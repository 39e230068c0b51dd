"""Holds the settings that the tasks of tiered storage share, and how long they wait after failures."""

from __future__ import annotations

from collections.abc import Callable

from ottla.config.broker import BrokerConfig
from ottla.config.keys.tiered import (
    REMOTE_LOG_MANAGER_COPIER_THREAD_POOL_SIZE,
    REMOTE_LOG_MANAGER_EXPIRATION_THREAD_POOL_SIZE,
    REMOTE_LOG_MANAGER_TASK_INTERVAL_MS,
    REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MAX_MS,
    REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MS,
    REMOTE_LOG_MANAGER_TASK_RETRY_JITTER,
    REMOTE_LOG_MANAGER_THREAD_POOL_SIZE,
    REMOTE_LOG_METADATA_CUSTOM_METADATA_MAX_BYTES,
)


class RemoteSettings:
    """Settings of the tasks. None of the keys changes while the broker runs."""

    __slots__ = ("backoff_max_ms", "backoff_ms", "broker_id", "copiers", "custom_max_bytes", "expirers", "interval_ms", "jitter", "random")

    def __init__(self, config: BrokerConfig, broker_id: int, random: Callable[[], float]) -> None:
        """`random` gives numbers in [0, 1)."""
        threads = config[REMOTE_LOG_MANAGER_THREAD_POOL_SIZE]
        copiers = config[REMOTE_LOG_MANAGER_COPIER_THREAD_POOL_SIZE]
        expirers = config[REMOTE_LOG_MANAGER_EXPIRATION_THREAD_POOL_SIZE]
        self.broker_id = broker_id
        self.random = random
        self.copiers = threads if copiers == -1 else copiers
        self.expirers = threads if expirers == -1 else expirers
        self.interval_ms = config[REMOTE_LOG_MANAGER_TASK_INTERVAL_MS]
        self.backoff_ms = config[REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MS]
        self.backoff_max_ms = config[REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MAX_MS]
        self.jitter = config[REMOTE_LOG_MANAGER_TASK_RETRY_JITTER]
        self.custom_max_bytes = config[REMOTE_LOG_METADATA_CUSTOM_METADATA_MAX_BYTES]

    def wait_ms(self, failures: int) -> float:
        """The time until the next attempt after so many consecutive failures, at least one."""
        longest: float = min(self.backoff_ms * 2 ** min(failures - 1, 32), self.backoff_max_ms)
        return longest * (1 - self.jitter + 2 * self.jitter * self.random())
