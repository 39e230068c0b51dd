"""Provides an authorizer whose rules a test changes."""

from ottla.broker.security.principals import Principal
from ottla.protocol.acls import Operation, ResourceType


class Grants:
    """Allows what is in `allowed`."""

    audit_log = None

    def __init__(self, *allowed: tuple[Operation, ResourceType]) -> None:
        self.generation = 0
        self.allowed = set(allowed)

    def is_authorized(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """See Authorizer."""
        return (operation, resource_type) in self.allowed

    def is_authorized_on_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """See Authorizer."""
        return (operation, resource_type) in self.allowed

    def on_log_levels_changed(self) -> None:
        """See Authorizer."""

    def change(self, *allowed: tuple[Operation, ResourceType]) -> None:
        """From now on."""
        self.allowed = set(allowed)
        self.generation += 1
