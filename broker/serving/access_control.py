"""Reads the ACLs and the delegation tokens of the cluster at the start, and follows their changes.

`ottla.broker.server` makes one `AccessControl` per broker, and loads it before the logs. Without `authorizer.class.name` everything is
allowed, without a secret there are no tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.metadata_store import open_acl_store
from ottla.broker.network.offenders import Offenders
from ottla.broker.security.acl_admin import AclAdmin
from ottla.broker.security.acl_authorizer import AclAuthorizer
from ottla.broker.security.acl_session import AclSession
from ottla.broker.security.audit_log import AuditLog
from ottla.broker.security.audit_log import logger as audit_logger
from ottla.broker.security.authorizer import AllowAll, Authorizer
from ottla.broker.security.delegation_tokens import DelegationTokens, Lifetimes
from ottla.broker.start_checks import check_acl_znodes, super_users
from ottla.config.broker import BrokerConfig
from ottla.config.keys.authorizer_zookeeper import AuthorizerReading
from ottla.config.keys.security import (
    ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    AUTHORIZER_CLASS_NAME,
    DELEGATION_TOKEN_EXPIRY_TIME_MS,
    DELEGATION_TOKEN_MASTER_KEY,
    DELEGATION_TOKEN_MAX_LIFETIME_MS,
    DELEGATION_TOKEN_SECRET_KEY,
)
from ottla.controller.registration import in_session
from ottla.storage.disk.clock import Clock

if TYPE_CHECKING:
    from ottla.controller.controller import Controller
    from ottla.controller.store.metadata_store import MetadataStore


class AccessControl:
    """See the module. `authorizer`, `acls` and `delegation_tokens` are those of the configuration once `load` has returned."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        clock: Clock,
        workers: Executor,
        random: Callable[[], float],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.authorizer: Authorizer = AllowAll()
        self.acls: AclAdmin | None = None
        self.delegation_tokens: DelegationTokens | None = None
        self._config = config
        self._store = store
        self._clock = clock
        self._workers = workers
        self._random = random
        self._random_bytes = random_bytes
        self._acl_session: AclSession | None = None
        self._controller: Controller | None = None
        self._held = AsyncExitStack()

    async def load(self) -> None:
        """Replace the authorizer by the configured one, and read ACLs and tokens. Raises Unsupported, and the errors of the store."""
        await self._load_acls()
        await self._load_delegation_tokens()

    def follow(self, controller: Controller) -> None:
        """Read the changes that were missed, whenever the controller has a new session with the store."""
        self._controller = controller
        if self.acls is not None and self._acl_session is None:
            controller.on_new_session(self.acls.on_new_session)
        if self.delegation_tokens is not None:
            controller.on_new_session(self.delegation_tokens.on_new_session)

    def maybe_remove_expired_tokens(self) -> None:
        """Have the broker of the active controller remove expired delegation tokens."""
        if self.delegation_tokens is not None and self._controller is not None and self._controller.is_active:
            self.delegation_tokens.begin_removal()

    async def close(self) -> None:
        """Stop following changes. A store that has only ACLs is closed, too."""
        await self._held.aclose()

    async def _load_acls(self) -> None:
        config = self._config
        if not config[AUTHORIZER_CLASS_NAME]:
            return
        authorizer = AclAuthorizer(
            super_users(config), allow_without_acls=config[ALLOW_EVERYONE_IF_NO_ACL_FOUND], audit_log=self._audit_log()
        )
        own_store = open_acl_store(config)
        store: MetadataStore = own_store or self._store
        acls = AclAdmin(store, self._clock, authorizer, self._random)
        if own_store is not None:
            self._acl_session = AclSession(own_store, acls.on_new_session)
            self._held.push_async_callback(self._acl_session.close)
        self._held.push_async_callback(acls.close)
        if own_store is not None or not config.standalone:
            await in_session(store, partial(check_acl_znodes, AuthorizerReading(config), store))
        await in_session(store, acls.load)
        self.authorizer = authorizer
        self.acls = acls

    async def _load_delegation_tokens(self) -> None:
        config = self._config
        secret = config[DELEGATION_TOKEN_SECRET_KEY] or config[DELEGATION_TOKEN_MASTER_KEY]
        if secret is None or not secret.value:
            return
        lifetimes = Lifetimes(config[DELEGATION_TOKEN_MAX_LIFETIME_MS], config[DELEGATION_TOKEN_EXPIRY_TIME_MS])
        tokens = DelegationTokens(self._store, self._clock, secret.value, lifetimes, self._random_bytes, self._random, self._workers)
        self._held.push_async_callback(tokens.close)
        await in_session(self._store, tokens.load)
        self.delegation_tokens = tokens

    def _audit_log(self) -> AuditLog:
        refusing = Offenders(audit_logger.info, "requests were refused")
        self._held.callback(refusing.summarize)
        return AuditLog(lambda host, line: refusing.report(host, line, self._clock.monotonic()))
