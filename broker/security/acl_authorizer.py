"""Authorizes requests by the ACLs of the cluster. Kafka's AclAuthorizer; KIP-11, KIP-290, KIP-679.

The decision, in this order: a super user may do everything; a resource without ACLs is open if `allow.everyone.if.no.acl.found` is true; a
matching Deny refuses; a matching Allow permits; all else is refused. `ottla.broker.security.acl_admin` keeps the ACLs up to date.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.broker.security.acl_hosts import java_host
from ottla.broker.security.acl_index import AclIndex
from ottla.broker.security.authorizer import LONGEST_REMEMBERED
from ottla.broker.security.principals import Principal
from ottla.protocol.acls import AccessControlEntry, Operation, ResourcePattern, ResourceType

if TYPE_CHECKING:
    from ottla.broker.security.audit_log import AuditLog

MAX_DECISIONS: Final = 10_000
"""Decisions that are cached; when there are more, all are dropped. The names in them come from clients, so a bound is needed."""


_Question: TypeAlias = "tuple[str, str, str, int, int, str | None]"
"""Type and name of a principal, host, operation, resource type, and the name of the resource; None stands for any resource."""


def parse_super_users(text: str) -> frozenset[Principal]:
    """The principals of `super.users`, with semicolons in between. Raises ValueError for one that is not `Type:name`."""
    return frozenset(Principal.parse(each.strip()) for each in text.rstrip("; ").split(";")) if text.strip("; ") else frozenset()


class AclAuthorizer:
    """See the module."""

    def __init__(
        self, super_users: frozenset[Principal] = frozenset(), *, allow_without_acls: bool = False, audit_log: AuditLog | None = None
    ) -> None:
        self.generation = 0
        self.audit_log: Final = audit_log
        self.index: Final = AclIndex()
        """Change it only with `set_acls`, so that cached decisions are dropped."""
        self._super_users = super_users
        self._allow_without_acls = allow_without_acls
        self._decisions: dict[_Question, bool] = {}

    def set_acls(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> None:
        """Replace the ACLs of a pattern."""
        if self.index.set(pattern, entries):
            self.generation += 1
            self._decisions.clear()

    def on_log_levels_changed(self) -> None:
        """See Authorizer."""
        self.generation += 1

    def is_authorized(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """See Authorizer."""
        question = (principal.principal_type, principal.name, host, operation, resource_type, name)
        decision = self._decisions.get(question)
        if decision is None:
            decision = principal in self._super_users or self.index.decide(
                str(principal), java_host(host), operation, resource_type, name, without_acls=self._allow_without_acls
            )
            if len(name) <= LONGEST_REMEMBERED:
                self._remember(question, decision)
        return decision

    def is_authorized_on_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """See Authorizer."""
        question = (principal.principal_type, principal.name, host, operation, resource_type, None)
        decision = self._decisions.get(question)
        if decision is None:
            decision = principal in self._super_users or self.index.decide_on_any(
                str(principal), java_host(host), operation, resource_type, without_acls=self._allow_without_acls
            )
            self._remember(question, decision)
        return decision

    def _remember(self, question: _Question, decision: bool) -> None:
        if len(self._decisions) >= MAX_DECISIONS:
            self._decisions.clear()
        self._decisions[question] = decision
