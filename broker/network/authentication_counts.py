"""Counts the authentications of one listener: by SASL, and without SASL by TLS. The acceptor owns one; the metrics read it.

The names are those of Kafka's attributes of socket-server-metrics. On a PLAINTEXT listener nothing is counted, as in Apache Kafka.
"""

from __future__ import annotations

from ottla.broker.network.recent import Recent


class AuthenticationCounts:
    """See the module. `now` is the time of the event loop, in seconds."""

    __slots__ = (
        "expired_connections_killed_count",
        "failed_authentication_rate",
        "failed_authentication_total",
        "failed_reauthentication_rate",
        "failed_reauthentication_total",
        "successful_authentication_no_reauth_total",
        "successful_authentication_rate",
        "successful_authentication_total",
        "successful_reauthentication_rate",
        "successful_reauthentication_total",
    )

    def __init__(self, now: float) -> None:
        self.successful_authentication_total = 0
        self.successful_authentication_rate = Recent(now)
        self.successful_authentication_no_reauth_total = 0
        """Those of clients that cannot authenticate again (KIP-368)."""
        self.failed_authentication_total = 0
        self.failed_authentication_rate = Recent(now)
        self.successful_reauthentication_total = 0
        self.successful_reauthentication_rate = Recent(now)
        """Its values are the times that clients took to authenticate again, ms."""
        self.failed_reauthentication_total = 0
        self.failed_reauthentication_rate = Recent(now)
        self.expired_connections_killed_count = 0

    def on_success(self, now: float, *, can_authenticate_again: bool) -> None:
        """A client has authenticated for the first time on its connection."""
        self.successful_authentication_total += 1
        self.successful_authentication_rate.add(now)
        if not can_authenticate_again:
            self.successful_authentication_no_reauth_total += 1

    def on_success_again(self, now: float, took_ms: float) -> None:
        """A client has authenticated again."""
        self.successful_reauthentication_total += 1
        self.successful_reauthentication_rate.add(now, took_ms)

    def on_failure(self, now: float, *, is_again: bool) -> None:
        """A client has failed to authenticate, or to authenticate again."""
        if is_again:
            self.failed_reauthentication_total += 1
            self.failed_reauthentication_rate.add(now)
        else:
            self.failed_authentication_total += 1
            self.failed_authentication_rate.add(now)
