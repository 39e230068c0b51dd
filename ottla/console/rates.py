"""Limits the rate of events for each key: a burst at once, then one per interval. Memory is bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MAX_KEYS: Final = 1000
"""Keys with an own bucket; further keys share one until a bucket is full again."""
_SHARED: Final = ""


class Buckets:
    """Token buckets: a key has `burst` tokens, and gets one back every `seconds`. The caller holds a lock."""

    def __init__(self, burst: int, seconds: float, monotonic: Callable[[], float]) -> None:
        self._seconds = seconds
        self._room = burst * seconds
        self._monotonic = monotonic
        self._busy_until: dict[str, float] = {}

    def seconds_until_free(self, key: str) -> float:
        """Seconds until the key has a token; 0 if it has one now."""
        now = self._monotonic()
        busy_until = self._busy_until.get(self._key(key, now), now)
        return max(busy_until + self._seconds - self._room - now, 0.0)

    def take(self, key: str) -> None:
        """Take a token of the key."""
        now = self._monotonic()
        known = self._key(key, now)
        self._busy_until[known] = max(self._busy_until.get(known, now), now) + self._seconds

    def forgive(self, key: str) -> None:
        """Give the key all of its tokens back."""
        self._busy_until.pop(key, None)

    def __len__(self) -> int:
        return len(self._busy_until)

    def _key(self, key: str, now: float) -> str:
        if key in self._busy_until or len(self._busy_until) < MAX_KEYS:
            return key
        self._busy_until = {known: until for known, until in self._busy_until.items() if until > now}
        return key if len(self._busy_until) < MAX_KEYS else _SHARED
