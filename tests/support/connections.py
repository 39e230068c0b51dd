"""Provides a client connection as handlers see it, without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.quotas.token_bucket import MutationQuota, TokenBucket
from ottla.broker.security.access import Access
from ottla.broker.security.authorizer import AllowAll, Authorizer
from ottla.broker.security.client import Client

if TYPE_CHECKING:
    from ottla.broker.network.request_channel import Pending
    from ottla.broker.network.timings import Timing


class ClientConnection:
    """`reasons`: what was said of the client in the log. `throttle_time_ms`: the answer to every count of a quota; `counted` has those.

    `bucket`: what it has of partitions to create and delete. `exempted`: requests that do not count.
    `events`: what an answer that it waits for has told it. `work_ns`: the time that the handler waited."""

    def __init__(self, authorizer: Authorizer | None = None, client_host: str = "host", listener_name: str = "PLAINTEXT") -> None:
        self.client = Client("local:1-host:2-0", client_host, 2, listener_name)
        self.access = Access(authorizer or AllowAll(), self.client)
        self.reasons: list[str] = []
        self.throttle_time_ms = 0
        self.last_throttle_time_ms = 0
        self.counted: list[tuple[int, int]] = []
        self.counted_more: list[tuple[int, int]] = []
        self.most_fetch_bytes = float("inf")
        self.bucket: TokenBucket | None = None
        self.now_ms = 0
        self.exempted = 0
        self.work_ns = 0
        self.events: list[str] = []
        self.received_ns = 0
        self.timings: tuple[Timing, ...] = ()

    def offend(self, reason: str) -> None:
        self.reasons.append(reason)

    def add_timing(self, timing: Timing) -> None:
        self.timings = (*self.timings, timing)

    def throttle(self, quota: int, amount: int) -> int:
        self.counted.append((quota, amount))
        return self.throttle_time_ms

    def count_more(self, quota: int, amount: int) -> None:
        self.counted_more.append((quota, amount))

    def mutation_quota(self, *, is_strict: bool) -> MutationQuota:
        return MutationQuota(self.bucket, lambda: self.now_ms, is_strict=is_strict)

    def throttle_mutations(self, quota: MutationQuota) -> int:
        return max(quota.throttle_time_ms(), self.throttle_time_ms)

    def exempt(self) -> None:
        self.exempted += 1

    # While it waits for an answer (`network.request_channel.Waiter`)

    def on_answer_ready(self) -> None:
        self.events.append("answered")

    def hold_slot(self, pending: Pending) -> None:
        self.events.append("holds a slot")

    def begin_work(self) -> None:
        self.events.append("begin")

    def end_work(self) -> None:
        self.events.append("end")

    def add_work(self, work_ns: int) -> None:
        self.work_ns += work_ns
