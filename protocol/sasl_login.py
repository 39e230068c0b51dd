"""Logs a client in to a broker: SaslHandshake, then SaslAuthenticate until the exchange is complete (KIP-152, KIP-368).

A login is a generator that yields requests and receives the answers by `send`, so that blocking and asynchronous clients share it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeAlias

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.protocol.schema.fields import Versions
    from ottla.protocol.schema.message import Message

HANDSHAKE_VERSION: Final = 1
"""The first version after which tokens have request headers; brokers have it since Kafka 1.0."""
EARLIEST: Final = 0.85
"""The part of a session after which it may be renewed. Apache Kafka chooses 85 to 95 percent by chance, so that clients spread."""
SPREAD: Final = 0.10


class ServerNotTrusted(Exception):
    """The server's token is malformed, or does not prove that the server knows the credential."""


class CredentialUnavailable(Exception):
    """This side has no credential for the server at present."""


class SaslClient:
    """One exchange of `mechanism`. The result of `first` is sent, then those of `answer`, until `answer` returns None."""

    __slots__ = ("mechanism",)

    may_block: ClassVar[bool] = False
    """Whether a step may wait for another server, so that a thread has to make it."""

    def __init__(self, mechanism: str) -> None:
        self.mechanism = mechanism

    def first(self) -> bytes:
        """The first token. Raises CredentialUnavailable."""
        raise NotImplementedError

    def answer(self, challenge: bytes) -> bytes | None:
        """The next token; None when the exchange is complete. Raises ServerNotTrusted."""
        raise NotImplementedError


class LoginFailed(Exception):
    """The broker refused the login, or this side does not trust the broker. The text names no secret."""


class LoginRequest(NamedTuple):
    """A request of a login."""

    api_key: ApiKey
    version: int
    message: Message


Login: TypeAlias = "Generator[LoginRequest, Message, int]"
"""Yields requests, and is sent their answers."""


def log_in(client: SaslClient, versions: Mapping[int, Versions]) -> Login:
    """Yields requests and expects their answers. Returns the session's lifetime in ms, 0 for no limit. Raises LoginFailed.

    `versions` are those that the broker listed in its answer to ApiVersions.
    """
    from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
    from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
    from ottla.protocol.schema.registry import api

    handshake = versions.get(ApiKey.SASL_HANDSHAKE)
    authenticate = versions.get(ApiKey.SASL_AUTHENTICATE)
    if handshake is None or handshake.last < HANDSHAKE_VERSION or authenticate is None:
        raise LoginFailed("it does not offer SASL as brokers do since Kafka 1.0")
    answer = yield LoginRequest(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, SaslHandshakeRequest(mechanism=client.mechanism))
    assert isinstance(answer, SaslHandshakeResponse)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise LoginFailed(f"it does not offer the SASL mechanism {client.mechanism}, but {', '.join(answer.mechanisms) or 'none'}")
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise LoginFailed("it expects no login: its listener has no SASL, or the last login was a moment ago")
    if answer.error_code != ErrorCode.NONE:
        raise LoginFailed(f"it refused SaslHandshake with {ErrorCode.of(answer.error_code).name}")
    version = min(api(ApiKey.SASL_AUTHENTICATE).versions.last, authenticate.last)
    try:
        token: bytes | None = client.first()
    except CredentialUnavailable as unavailable:
        raise LoginFailed(f"{client.mechanism} with it failed: {unavailable}") from None
    lifetime_ms = 0
    while token is not None:
        answer = yield LoginRequest(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=token))
        assert isinstance(answer, SaslAuthenticateResponse)
        if answer.error_code != ErrorCode.NONE:
            reason = answer.error_message or ErrorCode.of(answer.error_code).name
            raise LoginFailed(f"authentication by {client.mechanism} failed: {reason}")
        try:
            token = client.answer(bytes(answer.auth_bytes))
        except ServerNotTrusted as reason:
            raise LoginFailed(f"{client.mechanism} with it failed: {reason}") from None
        lifetime_ms = answer.session_lifetime_ms
    return lifetime_ms


def advance(steps: Login, answer: Message | None) -> LoginRequest | int:
    """The next request of a login, or in the end the session's lifetime in ms. The first call has no answer. Raises LoginFailed.

    The calls of one login may be made on different threads, one after the other.
    """
    try:
        return next(steps) if answer is None else steps.send(answer)
    except StopIteration as end:
        lifetime_ms: int = end.value
        return lifetime_ms


def renewal_seconds(lifetime_ms: int, random_bytes: Callable[[int], bytes]) -> float:
    """The time until a session should be renewed, in seconds; infinite for a session without a limit."""
    if lifetime_ms <= 0:
        return float("inf")
    chance = int.from_bytes(random_bytes(2), "big") / 0x10000
    return lifetime_ms / 1000 * (EARLIEST + SPREAD * chance)
