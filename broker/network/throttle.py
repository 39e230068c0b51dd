"""Defines the port that gives the time for which a client has to wait because of its quotas (KIP-219).

A handler counts the cost of a request with `Connection.throttle`. The returned time goes into the answer, which is sent at once, and the
connection is not read for that time.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from broker.security.client import Client


class QuotaType(IntEnum):
    """ClientQuotaType: the limited resource, and the unit in which it is counted."""

    PRODUCE = 0  # bytes of Produce requests
    FETCH = 1  # bytes of answers to the fetches of consumers
    REQUEST = 2  # nanoseconds of work in a handler
    CONTROLLER_MUTATION = 3  # partitions created or deleted


class Throttle(Protocol):
    """Counts and limits the resources that clients use."""

    @property
    def counts_time(self) -> bool:
        """Whether there is a quota for the time of handlers. Only then every request needs the clock."""

    def record(self, client: Client, quota: QuotaType, amount: int) -> int:
        """Count `amount` for the client. Returns its waiting time in ms; 0 within its quota."""


class NoThrottle:
    """Never makes clients wait: no quota is configured."""

    counts_time: bool = False

    def record(self, client: Client, quota: QuotaType, amount: int) -> int:
        """Returns 0."""
        return 0
