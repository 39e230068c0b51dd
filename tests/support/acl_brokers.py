"""Brokers of one cluster, in memory, each with an authorizer whose ACLs are in the metadata store."""

import asyncio
from collections.abc import Awaitable, Callable

from ottla.broker.security.acl_admin import AclAdmin
from ottla.broker.security.acl_authorizer import AclAuthorizer
from ottla.controller.store.memory_store import MemoryEnsemble, MemoryStore
from ottla.protocol.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from tests.support.clocks import ManualClock

EVERYTHING = AclFilter(1, None, 1, None, None, 1, 1)
BODY = '{"version":1,"acls":[{"principal":"User:a","permissionType":"%s","host":"*","operation":"%s"}]}'
"""The data of a node with one ACL, to be completed by its permission and its operation."""


def acl(resource: str, name: str, pattern: str, principal: str, host: str, operation: str, permission: str) -> AclBinding:
    return AclBinding(
        ResourcePattern(ResourceType[resource], name, PatternType[pattern]),
        AccessControlEntry(principal, host, Operation[operation], PermissionType[permission]),
    )


RECORDED = [
    acl("TOPIC", "t", "LITERAL", "User:alice", "*", "WRITE", "ALLOW"),
    acl("TOPIC", "t", "LITERAL", "User:alice", "*", "READ", "ALLOW"),
    acl("TOPIC", "pre-", "PREFIXED", "User:alice", "127.0.0.1", "ALL", "ALLOW"),
    acl("TOPIC", "*", "LITERAL", "User:bob", "*", "DESCRIBE", "ALLOW"),
    acl("TOPIC", "secret", "LITERAL", "User:*", "*", "ALL", "DENY"),
    acl("GROUP", "g", "LITERAL", "User:alice", "*", "READ", "ALLOW"),
    acl("CLUSTER", "kafka-cluster", "LITERAL", "User:bob", "*", "IDEMPOTENT_WRITE", "ALLOW"),
    acl("TRANSACTIONAL_ID", "tx", "PREFIXED", "User:alice", "*", "WRITE", "ALLOW"),
    acl("DELEGATION_TOKEN", "x", "LITERAL", "User:alice", "*", "DESCRIBE", "ALLOW"),
    acl("USER", "bob", "LITERAL", "User:alice", "*", "CREATE_TOKENS", "ALLOW"),
]
"""The ACLs that the client of the recording created, in its order. Then it deleted those of the group, and created them again."""
T_READ = RECORDED[1]


class Brokers:
    """Brokers of one cluster, each with an authorizer."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ensemble = MemoryEnsemble(self.clock)
        self.admins: list[AclAdmin] = []
        self.stores: list[MemoryStore] = []

    async def add(self) -> AclAdmin:
        store = self.ensemble.store()
        await store.open_session()
        admin = AclAdmin(store, self.clock, AclAuthorizer(), lambda: -2.0)  # retries do not wait
        self.stores.append(store)
        self.admins.append(admin)
        await admin.load()
        return admin

    def acl_nodes(self) -> dict[str, str | None]:
        return {
            path: None if node.data is None else node.data.decode()
            for path, node in self.ensemble.dump().items()
            if path.startswith("/kafka-acl")
        }


def run(scenario: Callable[[Brokers], Awaitable[None]]) -> None:
    async def play() -> None:
        brokers = Brokers()
        try:
            await scenario(brokers)
        finally:
            for admin in brokers.admins:
                await admin.close()

    asyncio.run(play())


async def create(admin: AclAdmin, *bindings: AclBinding) -> None:
    assert await admin.create(bindings) == [None] * len(bindings)


def acls_of(admin: AclAdmin) -> set[AclBinding]:
    return set(admin.authorizer.index.select(EVERYTHING))
