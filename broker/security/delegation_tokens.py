"""Keeps the delegation tokens of the cluster, by which clients authenticate without a password of their own (KIP-48).

Kafka's DelegationTokenManagerZk and DelegationTokenCache. A token's HMAC serves as its password. It is made from the id by the secret that
all brokers share, so no node contains it. Changes of other brokers come as notifications. A new session reads all tokens again.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple
from uuid import UUID

from ottla.broker.security.principals import Principal, UnusablePrincipal
from ottla.broker.security.rereading import Rereading
from ottla.broker.security.sasl.scram import HASHES, MIN_ITERATIONS, ScramCredential, TokenCredential, parse_credential
from ottla.controller.admin.change_notifications import ChangeNotifications
from ottla.controller.admin.scram_credentials import MECHANISMS, Upsertion, credential
from ottla.controller.admin.token_store import MAX_TOKEN_BYTES, TokenStore
from ottla.controller.errors import InvalidAdminRequest, NoNode, StoreError
from ottla.controller.store.metadata_store import MetadataStore
from ottla.controller.znodes.layout import desanitize, sanitize
from ottla.controller.znodes.security import TOKEN_CHANGES, DelegationToken
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.pauses import each, pause
from ottla.protocol.scram_salts import SALT_BYTES, salt_of
from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)

MAX_RENEWERS: Final = 1_000
"""Most renewers of a new token. Every broker keeps them as long as the token lives."""
_NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}


class TokenRefused(Exception):
    """A token is not renewed or expired."""


class TokenNotFound(TokenRefused):
    """No token has this HMAC."""


class TokenOwnerMismatch(TokenRefused):
    """The principal is neither the owner of the token nor one of its renewers."""


class TokenExpired(TokenRefused):
    """The token has expired."""


@dataclass(frozen=True)
class TokenInformation:
    """A token without its HMAC. Times are ms since the epoch."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int

    def may_be_renewed_by(self, principal: Principal) -> bool:
        """Whether the principal may renew and expire the token."""
        return principal == self.owner or principal in self.renewers

    @cached_property  # each DescribeDelegationToken asks for those of every token
    def holders(self) -> frozenset[Principal]:
        """The principals that see the token without any right: owner, requester and renewers."""
        return frozenset((self.owner, self.requester, *self.renewers))

    def is_expired(self, now_ms: int) -> bool:
        """Whether the token is of no use any more."""
        return min(self.expiry_timestamp_ms, self.max_timestamp_ms) < now_ms


class Lifetimes(NamedTuple):
    """The longest lifetime of a token, and the time until it has to be renewed, ms."""

    max_ms: int
    expiry_ms: int


