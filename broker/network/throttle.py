"""Defines the port that says for how long a client has to wait because of its quotas (KIP-219).

A handler counts what a request cost with `Connection.throttle`; the time it returns goes into the answer, which leaves at once, and the
connection is not read for that long.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from broker.security.client import Client


class QuotaType(IntEnum):
    """ClientQuotaType: what is limited, and the unit in which it is counted."""

    PRODUCE = 0  # bytes of Produce requests
    FETCH = 1  # bytes of answers to the fetches of consumers
    REQUEST = 2  # nanoseconds of work in a handler
    CONTROLLER_MUTATION = 3  # partitions created or deleted


class Throttle(Protocol):
    """Counts what clients use, and bounds it."""

    @property
    def counts_time(self) -> bool:
        """Whether there is a quota for the time of handlers: the clock is looked at for each request only then."""

    def record(self, client: Client, quota: QuotaType, amount: int) -> int:
        """Counts `amount` for the client; returns for how long it has to wait, ms, 0 while it is within its quota."""


class NoThrottle:
    """Lets nobody wait: no quota is configured."""

    counts_time: bool = False

    def record(self, client: Client, quota: QuotaType, amount: int) -> int:
        """Always 0."""
        return 0
