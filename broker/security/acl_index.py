"""Decides by ACLs. Pure: no store, no log.

`AclIndex` holds all ACLs of a cluster. A decision examines the ACLs of the resource's name, those of the literal name `*`, and those of
each prefix; prefixes are found by one look-up for each distinct length of a prefix. Within one pattern, entries are found by principal and
operation. So the cost of a decision does not grow with the number of ACLs. A decision about any resource of a type examines only patterns
with an Allow for the principal and operation, up to the first one that no Deny covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ottla.broker.security.acl_hosts import comparable_host, without_scope
from ottla.protocol.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)

ALLOWED_BY: Final[dict[int, tuple[int, ...]]] = {
    int(operation): tuple(map(int, allowing))
    for operation, allowing in {
        Operation.DESCRIBE: (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
        Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    }.items()
}
"""The operations whose Allow is also one of the key. A Deny is only one of its own operation."""

_ALL: Final = int(Operation.ALL)
_Hosts = dict[tuple[str, int], set[str]]
"""The hosts of entries, by principal and operation. Operations are plain numbers: members of an enumeration are hashed by a function in
Python, which would double the time of a decision."""
_Names = dict[tuple[str, int], set[str]]
"""The names of patterns with an Allow, by its principal and operation."""


class PatternAcls:
    """The ACLs of one pattern. Immutable by agreement."""

    __slots__ = ("allowed", "denied", "entries")

    def __init__(self, entries: Iterable[AccessControlEntry]) -> None:
        self.entries = tuple(dict.fromkeys(entries))
        self.denied: _Hosts = {}
        self.allowed: _Hosts = {}
        for entry in self.entries:
            hosts, host = self.allowed, comparable_host(entry.host)
            if entry.permission_type is PermissionType.DENY:
                # An interface has another number on another broker, and may be written by its name. A Deny must not be missed.
                hosts, host = self.denied, without_scope(host)
            hosts.setdefault((entry.principal, int(entry.operation)), set()).add(host)


def _has(hosts: _Hosts, principal: str, host: str, operation: int) -> bool:
    """Whether an entry for this principal, host and operation is among those with `hosts`."""
    if not hosts:
        return False
    for who in (principal, WILDCARD_PRINCIPAL):
        for what in (operation, _ALL):
            found = hosts.get((who, what))
            if found is not None and (host in found or WILDCARD in found):
                return True
    return False


class _TypeAcls:
    """The ACLs of one resource type, by name."""

    __slots__ = ("allowing_literals", "allowing_prefixes", "lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, PatternAcls] = {}
        self.prefixed: dict[str, PatternAcls] = {}
        self.allowing_literals: _Names = {}
        self.allowing_prefixes: _Names = {}
        self.lengths: dict[int, int] = {}
        """The number of prefixes of each length."""

    def covering(self, name: str) -> list[PatternAcls]:
        """The ACLs of all patterns that cover the resource of this name. A prefix that is the whole name may be there several times."""
        prefixed = self.prefixed
        found = [prefixed[prefix] for length in self.lengths if (prefix := name[:length]) in prefixed]
        for literal in (WILDCARD, name) if name != WILDCARD else (WILDCARD,):
            acls = self.literal.get(literal)
            if acls is not None:
                found.append(acls)
        return found

    def set(self, pattern_type: PatternType, name: str, acls: PatternAcls) -> None:
        """Replace the ACLs of one pattern; without entries the pattern is forgotten."""
        if pattern_type is PatternType.LITERAL:
            named, allowing = self.literal, self.allowing_literals
        else:
            named, allowing = self.prefixed, self.allowing_prefixes
            change = bool(acls.entries) - (name in named)
            length = len(name)
            self.lengths[length] = self.lengths.get(length, 0) + change
            if not self.lengths[length]:
                del self.lengths[length]
        before = named.get(name)
        if before is not None:
            for who in before.allowed:
                allowing[who].discard(name)
                if not allowing[who]:
                    del allowing[who]
        for who in acls.allowed:
            allowing.setdefault(who, set()).add(name)
        if acls.entries:
            named[name] = acls
        else:
            named.pop(name, None)


class AclIndex:
    """See the module."""

    __slots__ = ("_types",)

    def __init__(self) -> None:
        self._types: dict[ResourceType, _TypeAcls] = {}

    def set(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> bool:
        """Replace the ACLs of a pattern. Returns whether they are others than before."""
        acls = PatternAcls(entries)
        if set(acls.entries) == set(self.entries(pattern)):
            return False
        self._types.setdefault(pattern.resource_type, _TypeAcls()).set(pattern.pattern_type, pattern.name, acls)
        return True

    def entries(self, pattern: ResourcePattern) -> tuple[AccessControlEntry, ...]:
        """The ACLs of a pattern."""
        of_type = self._types.get(pattern.resource_type)
        if of_type is None:
            return ()
        named = of_type.literal if pattern.pattern_type is PatternType.LITERAL else of_type.prefixed
        acls = named.get(pattern.name)
        return () if acls is None else acls.entries

    def patterns(self) -> Iterator[ResourcePattern]:
        """All patterns that have ACLs, in the order of their types. The index must not change meanwhile."""
        for resource_type in sorted(self._types):
            of_type = self._types[resource_type]
            for name in of_type.literal:
                yield ResourcePattern(resource_type, name, PatternType.LITERAL)
            for name in of_type.prefixed:
                yield ResourcePattern(resource_type, name, PatternType.PREFIXED)

    def select(self, wanted: AclFilter) -> Iterator[AclBinding]:
        """The ACLs that a filter selects. The index must not change meanwhile."""
        for pattern in self.patterns():
            if wanted.matches_pattern(pattern):
                for entry in self.entries(pattern):
                    if wanted.matches_entry(entry):
                        yield AclBinding(pattern, entry)

    def decide(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str, *, without_acls: bool
    ) -> bool:
        """Whether the operation is allowed on the resource. `without_acls` is the answer for a resource that no ACL covers.

        A matching Deny comes before any Allow.
        """
        of_type = self._types.get(resource_type)
        covering = [] if of_type is None else of_type.covering(name)
        if not covering:
            return without_acls
        asked, address = int(operation), without_scope(host)
        for acls in covering:
            if _has(acls.denied, principal, address, asked):
                return False
        allowing = ALLOWED_BY.get(asked, (asked,))
        for acls in covering:
            for each in allowing:
                if _has(acls.allowed, principal, host, each):
                    return True
        return False

    def decide_on_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, *, without_acls: bool) -> bool:
        """Whether the operation is allowed on at least one resource of the type (KIP-679).

        A Deny of the literal name `*` forbids all. With `without_acls` some resource without ACLs exists. Otherwise some Allow must have
        a name or prefix that no Deny covers. An Allow of another operation that implies this one does not count, as in Apache Kafka.
        """
        of_type = self._types.get(resource_type)
        asked, address = int(operation), without_scope(host)
        if of_type is None:
            return without_acls
        all_names = of_type.literal.get(WILDCARD)
        if all_names is not None and _has(all_names.denied, principal, address, asked):
            return False
        if without_acls:
            return True

        def is_denied(name: str) -> bool:
            prefixes = (of_type.prefixed.get(name[:length]) for length in of_type.lengths if length <= len(name))
            return any(acls is not None and _has(acls.denied, principal, address, asked) for acls in prefixes)

        for prefix in _allowed(of_type.prefixed, of_type.allowing_prefixes, principal, host, asked):
            if not is_denied(prefix):
                return True
        for name in _allowed(of_type.literal, of_type.allowing_literals, principal, host, asked):
            if name == WILDCARD:
                return True
            if not _has(of_type.literal[name].denied, principal, address, asked) and not is_denied(name):
                return True
        return False


def _allowed(named: dict[str, PatternAcls], allowing: _Names, principal: str, host: str, operation: int) -> Iterator[str]:
    """The names among `named` whose pattern has an Allow for this principal, host and operation; some of them twice."""
    for who in (principal, WILDCARD_PRINCIPAL):
        for what in (operation, _ALL):
            for name in allowing.get((who, what), ()):
                hosts = named[name].allowed[who, what]
                if host in hosts or WILDCARD in hosts:
                    yield name
