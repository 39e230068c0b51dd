"""Decides what the client of one connection may do, and caches decisions about reading and writing.

Every connection owns an `Access`; handlers ask it about each resource that a request names. A cached decision costs one look-up. It holds
until the authorizer's generation changes, or until `forget` is called because the client has another principal. Decisions about other
operations are not cached: a client that lists all topics of a large cluster asks about each topic only once. The audit log gets every
decision of a handler, cached or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ottla.broker.security.authorizer import LONGEST_REMEMBERED, SUPPORTED_OPERATIONS, Authorizer
from ottla.broker.security.client import Client
from ottla.protocol.acls import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.security.audit_log import AuditLog

MAX_DECISIONS: Final = 1024
"""Decisions that one connection caches; when there are more, all are dropped. The names in them come from clients, so a bound is needed."""
LAST_REMEMBERED: Final = int(Operation.WRITE)
"""The last operation whose decisions are cached: READ and WRITE, which Produce, Fetch and OffsetCommit ask in every request."""
CLUSTER_ACTION: Final = int(Operation.CLUSTER_ACTION)
CLUSTER: Final = int(ResourceType.CLUSTER)
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""


@final
class Access:
    """See the module."""

    __slots__ = ("_audit", "_authorizer", "_client", "_count", "_generation", "_logs_allowed", "decisions")

    def __init__(self, authorizer: Authorizer, client: Client) -> None:
        self._authorizer = authorizer
        self._client = client
        self._audit: AuditLog | None = authorizer.audit_log
        self.decisions: dict[int, dict[str, bool]] = {}
        """By operation and resource type, then by name."""
        self.forget()

    @property
    def generation(self) -> int:
        """A number that changes whenever an earlier decision may be different now, or is to be logged from now on."""
        return self._authorizer.generation

    def may(self, operation: int, resource_type: int, name: str = CLUSTER_NAME, log_if_denied: bool = True) -> bool:
        """Whether the client may do `operation` on the resource of that type and name.

        `log_if_denied` is false if the request does not name the resource, or if another right suffices: then a refusal is no news.
        """
        allowed = self._decision(operation, resource_type, name)
        if self._audit is not None and (self._logs_allowed or not allowed):
            self._audit.log(self._client, operation, resource_type, name, allowed, True, log_if_denied)
        return allowed

    def acts_for_cluster(self) -> bool:
        """Whether the client may act as a broker. This decides how its request is read, before it is handled: the audit log has no line."""
        return self._decision(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)

    def may_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the client may do `operation` on at least one resource of that type."""
        client = self._client
        allowed = self._authorizer.is_authorized_on_any(client.principal, client.client_host, operation, resource_type)
        if self._audit is not None:
            self._audit.log_any(client, operation, resource_type, allowed)
        return allowed

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME, also: tuple[Operation, ...] = ()) -> int:
        """The bit field of allowed operations that Metadata, DescribeCluster and DescribeGroups return when asked (KIP-430).

        `also`: operations besides those that 3.9 reports.
        """
        bits = 0
        for operation in SUPPORTED_OPERATIONS[resource_type] + also:
            allowed = self._decision(operation, resource_type, name)
            if allowed:
                bits |= 1 << operation
            if self._audit is not None:
                self._audit.log(self._client, operation, resource_type, name, allowed, False, False)
        return bits

    def forget(self) -> None:
        """Drops all decisions: the authorizer's rules, the level of the audit log, or the client's principal have changed."""
        self._generation: int = self._authorizer.generation
        self._logs_allowed: bool = self._audit is not None and self._audit.logs_allowed
        self.decisions.clear()
        self._count = 0

    def _decision(self, operation: int, resource_type: int, name: str) -> bool:
        if self._generation != self._authorizer.generation:
            self.forget()
        if operation > LAST_REMEMBERED:
            return self._ask(operation, resource_type, name)
        decisions = self.decisions.get(resource_type << 8 | operation)
        if decisions is not None:
            allowed = decisions.get(name)
            if allowed is not None:
                return allowed
        return self._decide(operation, resource_type, name)

    def _decide(self, operation: int, resource_type: int, name: str) -> bool:
        if len(name) > LONGEST_REMEMBERED:
            return self._ask(operation, resource_type, name)
        if self._count >= MAX_DECISIONS:
            self.forget()
        self._count += 1
        allowed = self._ask(operation, resource_type, name)
        self.decisions.setdefault(resource_type << 8 | operation, {})[name] = allowed
        return allowed

    def _ask(self, operation: int, resource_type: int, name: str) -> bool:
        client = self._client
        return self._authorizer.is_authorized(client.principal, client.client_host, Operation(operation), ResourceType(resource_type), name)
