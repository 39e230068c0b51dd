"""Limits how many partitions clients create and delete: Kafka's TokenBucket and its controller mutation quotas (KIP-599).

A bucket is filled at the rate of the quota, and holds what flows in during all windows. A request takes a token for each partition. Any
number of tokens may be taken while the bucket is not exhausted, so that its content may fall below zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.quotas.java_numbers import java_int, java_round
from ottla.controller.errors import ThrottlingQuotaExceeded
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.quotas.quota_bounds import Tags
    from ottla.broker.quotas.sensors import Average, Rate


class TokenBucket:
    """The tokens of clients that share a quota. A new bucket is full."""

    __slots__ = ("_filled_ms", "_tokens", "_window_seconds", "bound", "last_ms", "mutation_rate", "tags", "throttle_time")

    def __init__(self, tags: Tags, window_seconds: int, mutation_rate: Rate, throttle_time: Average, now_ms: int) -> None:
        """`window_seconds` is the length of all windows together."""
        self.tags = tags
        self.bound = 0.0
        """Tokens that flow in per second."""
        self.last_ms = now_ms
        """The time of the last request."""
        self.mutation_rate = mutation_rate
        self.throttle_time = throttle_time
        self._window_seconds = window_seconds
        self._tokens = float("inf")
        self._filled_ms = now_ms

    def tokens(self, now_ms: int) -> float:
        """The tokens in the bucket now, negative if it is exhausted."""
        filled = self._tokens + self.bound * (now_ms - self._filled_ms) / 1000
        self._tokens = min(self.bound * self._window_seconds, filled)
        self._filled_ms = now_ms
        return self._tokens

    def take(self, count: int, now_ms: int) -> None:
        """Take tokens."""
        self._tokens = self.tokens(now_ms) - count
        self.last_ms = now_ms
        """The time of the last request."""
        self.mutation_rate.add(count, now_ms)

    def throttle_time_ms(self, now_ms: int) -> int:
        """The time until the bucket is not exhausted, ms."""
        tokens = self.tokens(now_ms)
        if tokens >= 0:
            return 0
        return java_round(-tokens / self.bound * 1000 if self.bound else float("inf"))


class MutationQuota:
    """The quota of one request. Kafka's StrictControllerMutationQuota and PermissiveControllerMutationQuota."""

    __slots__ = ("_at_ms", "_bucket", "_is_strict", "_now_ms", "_throttle_time_ms")

    def __init__(self, bucket: TokenBucket | None, now_ms: Callable[[], int], *, is_strict: bool) -> None:
        """`bucket` is None for a client without a quota. `is_strict`: an exhausted bucket gives no tokens."""
        self._bucket = bucket
        self._now_ms = now_ms
        self._is_strict = is_strict
        self._throttle_time_ms = 0
        self._at_ms = 0

    def take(self, partitions: int) -> None:
        """Count partitions that are about to be created or deleted. Raises ThrottlingQuotaExceeded if the client has to wait first."""
        bucket = self._bucket
        if bucket is None:
            return
        now_ms = self._now_ms()
        if not self._is_strict:
            bucket.take(partitions, now_ms)
        time_ms = bucket.throttle_time_ms(now_ms)
        if time_ms:
            self._throttle_time_ms, self._at_ms = time_ms, now_ms
        if self._is_strict:
            if time_ms:
                raise ThrottlingQuotaExceeded(ErrorCode.THROTTLING_QUOTA_EXCEEDED.message)
            bucket.take(partitions, now_ms)

    def throttle_time_ms(self) -> int:
        """The time for which the client has to wait from now on, ms."""
        if not self._throttle_time_ms:
            return 0
        return java_int(max(self._throttle_time_ms - (self._now_ms() - self._at_ms), 0))
