"""Provides a client connection as handlers see it, without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.throttle import QuotaType
from broker.security.access import Access
from broker.security.authorizer import AllowAll, Authorizer
from broker.security.client import Client

if TYPE_CHECKING:
    from broker.network.timings import Timing


class ClientConnection:
    """`reasons`: what was said of the client in the log. `throttle_time_ms`: the answer to every count of a quota; `counted` has those."""

    def __init__(self, authorizer: Authorizer | None = None, client_host: str = "host", listener_name: str = "PLAINTEXT") -> None:
        self.client = Client("local:1-host:2-0", client_host, 2, listener_name)
        self.access = Access(authorizer or AllowAll(), self.client)
        self.reasons: list[str] = []
        self.throttle_time_ms = 0
        self.counted: list[tuple[QuotaType, int]] = []
        self.counts_time = False
        self.received_ns = 0
        self.timings: tuple[Timing, ...] = ()

    def offend(self, reason: str) -> None:
        self.reasons.append(reason)

    def add_timing(self, timing: Timing) -> None:
        self.timings = (*self.timings, timing)

    def throttle(self, quota: QuotaType, amount: int) -> int:
        self.counted.append((quota, amount))
        return self.throttle_time_ms
