"""Keeps the public keys that verify signed tokens, a JSON Web Key Set (RFC 7517), and reads it again from time to time.

Kafka's RefreshingHttpsJwks, also for files. One `JsonWebKeys` serves all listeners with the same source. A token with an unknown key makes
the next read earlier. A read that fails keeps the keys of the previous read.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Final, NamedTuple

from ottla.broker.security.sasl.jwks_source import JwksUnavailable, read_jwks
from ottla.config.errors import ConfigValueError
from ottla.config.keys.security import SASL_OAUTHBEARER_JWKS_ENDPOINT_URL
from ottla.config.sasl import JwksSource

logger = logging.getLogger(__name__)

MAX_KEYS: Final = 100
"""Keys that are used of one set; a token without a key id may have to be tried with each."""
UNKNOWN_KEY_PAUSE_SECONDS: Final = 10.0
"""Time between two readings for tokens with unknown keys, which anyone can make, in seconds."""
MIN_RSA_BITS: Final = 2048
"""Size of an RSA key from which on it is used, bits (RFC 7518, section 3.3)."""

_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_ALGORITHMS: Final[dict[tuple[object, object], frozenset[str]]] = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
}
"""The algorithms of each type and curve. There is no symmetric one, so that a public key is never taken for a shared secret."""
_PUBLIC_FIELDS: Final = ("kty", "crv", "n", "e", "x", "y")


class VerificationKey(NamedTuple):
    """A public key, its id, and the algorithms for which it serves."""

    key_id: str | None
    algorithms: frozenset[str]
    key: Any
    """A public key of `cryptography`."""


def listed_keys(data: bytes) -> list[Any]:
    """The keys of a set, as they are written. Raises JwksUnavailable for a text that is no set of keys."""
    try:
        listed = json.loads(data)["keys"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise JwksUnavailable("it is not a JSON object with a list `keys`") from None
    if not isinstance(listed, list):
        raise JwksUnavailable("`keys` is not a list")
    return listed


def parse_jwks(listed: list[Any]) -> list[VerificationKey]:
    """The first MAX_KEYS keys that can verify signatures. Others are left out. Raises JwksUnavailable if there is none."""
    found = [key for key in map(_parse_key, listed[:MAX_KEYS]) if key is not None]
    if not found:
        raise JwksUnavailable(f"none of its {len(listed)} keys is a public RSA, EC or Ed25519 key for signatures")
    return found


def _parse_key(described: Any) -> VerificationKey | None:
    """None for a key that is not for signatures, and for a malformed one. No text of a key is logged, as it may be private by mistake."""
    from jwt import PyJWK, PyJWTError

    if not isinstance(described, dict) or described.get("use", "sig") != "sig":
        return None
    kind = described.get("kty"), described.get("crv")
    key_id, only = described.get("kid"), described.get("alg")
    algorithms = _ALGORITHMS.get(kind) if all(isinstance(each, str | None) for each in (*kind, key_id, only)) else None
    if algorithms is None or (only is not None and only not in algorithms):
        return None
    public = {name: described[name] for name in _PUBLIC_FIELDS if name in described}
    try:
        key = PyJWK(public, algorithm=only or min(algorithms)).key
    except (PyJWTError, ValueError, TypeError):
        return None
    if kind[0] == "RSA" and key.key_size < MIN_RSA_BITS:
        return None
    return VerificationKey(key_id, algorithms if only is None else frozenset({only}), key)


class JsonWebKeys:
    """See the module."""

    def __init__(
        self,
        source: JwksSource,
        executor: Executor,
        monotonic: Callable[[], float],
        read: Callable[[JwksSource], bytes] = read_jwks,
    ) -> None:
        """`read` blocks, and runs in a thread of `executor`."""
        self.source = source
        self.keys: Sequence[VerificationKey] = ()
        self._executor = executor
        self._monotonic = monotonic
        self._read = read
        self._wanted = asyncio.Event()
        self._last_unknown: float | None = None
        self._task: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Read the keys, and read them again periodically. Raises ConfigError, which names the URL, if they cannot be read now."""
        try:
            await self._load()
        except JwksUnavailable as reason:
            why = f"the keys for signed tokens cannot be read: {reason}"
            raise ConfigValueError(SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.name, self.source.url, why) from None
        self.begin()

    def begin(self) -> None:
        """Read the keys from time to time, the first time soon if there are none yet."""
        if not self.keys:
            self._wanted.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="json-web-keys")

    async def close(self) -> None:
        """Stop reading. May be called twice."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def candidates(self, key_id: str | None, algorithm: str) -> list[VerificationKey]:
        """The keys with which a token may be signed. If there are none, the next reading comes sooner."""
        found = [each for each in self.keys if algorithm in each.algorithms and key_id in (None, each.key_id)]
        if not found:
            self._on_unknown_key()
        return found

    def _on_unknown_key(self) -> None:
        now = self._monotonic()
        if self._last_unknown is None or now - self._last_unknown >= UNKNOWN_KEY_PAUSE_SECONDS:
            self._last_unknown = now
            self._wanted.set()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self.source.refresh_ms / 1000):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            try:
                await self._refresh()
            except Exception:  # a fault of this broker: the keys would never be read again
                logger.exception("the keys for signed tokens at %s cannot be read again; the earlier ones stay", self.source.url)

    async def _refresh(self) -> None:
        """Read the keys, with growing pauses between attempts for as long as the source's longest pause."""
        source = self.source
        deadline = self._monotonic() + source.retry_backoff_max_ms / 1000
        pause_s = source.retry_backoff_ms / 1000
        while True:
            try:
                await self._load()
                return
            except JwksUnavailable as reason:
                left_s = deadline - self._monotonic()
                if left_s <= 0 or pause_s <= 0:
                    logger.warning("the keys for signed tokens at %s cannot be read again: %s; the earlier ones stay", source.url, reason)
                    return
                await asyncio.sleep(min(pause_s, left_s))
                pause_s *= 2

    async def _load(self) -> None:
        data = await asyncio.get_running_loop().run_in_executor(self._executor, self._read, self.source)
        listed = listed_keys(data)
        self.keys = parse_jwks(listed)
        logger.info("read %d keys for signed tokens at %s, and left %d out", len(self.keys), self.source.url, len(listed) - len(self.keys))
