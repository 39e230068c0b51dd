"""Limits the number of connections, and the rate of new ones: Kafka's ConnectionQuotas.

The acceptors check before they accept and before they keep a socket. `SocketServer` reports closed connections. Time is an argument.

* max.connections counts the connections of the broker, listener.name.X.max.connections those of one listener. At the limit a listener does
  not accept until a connection closes. An inter-broker listener beside others is protected: it accepts beyond max.connections, and the most
  idle connection of another listener is closed.
* max.connections.per.ip (and its overrides) closes a new connection at once.
* max.connection.creation.rate, for the broker and by listener prefix, delays accepting.
* The quota connection_creation_rate (KIP-612), of one address or of all others, closes a connection that comes too early. It does so after
  a while, so that the client does not retry at once. Unlike the other limits it is not in the broker's configuration: see `set_ip_rate`.
"""

from typing import Final

from ottla.broker.network.limits import INT_MAX, NetworkLimits
from ottla.broker.network.recent import Recent

MAX_IP_RATES: Final = 10_000
"""Addresses whose rates are remembered. At this number, addresses that were silent long enough to have their full rate are forgotten."""
IP_BURST_SECONDS: Final = 10
"""Seconds' worth of its rate that an address may use at once: clients open several connections when they start, and Apache Kafka averages
over as many seconds."""


class Rate:
    """A token bucket that holds the tokens of `seconds`."""

    __slots__ = ("_at", "_seconds", "_tokens")

    def __init__(self, now: float, seconds: int = 1) -> None:
        self._at = now
        self._seconds = seconds
        self._tokens: float | None = None

    def delay(self, per_second: int, now: float) -> float:
        """Seconds until one more is allowed; 0 if it is allowed now."""
        if per_second >= INT_MAX:
            return 0.0
        if per_second <= 0:
            return 1.0  # none is allowed until the limit changes: check again in a second
        most = float(per_second * self._seconds)
        tokens = most if self._tokens is None else min(most, self._tokens + (now - self._at) * per_second)
        self._tokens = tokens
        self._at = now
        # The margin is for sums of floats, which may stay just below 1 forever.
        return 0.0 if tokens >= 1 - 1e-9 else (1 - tokens) / per_second

    def is_idle(self, now: float) -> bool:
        """Whether the bucket is full again."""
        return now - self._at > self._seconds

    def take(self) -> None:
        """Take a token."""
        if self._tokens is not None:
            self._tokens -= 1


class ConnectionQuotas:
    """Counts connections. Every check reads `limits`, so a dynamic change needs no call."""

    __slots__ = (
        "_broker_rate",
        "_default_ip_rate",
        "_hosts",
        "_ip_rates",
        "_ip_tokens",
        "_listener_rates",
        "_listeners",
        "ip_accepts",
        "limits",
        "protected_listener",
        "total",
    )

    def __init__(self, limits: NetworkLimits, now: float) -> None:
        self.limits = limits
        self.total = 0
        self.protected_listener: str | None = None
        self._listeners: dict[str, int] = {}
        self._hosts: dict[str, int] = {}
        self._broker_rate = Rate(now)
        self._listener_rates: dict[str, Rate] = {}
        self._default_ip_rate = INT_MAX
        self._ip_rates: dict[str, int] = {}
        self._ip_tokens: dict[str, Rate] = {}
        self.ip_accepts: dict[str, Recent] = {}
        """Kept connections by address, for addresses with a rate."""

    def has_room(self, listener_name: str) -> bool:
        """Whether the listener may accept one more."""
        limits = self.limits
        if self._listeners.get(listener_name, 0) >= limits.listener_max_connections.get(listener_name, INT_MAX):
            return False
        return listener_name == self.protected_listener or self.total < limits.max_connections

    def is_exceeded(self) -> bool:
        """Whether the protected listener exceeded max.connections, so that another connection must be closed."""
        return self.protected_listener is not None and self.total > self.limits.max_connections

    def creation_delay(self, listener_name: str, now: float) -> float:
        """Seconds to wait before the next accept."""
        limits = self.limits
        rate = self._listener_rates.get(listener_name)
        if rate is None:
            rate = self._listener_rates[listener_name] = Rate(now)
        delay = rate.delay(limits.listener_max_connection_creation_rate.get(listener_name, INT_MAX), now)
        if listener_name == self.protected_listener:
            return delay
        return max(delay, self._broker_rate.delay(limits.max_connection_creation_rate, now))

    def set_ip_rate(self, host: str | None, per_second: int | None) -> None:
        """Set the quota of an address, or of all addresses without one (`host` None). `per_second` None removes it."""
        if host is None:
            self._default_ip_rate = INT_MAX if per_second is None else per_second
        elif per_second is None:
            self._ip_rates.pop(host, None)
        else:
            self._ip_rates[host] = per_second

    def ip_delay(self, host: str, now: float) -> float:
        """Seconds by which an accepted connection came too early. If 0, the connection counts."""
        per_second = self._ip_rates.get(host, self._default_ip_rate)
        if per_second >= INT_MAX:
            return 0.0
        rate = self._ip_tokens.get(host)
        if rate is None:
            if len(self._ip_tokens) >= MAX_IP_RATES:
                self._ip_tokens = {each: tokens for each, tokens in self._ip_tokens.items() if not tokens.is_idle(now)}
                self.ip_accepts = {each: self.ip_accepts[each] for each in self._ip_tokens}
            rate = self._ip_tokens[host] = Rate(now, IP_BURST_SECONDS)
            self.ip_accepts[host] = Recent(now)
        delay = rate.delay(per_second, now)
        if not delay:
            rate.take()
            self.ip_accepts[host].add(now)
        return delay

    def limit_of(self, host: str) -> int:
        """The number of connections that one address may have."""
        return self.limits.max_connections_per_ip_overrides.get(host, self.limits.max_connections_per_ip)

    def open(self, listener_name: str, host: str) -> bool:
        """Count an accepted connection. Returns False if its address has too many; then only its arrival counts."""
        self._broker_rate.take()
        rate = self._listener_rates.get(listener_name)
        if rate is not None:
            rate.take()
        count = self._hosts.get(host, 0)
        if count >= self.limit_of(host):
            return False
        self._hosts[host] = count + 1
        self._listeners[listener_name] = self._listeners.get(listener_name, 0) + 1
        self.total += 1
        return True

    def close(self, listener_name: str, host: str) -> None:
        """Uncount a closed connection that `open` counted."""
        self.total -= 1
        self._listeners[listener_name] -= 1
        count = self._hosts[host] - 1
        if count:
            self._hosts[host] = count
        else:
            del self._hosts[host]

    def count(self, listener_name: str) -> int:
        """The connections of one listener."""
        return self._listeners.get(listener_name, 0)
