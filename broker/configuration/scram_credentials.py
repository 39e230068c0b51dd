"""Keeps the SCRAM credentials of all users, which are configurations under /config/users. Kafka's CredentialProvider.

Made by the server before it listens; changes come from `dynamic_config`. Has what is needed to answer for users that do not exist, too.
A new session reads all credentials again, since notifications may be gone after a long disconnection: a user that was deleted must not log
in any more.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from ottla.broker.configuration.dynamic_config import DynamicConfig
from ottla.broker.security.rereading import MalformedNodes, NotAllRead, Rereading
from ottla.broker.security.sasl.scram import HASHES, MIN_ITERATIONS, ScramCredential, parse_credential
from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.controller.admin.scram_credentials import SECRET_BYTES, secret_for_unknown_users
from ottla.controller.errors import NoAuth
from ottla.controller.store.metadata_store import MetadataStore
from ottla.controller.znodes.layout import DEFAULT_ENTITY, desanitize
from ottla.controller.znodes.znode_json import MalformedZNode

logger = logging.getLogger(__name__)

USERS = "users"


class ScramCredentials:
    """See the module. Changes are applied from construction on."""

    def __init__(self, admin: ConfigAdmin, dynamic_config: DynamicConfig, random_bytes: Callable[[int], bytes]) -> None:
        self._admin = admin
        self._dynamic_config = dynamic_config
        self._random_bytes = random_bytes
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        """By mechanism and user."""
        self._iterations: dict[str, Counter[int]] = {mechanism: Counter() for mechanism in HASHES}
        """By mechanism, the number of users by the iterations of their credentials."""
        self._secret = b""
        self._malformed = MalformedNodes("user %s has its former SCRAM credentials, or none if they were never read")
        self._rereading = Rereading("SCRAM credentials", self._read)
        dynamic_config.on_entity_change(USERS, self._on_change)

    async def load(self) -> None:
        """Read the stored credentials, and forget all others. Those of malformed nodes are read later. Raises StoreError."""
        try:
            await self._read()
        except NotAllRead:
            await self._rereading.begin_later()

    async def _read(self) -> None:
        await self._dynamic_config.undisturbed(self._read_all)

    async def _read_all(self) -> None:
        """Raises StoreError, NotAllRead."""
        malformed: dict[str, MalformedZNode] = {}
        stored = {desanitize(name): config for name, config in (await self._admin.read_all(USERS, malformed)).items() if _is_user(name)}
        unread = {desanitize(name): error for name, error in malformed.items() if _is_user(name)}
        for user in {user for _, user in self._credentials} - stored.keys() - unread.keys():
            self._set(user, {})
        for user, config in stored.items():
            self._set(user, config)
        self._malformed.report(unread)

    async def on_new_session(self) -> None:
        """Read all credentials again, later if that is not possible now."""
        await self._rereading.begin()

    async def close(self) -> None:
        """Read no more."""
        await self._rereading.stop()

    async def load_secret(self, store: MetadataStore) -> None:
        """Read the secret of the cluster for users that do not exist, or make it. Raises StoreError."""
        try:
            self._secret = await secret_for_unknown_users(store, self._random_bytes)
        except NoAuth as error:
            logger.warning("the answers of two brokers reveal which SCRAM users exist, because their secret cannot be read: %s", error)

    @property
    def unknown_key(self) -> bytes:
        """Makes the salts of users that do not exist. Without the secret of the cluster this broker has one of its own until its end."""
        if not self._secret:
            self._secret = self._random_bytes(SECRET_BYTES)
        return self._secret

    def credential_of(self, mechanism: str, user: str) -> ScramCredential | None:
        """The credential of a user for a mechanism, None without one."""
        return self._credentials.get((mechanism, user))

    def usual_iterations(self, mechanism: str) -> int:
        """The iterations that most users of a mechanism have. A user that does not exist gets them, so that they reveal nothing."""
        counts = self._iterations[mechanism]
        return max(MIN_ITERATIONS, max(counts, key=lambda each: (counts[each], -each), default=0))

    def _on_change(self, name: str, config: dict[str, str]) -> None:
        if _is_user(name):
            self._set(desanitize(name), config)

    def _set(self, user: str, config: dict[str, str]) -> None:
        for mechanism in HASHES:
            text = config.get(mechanism)
            former = self._credentials.pop((mechanism, user), None)
            if former is not None:
                self._iterations[mechanism][former.iterations] -= 1
            if text is not None:
                try:
                    credential = self._credentials[mechanism, user] = parse_credential(text)
                except ValueError as reason:
                    logger.error("user %s cannot authenticate by %s: %s; set the credential again", user, mechanism, reason)
                else:
                    self._iterations[mechanism][credential.iterations] += 1


def _is_user(entity: str) -> bool:
    """Whether the entity is one user. The default of all users and pairs of user and client id have quotas only, no credentials."""
    return entity != DEFAULT_ENTITY and "/" not in entity
