"""Keeps the sessions of the console's users: logins by password, cookies, and the tokens against forged requests.

A proxy may name the user instead. Without passwords and without a proxy every request belongs to one session, that of the local user.
Sessions end with the process.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import threading
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ottla.console.login.passwords import Passwords
from ottla.console.login.proxy_login import ProxyLogin
from ottla.console.rates import Buckets

LOCAL_USER: Final = "local"
COOKIE: Final = "ottla-session"
"""The beginning of the name of each session's cookie; see `cookie_name`."""
MAX_SESSIONS: Final = 1000
"""Sessions at a time; the oldest ends for a new one."""
SESSION_SECONDS: Final = 12 * 3600.0
"""Time until a session ends, seconds."""
ATTEMPTS_AT_ONCE: Final = 5
"""Wrong passwords of an address before it has to wait."""
SECONDS_PER_ATTEMPT: Final = 10.0
"""Time after which an address may try another password, seconds."""
_IPV6_NETWORK_BITS: Final = 64
_KEY_BYTES: Final = 32


class Session(NamedTuple):
    """A user who has logged in. `token` accompanies each request that changes something."""

    user: str
    token: str
    ends_at: float

    def has_token(self, token: str) -> bool:
        """Whether this is the token of the session."""
        return hmac.compare_digest(self.token.encode(), token.encode("utf-8", "replace"))


class WrongPassword(Exception):
    """The user does not exist, or has another password."""


class TooManyAttempts(Exception):
    """The address has to wait before it may try another password."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"too many wrong passwords from this address; try again in {seconds:.0f} s")


class Sessions:
    """See the module. Called from any thread."""

    def __init__(self, passwords: Passwords | None, monotonic: Callable[[], float], proxy: ProxyLogin | None = None) -> None:
        assert passwords is None or proxy is None, "one of them decides who the user is"
        self._passwords = passwords
        self._proxy = proxy
        self._monotonic = monotonic
        self._attempts = Buckets(ATTEMPTS_AT_ONCE, SECONDS_PER_ATTEMPT, monotonic)
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._local = Session(LOCAL_USER, secrets.token_urlsafe(_KEY_BYTES), float("inf"))

    @property
    def needs_login(self) -> bool:
        """Whether requests need a session of a user."""
        return self._passwords is not None

    @property
    def advice(self) -> str:
        """The error of a request without a session."""
        return "log in first" if self._proxy is None else "the proxy does not name a user, or does not send its secret"

    def of(self, headers: Iterable[tuple[bytes, bytes]]) -> Session | None:
        """The session of the user whom the proxy or the Cookie header names; None without a valid one."""
        if self._proxy is not None:
            user = self._proxy.user_of(headers)
            return None if user is None else self._of_user(user)
        if self._passwords is None:
            return self._local
        with self._lock:
            return self._valid(_key_of(headers))

    def _of_user(self, user: str) -> Session:
        """The session of a user of the proxy, which has no cookie."""
        with self._lock:
            return self._valid(user) or self._begin(user, user)

    def _valid(self, key: str) -> Session | None:
        found = self._sessions.get(key)
        if found is not None and found.ends_at <= self._monotonic():
            del self._sessions[key]
            return None
        return found

    def _begin(self, key: str, user: str) -> Session:
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session = self._sessions[key] = Session(user, secrets.token_urlsafe(_KEY_BYTES), self._monotonic() + SESSION_SECONDS)
        return session

    def log_in(self, user: str, password: str, address: str) -> tuple[str, Session]:
        """Begin a session; the value of its cookie, and the session. Raises WrongPassword, TooManyAttempts."""
        network = _network(address)
        with self._lock:
            seconds = self._attempts.seconds_until_free(network)
            if seconds > 0:
                raise TooManyAttempts(seconds)
            self._attempts.take(network)
        if self._passwords is None or not self._passwords.are_right(user, password):
            raise WrongPassword
        key = secrets.token_urlsafe(_KEY_BYTES)
        with self._lock:
            self._attempts.forgive(network)
            return key, self._begin(key, user)

    def log_out(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """End the session that the Cookie header names."""
        with self._lock:
            self._sessions.pop(_key_of(headers), None)


def cookie_name(host: str) -> str:
    """The name of the session's cookie for a Host header. It contains the port of the console as the browser sees it.

    Browsers send a cookie to every port of a host, so consoles on several ports would replace each other's cookie.
    """
    port = "" if host.endswith("]") else host.rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isascii() and port.isdecimal() else COOKIE


def _key_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The value of the session's cookie. Other servers of the host may have set cookies of any form, which come with it."""
    found = {name: value.decode("latin-1") for name, value in headers if name in (b"cookie", b"host")}
    wanted = cookie_name(found.get(b"host", ""))
    for part in found.get(b"cookie", "").split(";"):
        name, _, value = part.partition("=")
        if name.strip() == wanted:
            return value.strip()
    return ""


def _network(address: str) -> str:
    """The key that limits attempts: the IPv4 address, or the network of an IPv6 address, because one host may have a whole network."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if parsed.version == 4:
        return str(parsed)
    return str(ipaddress.ip_network((parsed, _IPV6_NETWORK_BITS), strict=False))
