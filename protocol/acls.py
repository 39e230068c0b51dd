"""Defines ACLs and the filters that select them, with the codes of requests and the names in znodes. KIP-11, KIP-140, KIP-290.

An ACL allows or denies an operation to a principal from a host, on the resources that its pattern covers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
"""As the name of a literal pattern: all resources of the type. As a host: all hosts."""
WILDCARD_PRINCIPAL: Final = "User:*"
"""All principals, of any type."""


class Operation(IntEnum):
    """Kafka's AclOperation: an operation of a principal. Values are bit positions in authorized-operations fields (KIP-430).

    Requests need READ and the operations after it; the first three occur only in ACLs and in filters of ACLs.
    """

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(IntEnum):
    """Kafka's ResourceType: the kind of a protected resource."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Kafka's PatternType. ANY and MATCH occur only in filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    """Kafka's AclPermissionType. ANY occurs only in filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


def camel_case(member: IntEnum) -> str:
    """The name of an operation, resource type or permission type in znodes and logs: `TransactionalId` of TRANSACTIONAL_ID."""
    return "".join(word.capitalize() for word in member.name.split("_"))


class ResourcePattern(NamedTuple):
    """The resources that an ACL covers: those of the name, or those whose names begin with it."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType


class AccessControlEntry(NamedTuple):
    """The subject of an ACL. `principal` is `Type:name`."""

    principal: str
    host: str
    operation: Operation
    permission_type: PermissionType


class AclBinding(NamedTuple):
    """One ACL."""

    pattern: ResourcePattern
    entry: AccessControlEntry


class AclFilter(NamedTuple):
    """Selects ACLs. A field that is None or ANY selects all. Codes that are unknown here select none."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether the ACLs of this pattern are selected as far as the pattern is concerned.

        With the pattern type MATCH the name is a resource, and all patterns that cover the resource are selected.
        """
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type == PatternType.MATCH:
            if self.name is None:
                return True
            if pattern.pattern_type is PatternType.PREFIXED:
                return self.name.startswith(pattern.name)
            return pattern.name in (self.name, WILDCARD)
        return self.pattern_type in (PatternType.ANY, pattern.pattern_type) and self.name in (None, pattern.name)

    def matches_entry(self, entry: AccessControlEntry) -> bool:
        """Whether an ACL with this entry is selected as far as the entry is concerned."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission_type in (PermissionType.ANY, entry.permission_type)
        )

    def named_patterns(self) -> list[ResourcePattern]:
        """The patterns that the filter names exactly; none if more may match."""
        if self.name is None or self.resource_type not in STORED_RESOURCE_TYPES:
            return []
        resource_type = ResourceType(self.resource_type)
        if self.pattern_type == PatternType.ANY:
            return [ResourcePattern(resource_type, self.name, each) for each in STORED_PATTERN_TYPES]
        if self.pattern_type in STORED_PATTERN_TYPES:
            return [ResourcePattern(resource_type, self.name, PatternType(self.pattern_type))]
        return []


STORED_PATTERN_TYPES: Final = (PatternType.LITERAL, PatternType.PREFIXED)
STORED_RESOURCE_TYPES: Final = (
    ResourceType.DELEGATION_TOKEN,
    ResourceType.USER,
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
"""The resource types that ACLs may have, in the order in which Apache Kafka creates their znodes."""
STORED_OPERATIONS: Final = tuple(Operation)[Operation.ALL :]
STORED_PERMISSION_TYPES: Final = (PermissionType.DENY, PermissionType.ALLOW)
