"""Defines subscriptions to the metrics of clients, and merges all that match a client (KIP-714).

Pure. A subscription is a configuration resource of the type CLIENT_METRICS. Its `match` compares properties of a client with regular
expressions, which have to match as a whole. A subscription without `match` is for all clients.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.config.errors import ConfigError
from ottla.config.resources import CLIENT_METRICS_KEYS, DEFAULT_INTERVAL_MS, INTERVAL, METRICS, matches_of
from ottla.coordination.groups.consumer.regexes import full_match
from ottla.protocol.records.checksum import crc32c

ALL_METRICS: Final = "*"

Properties = Mapping[str, str | None]
"""The properties of a client by the names in `MATCHED`."""


class Subscription(NamedTuple):
    """Which metrics are wanted of which clients, and how often."""

    metrics: frozenset[str]
    interval_ms: int
    patterns: Mapping[str, Callable[[str], object]]
    """A function for each property of a client that has to match."""

    def matches(self, properties: Properties) -> bool:
        """Whether the subscription is for a client. A property that the client does not have matches nothing."""
        for name, pattern in self.patterns.items():
            value = properties.get(name)
            if value is None or not pattern(value):
                return False
        return True


class Merged(NamedTuple):
    """The union of all subscriptions for a client."""

    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int


def subscription_of(overrides: Mapping[str, str]) -> Subscription | None:
    """The subscription with this configuration. None for one that cannot be used, which only a malformed store has."""
    patterns = {}
    try:
        for part, pattern in matches_of(overrides):
            matches = None if pattern is None else full_match(pattern)
            if matches is None:
                return None
            patterns[part.partition("=")[0].strip()] = matches
        interval_ms = CLIENT_METRICS_KEYS[INTERVAL].type.parse(INTERVAL, overrides.get(INTERVAL, str(DEFAULT_INTERVAL_MS)))
        metrics = CLIENT_METRICS_KEYS[METRICS].type.parse(METRICS, overrides.get(METRICS, ""))
    except ConfigError:
        return None
    return Subscription(frozenset(metrics), interval_ms, patterns)


def merged(matching: Iterable[Subscription], instance_id: bytes) -> Merged:
    """The union of the subscriptions that match a client. The interval is the shortest one, five minutes at most."""
    metrics: set[str] = set()
    interval_ms = DEFAULT_INTERVAL_MS
    for subscription in matching:
        metrics |= subscription.metrics
        interval_ms = min(interval_ms, subscription.interval_ms)
    wanted = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    return Merged(wanted, interval_ms, subscription_id(wanted, interval_ms, instance_id))


def subscription_id(metrics: Iterable[str], interval_ms: int, instance_id: bytes) -> int:
    """The CRC-32C of what is wanted, xor Java's hash of the client instance id: all brokers have the same id for the same client."""
    crc: int = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    words = struct.unpack(">4I", instance_id)
    number: int = crc ^ words[0] ^ words[1] ^ words[2] ^ words[3]
    return number - 2**32 if number >= 2**31 else number
