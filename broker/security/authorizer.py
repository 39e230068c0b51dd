"""The port through which a request is authorised. Without `authorizer.class.name` there is none and everything is allowed."""

from enum import IntEnum
from typing import Protocol


class Operation(IntEnum):
    """AclOperation: what a principal wants to do, with the bit positions of the authorized-operations fields (KIP-430)."""

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


class ResourceType(IntEnum):
    """What is protected."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


SUPPORTED_OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}


class Authorizer(Protocol):
    """Decides who may do what."""

    def is_authorized(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Whether `principal` (`User:alice`), connected from `host`, may do `operation` on the named resource."""


class AllowAll:
    """What a broker without an authorizer does."""

    def is_authorized(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Always."""
        return True


def authorized_operations(authorizer: Authorizer, principal: str, host: str, resource: ResourceType, name: str) -> int:
    """The bit field that Metadata, DescribeCluster and DescribeGroups return when asked for authorized operations."""
    bits = 0
    for operation in SUPPORTED_OPERATIONS[resource]:
        if authorizer.is_authorized(principal, host, operation, resource, name):
            bits |= 1 << operation
    return bits
