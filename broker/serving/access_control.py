"""Reads the ACLs and the delegation tokens of the cluster at the start, and follows their changes.

`ottla.broker.server` loads the `AccessControl` of a broker before the logs. Without `authorizer.class.name` everything is allowed,
without a secret there are no tokens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import dataclass
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
    from ottla.controller.store.metadata_store import MetadataStore


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Says who may do what. Changes are followed until the stack that `load_access_control` got is closed."""

    authorizer: Authorizer
    acls: AclAdmin | None
    """None without an authorizer."""
    delegation_tokens: DelegationTokens | None
    """None without a secret for delegation tokens."""
    session_listeners: tuple[Callable[[], Awaitable[None]], ...]
    """To be called when the broker has a new session with the store: each reads the changes that were missed."""


async def load_access_control(
    held: AsyncExitStack,
    config: BrokerConfig,
    store: MetadataStore,
    clock: Clock,
    workers: Executor,
    random: Callable[[], float],
    random_bytes: Callable[[int], bytes],
) -> AccessControl:
    """Read ACLs and tokens. `held` gets what ends the following of their changes. Raises Unsupported, and the errors of the store."""
    listeners: list[Callable[[], Awaitable[None]]] = []
    authorizer: Authorizer = AllowAll()
    acls = None
    if config[AUTHORIZER_CLASS_NAME]:
        own_store = open_acl_store(config)
        acl_store: MetadataStore = own_store or store
        authorizer = acl_authorizer = AclAuthorizer(
            super_users(config), allow_without_acls=config[ALLOW_EVERYONE_IF_NO_ACL_FOUND], audit_log=_audit_log(held, clock)
        )
        acls = AclAdmin(acl_store, clock, acl_authorizer, random)
        if own_store is None:
            listeners.append(acls.on_new_session)
        else:
            held.push_async_callback(AclSession(own_store, acls.on_new_session).close)
        held.push_async_callback(acls.close)
        if own_store is not None or not config.standalone:
            await in_session(acl_store, partial(check_acl_znodes, AuthorizerReading(config), acl_store))
        await in_session(acl_store, acls.load)
    tokens = None
    secret = config[DELEGATION_TOKEN_SECRET_KEY] or config[DELEGATION_TOKEN_MASTER_KEY]
    if secret is not None and secret.value:
        lifetimes = Lifetimes(config[DELEGATION_TOKEN_MAX_LIFETIME_MS], config[DELEGATION_TOKEN_EXPIRY_TIME_MS])
        tokens = DelegationTokens(store, clock, secret.value, lifetimes, random_bytes, random, workers)
        held.push_async_callback(tokens.close)
        await in_session(store, tokens.load)
        listeners.append(tokens.on_new_session)
    return AccessControl(authorizer, acls, tokens, tuple(listeners))


def _audit_log(held: AsyncExitStack, clock: Clock) -> AuditLog:
    refusing = Offenders(audit_logger.info, "requests were refused")
    held.callback(refusing.summarize)
    return AuditLog(lambda host, line: refusing.report(host, line, clock.monotonic()))