class DelegationTokens:
    """See the module."""

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        secret: str,
        lifetimes: Lifetimes,
        random_bytes: Callable[[int], bytes],
        random: Callable[[], float],
        executor: Executor | None = None,
    ) -> None:
        """`random` returns a number from 0 to 1, as random.random. `executor` makes credentials; None stands for that of the loop."""
        self._executor = executor
        self._store = TokenStore(store, lambda: 0.1 + 0.05 * random())
        self._clock = clock
        self._secret = secret.encode()
        self._lifetimes = lifetimes
        self._random_bytes = random_bytes
        self._lock = asyncio.Lock()
        self._changes = ChangeNotifications(store, clock, TOKEN_CHANGES, "delegation tokens", self._on_notification)
        self._rereading = Rereading("delegation tokens", self._read_all)
        self._tokens: dict[str, TokenInformation] = {}
        self._ids: dict[bytes, str] = {}
        """By digest of the HMAC, so that the time of a look-up reveals nothing about an HMAC that is nearly right."""
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        """By mechanism and token id; made when a client first uses the token, since one takes milliseconds."""
        self._making: dict[tuple[str, str], asyncio.Task[None]] = {}
        """The credentials that a thread is making."""
        self._removal: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Read all tokens, and follow their changes from now on. Raises StoreError."""
        await self._store.prepare()
        await self._changes.start()
        await self._read_all()

    async def on_new_session(self) -> None:
        """Follow the changes in the present session, and read all tokens again, later if that is not possible now."""
        await self._changes.on_new_session()
        await self._rereading.begin()

    async def close(self) -> None:
        """Stop following changes. May be called twice."""
        await self._rereading.stop()
        await self._changes.stop()
        tasks = [*self._making.values(), *([] if self._removal is None else [self._removal])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def tokens(self) -> Sequence[TokenInformation]:
        """All tokens that this broker knows."""
        return list(self._tokens.values())

    def hmac_of(self, token_id: str) -> bytes:
        """The secret of a token."""
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def preparation(self, mechanism: str, token_id: str) -> Awaitable[None] | None:
        """The making of the credential in a thread, to be awaited before `credential_of`. None if there is one, or no such token."""
        key = (mechanism, token_id)
        if token_id not in self._tokens or key in self._credentials:
            return None
        making = self._making.get(key)
        if making is None:
            making = asyncio.get_running_loop().create_task(self._make(mechanism, token_id), name="delegation-token-credential")
            self._making[key] = making
            making.add_done_callback(lambda _: self._making.pop(key))
        return asyncio.shield(making)

    async def _make(self, mechanism: str, token_id: str) -> None:
        password, salt = base64.b64encode(self.hmac_of(token_id)), salt_of(self._random_bytes(SALT_BYTES))
        loop = asyncio.get_running_loop()
        made = await loop.run_in_executor(self._executor, _credential, mechanism, token_id, password, salt)
        if token_id in self._tokens:
            self._credentials[mechanism, token_id] = made

    def credential_of(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """The credential of a client that authenticates by this token, after `preparation`; None for an unknown token."""
        token = self._tokens.get(token_id)
        made = self._credentials.get((mechanism, token_id))
        if token is None or made is None:
            return None
        return TokenCredential(token.owner.name, made, token.expiry_timestamp_ms)

    async def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[Principal], asked_lifetime_ms: int
    ) -> TokenInformation:
        """Create a token. A lifetime of 0 or less asks for the longest.

        Raises StoreError; InvalidAdminRequest for too many renewers, and for a principal that cannot be.
        """
        token_id = base64.urlsafe_b64encode(UUID(bytes=self._random_bytes(16), version=4).bytes).decode().rstrip("=")
        now_ms = self._clock.now_ms()
        longest_ms = self._lifetimes.max_ms
        max_ms = now_ms + (min(asked_lifetime_ms, longest_ms) if asked_lifetime_ms > 0 else longest_ms)
        expiry_ms = min(max_ms, now_ms + self._lifetimes.expiry_ms)
        token = TokenInformation(token_id, owner, requester, tuple(renewers), now_ms, expiry_ms, max_ms)
        await _check(token)
        stored = await _stored(token)
        async with self._lock:
            await self._store.create(stored)
            self._keep(token)
        logger.info("created the delegation token %s of %s", token_id, owner)
        return token

    async def renew(self, principal: Principal, token_hmac: bytes, period_ms: int) -> int:
        """Renew a token for `period_ms` from now, or for the configured time if that is negative. Returns its new end, ms.

        Raises TokenRefused, StoreError, MalformedZNode.
        """
        period_ms = period_ms if period_ms >= 0 else self._lifetimes.expiry_ms
        return await self._change(principal, token_hmac, period_ms)

    async def expire(self, principal: Principal, token_hmac: bytes, period_ms: int) -> int:
        """End a token after `period_ms`, at once if that is negative. Returns its end, ms. Raises the errors of `renew`."""
        return await self._change(principal, token_hmac, period_ms)

    async def _change(self, principal: Principal, token_hmac: bytes, period_ms: int) -> int:
        """Set the end of a token to `period_ms` from now, or delete it if that is negative."""
        token_id = self._ids.get(_digest(token_hmac))
        if token_id is None:
            raise TokenNotFound
        now_ms = self._clock.now_ms()

        def change(stored: DelegationToken) -> DelegationToken | None:
            token = _information(stored)
            if not token.may_be_renewed_by(principal):
                raise TokenOwnerMismatch
            if period_ms < 0:
                return None
            if token.is_expired(now_ms):
                raise TokenExpired
            return stored._replace(expiry_timestamp_ms=min(token.max_timestamp_ms, now_ms + period_ms))

        async with self._lock:
            changed = await self._update(token_id, change)
        if changed is None:
            logger.info("%s ended the delegation token %s", principal, token_id)
            return now_ms
        logger.info("%s set the end of the delegation token %s", principal, token_id)
        return changed.expiry_timestamp_ms

    def begin_removal(self) -> None:
        """Begin to remove expired tokens. Does nothing while an earlier removal is in progress."""
        if self._removal is None or self._removal.done():
            self._removal = asyncio.get_running_loop().create_task(self.remove_expired(), name="delegation-token-removal")

    async def remove_expired(self) -> None:
        """Remove expired tokens from the metadata store. The broker of the active controller calls it from time to time."""
        now_ms = self._clock.now_ms()

        def change(stored: DelegationToken) -> DelegationToken | None:
            return None if _information(stored).is_expired(now_ms) else stored

        for token in self.tokens:
            if not token.is_expired(now_ms):
                continue
            try:
                async with self._lock:
                    if await self._update(token.token_id, change) is None:
                        logger.info("the delegation token %s of %s has expired", token.token_id, token.owner)
            except TokenNotFound:
                continue
            except MalformedZNode as error:
                logger.error("the expired delegation token %s cannot be removed: %s; delete its node", token.token_id, error)
            except StoreError as error:
                logger.error("the expired delegation token %s cannot be removed: %s; trying again later", token.token_id, error)
                return

    async def _update(self, token_id: str, change: Callable[[DelegationToken], DelegationToken | None]) -> DelegationToken | None:
        """Change the stored token and the known one. Raises TokenNotFound when another broker has removed it."""
        try:
            changed = await self._store.update(token_id, change)
        except NoNode:
            self._forget(token_id)
            raise TokenNotFound from None
        if changed is None:
            self._forget(token_id)
        else:
            self._keep(_information(changed))
        return changed

    async def _on_notification(self, path: str, data: bytes | None) -> None:
        try:
            token_id = (data or b"").decode()
        except UnicodeDecodeError:
            raise MalformedZNode(path, "not UTF-8") from None
        if not token_id or "/" in token_id:
            raise MalformedZNode(path, "not the id of a token")
        async with self._lock:
            try:
                self._keep(_information(await self._store.read(token_id)))
            except NoNode:
                self._forget(token_id)

    async def _read_all(self) -> None:
        async with self._lock:
            found = {}
            for stored in await self._store.read_all():
                try:
                    found[stored.token_id] = _information(stored)
                except MalformedZNode as error:
                    logger.error("a delegation token is ignored: %s", error)
                await pause()
            for token_id in self._tokens.keys() - found.keys():
                self._forget(token_id)
                await pause()
            for token in found.values():
                if token != self._tokens.get(token.token_id):
                    self._keep(token)
                await pause()

    def _keep(self, token: TokenInformation) -> None:
        self._tokens[token.token_id] = token
        self._ids[_digest(self.hmac_of(token.token_id))] = token.token_id

    def _forget(self, token_id: str) -> None:
        if self._tokens.pop(token_id, None) is not None:
            del self._ids[_digest(self.hmac_of(token_id))]
            for mechanism in HASHES:
                self._credentials.pop((mechanism, token_id), None)


def _credential(mechanism: str, token_id: str, password: bytes, salt: bytes) -> ScramCredential:
    """The credential of a password; takes milliseconds."""
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, MIN_ITERATIONS)
    return parse_credential(credential(Upsertion(token_id, _NUMBERS[mechanism], MIN_ITERATIONS, salt, salted)))


def _digest(token_hmac: bytes) -> bytes:
    return hashlib.sha256(token_hmac).digest()


async def _check(token: TokenInformation) -> None:
    """Raises InvalidAdminRequest for too many renewers, and for a principal that cannot be."""
    check_number_of_renewers(len(token.renewers))
    # The store counts the bytes of the node. It has at least these, and renewers with more would be checked and encoded in vain.
    if sum(len(renewer.name) for renewer in token.renewers) > MAX_TOKEN_BYTES:
        raise InvalidAdminRequest(f"the names of the {len(token.renewers)} renewers of a delegation token are too long")
    try:
        for principal in (token.owner, token.requester, *token.renewers):
            principal.check()
            await pause()
    except UnusablePrincipal as reason:
        raise InvalidAdminRequest(str(reason)) from None


def check_number_of_renewers(number: int) -> None:
    """Raises InvalidAdminRequest for more than MAX_RENEWERS."""
    if number > MAX_RENEWERS:
        raise InvalidAdminRequest(f"a delegation token has {number} renewers; at most {MAX_RENEWERS} are possible")


async def _stored(token: TokenInformation) -> DelegationToken:
    return DelegationToken(
        token.token_id,
        sanitize(str(token.owner)),
        sanitize(str(token.requester)),
        tuple(await each(token.renewers, lambda renewer: sanitize(str(renewer)))),
        token.issue_timestamp_ms,
        token.expiry_timestamp_ms,
        token.max_timestamp_ms,
    )


def _information(stored: DelegationToken) -> TokenInformation:
    """Raises MalformedZNode for a text that names no principal, or none that an answer can carry."""
    owner, requester, *renewers = (_principal(stored.token_id, one) for one in (stored.owner, stored.requester, *stored.renewers))
    return TokenInformation(
        stored.token_id,
        owner,
        requester,
        tuple(renewers),
        stored.issue_timestamp_ms,
        stored.expiry_timestamp_ms,
        stored.max_timestamp_ms,
    )


def _principal(token_id: str, sanitized: str) -> Principal:
    principal_type, colon, name = desanitize(sanitized).partition(":")
    if not colon:
        raise MalformedZNode(f"the delegation token {token_id}", f"{sanitized} names no principal")
    principal = Principal(principal_type, name)
    try:
        principal.check()
    except UnusablePrincipal as reason:
        raise MalformedZNode(f"the delegation token {token_id}", str(reason)) from None
    return principal
