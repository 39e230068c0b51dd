"""Holds the key sets for signed tokens of one broker, one for each source, whichever listeners use it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ottla.broker.security.sasl.bearer_tokens import Token
from ottla.config.errors import ConfigValueError
from ottla.config.keys.security import SASL_OAUTHBEARER_JWKS_ENDPOINT_URL
from ottla.config.sasl import JwksSource, SaslListener, SignedTokens
from ottla.storage.disk.clock import Clock

if TYPE_CHECKING:
    from ottla.broker.security.sasl.json_web_keys import JsonWebKeys


class KeySets:
    """See the module."""

    def __init__(self, executor: Executor, clock: Clock) -> None:
        self._executor = executor
        self._clock = clock
        self._sets: dict[JwksSource, JsonWebKeys] = {}

    async def load(self, listener: SaslListener) -> None:
        """Read the key sets that a listener needs and that have not been read yet. Raises ConfigError."""
        for mechanism in listener.mechanisms.values():
            if mechanism.signed_tokens is not None and not (keys := self._set_of(mechanism.signed_tokens.source)).keys:
                await keys.load()

    def validator(self, accepted: SignedTokens) -> Callable[[str], Token]:
        """The function that validates such tokens. Until its keys have been read, it refuses all. Raises ConfigError."""
        from ottla.broker.security.sasl.signed_tokens import SignedTokenValidator

        keys = self._set_of(accepted.source)
        keys.begin()
        return SignedTokenValidator(accepted, keys, self._clock.now_ms).validate

    async def close(self) -> None:
        """Stop reading. May be called twice."""
        for keys in self._sets.values():
            await keys.close()

    def _set_of(self, source: JwksSource) -> JsonWebKeys:
        # PyJWT verifies only shared secrets without `cryptography`.
        for package in ("jwt", "cryptography"):
            if find_spec(package) is None:
                reason = f"signed tokens need the package {package}; install it with `pip install ottla[security]`"
                raise ConfigValueError(SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.name, source.url, reason)
        # The HTTP client of Python's library takes a good part of a start, and few brokers read keys.
        from ottla.broker.security.sasl.json_web_keys import JsonWebKeys

        if source not in self._sets:
            self._sets[source] = JsonWebKeys(source, self._executor, self._clock.monotonic)
        return self._sets[source]
