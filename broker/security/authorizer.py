"""Defines the port through which requests are authorised, and Kafka's operations and resource types.

Without `authorizer.class.name` the authorizer is `AllowAll`. Connections remember decisions (`broker.security.access`) and watch
`generation` to learn when they are out of date.
"""

from enum import IntEnum
from typing import Protocol

from broker.security.principals import Principal


class Operation(IntEnum):
    """AclOperation: what a principal wants to do, with the bit positions of the authorized-operations fields (KIP-430).

    Of a request only READ and the following are asked; the first three stand in ACLs and in filters of ACLs.
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
    """ResourceType: what is protected."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


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
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""What Kafka reports as authorized operations, by resource type."""


class Authorizer(Protocol):
    """Decides which principal may do what, from which host. Must not block: it is asked in the event loop."""

    @property
    def generation(self) -> int:
        """Moves whenever a decision made before may be different now."""

    def is_authorized(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether `principal`, connected from `host`, may do `operation` on the named resource."""

    def is_authorized_on_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether `principal`, connected from `host`, may do `operation` on at least one resource of the type."""


class AllowAll:
    """Allows everything: the authorizer of a broker for which none is configured."""

    generation: int = 0

    def is_authorized(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Always."""
        return True

    def is_authorized_on_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Always."""
        return True
