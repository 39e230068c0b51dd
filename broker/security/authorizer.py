"""Defines the port through which requests are authorized.

Without `authorizer.class.name` the authorizer is `AllowAll`. Connections cache decisions (`ottla.broker.security.access`), and drop them
when `generation` changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ottla.broker.security.principals import Principal
from ottla.protocol.acls import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.security.audit_log import AuditLog


LONGEST_REMEMBERED: Final = 1024
"""Longest name of a resource about which decisions are cached, characters. Clients choose the names; those of topics have at most 249."""


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
"""The operations that Kafka reports in authorized-operations fields, by resource type."""

GROUP_CONFIG_OPERATIONS: Final = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
"""Operations on a group that are reported as well where groups have configurations."""


class Authorizer(Protocol):
    """Decides which operations a principal may perform, and from which host. Must not block: the event loop calls it."""

    @property
    def generation(self) -> int:
        """A number that changes whenever an earlier decision may be different now, or is to be logged from now on."""

    @property
    def audit_log(self) -> AuditLog | None:
        """Logs the decisions; None if they are not logged."""

    def on_log_levels_changed(self) -> None:
        """The level of a logger has changed. Connections must be notified."""

    def is_authorized(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether `principal`, connected from `host`, may do `operation` on the named resource."""

    def is_authorized_on_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether `principal`, connected from `host`, may do `operation` on at least one resource of the type."""


class AllowAll:
    """Allows everything: the authorizer of a broker for which none is configured."""

    generation: int = 0
    audit_log: None = None

    def on_log_levels_changed(self) -> None:
        """Nothing is logged."""

    def is_authorized(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Always true."""
        return True

    def is_authorized_on_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Always true."""
        return True
