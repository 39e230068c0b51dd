"""Keeps the ACLs of the authorizer equal to those in the metadata store, and changes them for clients.

Follows the notifications of all brokers. A new session reads all ACLs again, since notifications may be gone after a long disconnection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Final, TypeVar

from ottla.broker.security.acl_authorizer import AclAuthorizer
from ottla.broker.security.principals import Principal
from ottla.broker.security.rereading import MalformedNodes, Rereading
from ottla.controller.admin.acl_store import AclStore, StoredPattern
from ottla.controller.admin.change_notifications import ChangeNotifications
from ottla.controller.errors import NoAuth, StoreError
from ottla.controller.store.metadata_store import MetadataStore
from ottla.controller.znodes.security import ACL_CHANGES, EXTENDED_ACL_CHANGES, AclEntry, decode_acl_change, decode_extended_acl_change
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.pauses import pause
from ottla.protocol.acls import (
    STORED_OPERATIONS,
    STORED_PATTERN_TYPES,
    STORED_PERMISSION_TYPES,
    STORED_RESOURCE_TYPES,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    PermissionType,
    ResourcePattern,
    camel_case,
)
from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)

RESOURCE_TYPES: Final = {camel_case(each): each for each in STORED_RESOURCE_TYPES}
OPERATIONS: Final = {camel_case(each).upper(): each for each in STORED_OPERATIONS}
PERMISSION_TYPES: Final = {camel_case(each).upper(): each for each in STORED_PERMISSION_TYPES}
"""By the name in znodes, in capitals. Apache Kafka writes `AlterConfigs`, and reads such names in any case."""
_CONSTANTS: Final = {each.name: each for each in STORED_RESOURCE_TYPES}
_PATTERN_TYPES: Final = {each.name: each for each in STORED_PATTERN_TYPES}

_T = TypeVar("_T")

_Change = Callable[[list[AccessControlEntry]], Iterable[AccessControlEntry]]

Failure = StoreError | MalformedZNode | ValueError
"""The reason why ACLs could not be changed. A ValueError is a principal that is not `Type:name`."""


class AclAdmin:
    """See the module."""

    def __init__(self, store: MetadataStore, clock: Clock, authorizer: AclAuthorizer, random: Callable[[], float]) -> None:
        """`random` returns a number from 0 to 1, as random.random."""
        self.authorizer: Final = authorizer
        self._store = AclStore(store, [*RESOURCE_TYPES], lambda: 0.1 + 0.05 * random())
        self._lock = asyncio.Lock()
        self._changes = (
            ChangeNotifications(store, clock, ACL_CHANGES, "ACLs", self._on_literal),
            ChangeNotifications(store, clock, EXTENDED_ACL_CHANGES, "prefixed ACLs", self._on_extended),
        )
        self._malformed = MalformedNodes("the former ACLs count in place of %s")
        self._rereading = Rereading("ACLs", self._read_again)

    async def load(self) -> None:
        """Read all ACLs, and follow their changes from now on. Raises StoreError, MalformedZNode."""
        await self._store.prepare()
        for changes in self._changes:
            await changes.start()
        await self._read_all()

    async def on_new_session(self) -> None:
        """Follow the changes in the present session, and read all ACLs again, later if that is not possible now."""
        for changes in self._changes:
            await changes.on_new_session()
        await self._rereading.begin()

    async def close(self) -> None:
        """Stop following changes. May be called twice."""
        await self._rereading.stop()
        for changes in self._changes:
            await changes.stop()

    async def create(self, bindings: Sequence[AclBinding]) -> list[Failure | None]:
        """Add ACLs; for each the reason why it was not added, or None. The ACLs of one pattern are added together or not at all."""
        of_pattern: dict[ResourcePattern, list[int]] = {}
        for number, binding in enumerate(bindings):
            await pause()
            of_pattern.setdefault(binding.pattern, []).append(number)
        failures: list[Failure | None] = [None] * len(bindings)
        changes: dict[ResourcePattern, _Change] = {}
        for pattern, numbers in of_pattern.items():
            await pause()
            entries = [bindings[number].entry for number in numbers]
            try:
                for entry in entries:
                    Principal.parse(entry.principal)
                changes[pattern] = partial(_with, entries)
            except ValueError as failure:
                for number in numbers:
                    failures[number] = failure
        async with self._lock:
            for pattern, failed in (await self._update(changes)).items():
                for number in of_pattern[pattern]:
                    failures[number] = failed
        return failures

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[tuple[AclBinding, Failure | None]]]:
        """Delete the ACLs that filters select: for each filter the ACLs, with the reason for those that were not deleted.

        An ACL that several filters select belongs to the first of them. A filter that names one resource reads the metadata store; for
        any other filter the ACLs count that this broker knows.
        """
        deleted: list[list[tuple[AclBinding, Failure | None]]] = [[] for _ in filters]
        async with self._lock:
            patterns: dict[ResourcePattern, list[int]] = {pattern: [] for pattern in self.authorizer.index.patterns()}
            """By pattern, the numbers of the filters that name it."""
            others = []
            for number, each in enumerate(filters):
                await pause()
                named = each.named_patterns()
                for pattern in named:
                    patterns.setdefault(pattern, []).append(number)
                if not named:
                    others.append(number)
            deletions: dict[ResourcePattern, _Deletion] = {}
            for pattern, selecting in patterns.items():
                for number in others:
                    await pause()
                    if filters[number].matches_pattern(pattern):
                        selecting.append(number)
                await pause()
                if selecting:
                    deletions[pattern] = _Deletion((number, filters[number]) for number in sorted(selecting))
            changes = {pattern: each.change for pattern, each in deletions.items()}
            for pattern, failure in (await self._update(changes)).items():
                for entry, number in deletions[pattern].selected.items():
                    deleted[number].append((AclBinding(pattern, entry), failure))
        return deleted

    async def _update(self, changes: Mapping[ResourcePattern, _Change]) -> dict[ResourcePattern, Failure | None]:
        """Change the ACLs of patterns; for each the reason why they were not changed, or None."""
        wanted = []
        for pattern, change in changes.items():
            await pause()
            stored = StoredPattern(camel_case(pattern.resource_type), pattern.name, pattern.pattern_type.name)
            wanted.append((stored, partial(_stored, stored, change)))
        outcomes = await self._store.update(wanted)
        failures: dict[ResourcePattern, Failure | None] = {}
        for pattern, (stored, _), outcome in zip(changes, wanted, outcomes, strict=True):
            await pause()
            failures[pattern] = None
            if isinstance(outcome, Exception):
                failures[pattern] = outcome
            else:
                self.authorizer.set_acls(pattern, _entries(stored, outcome))
        return failures

    async def _on_literal(self, path: str, data: bytes | None) -> None:
        resource_type, name = decode_acl_change(path, data)
        await self._read(ResourcePattern(_known(_CONSTANTS, resource_type, path), name, PatternType.LITERAL))

    async def _on_extended(self, path: str, data: bytes | None) -> None:
        resource_type, name, pattern_type = decode_extended_acl_change(path, data)
        resource = _known(_CONSTANTS, resource_type, path)
        await self._read(ResourcePattern(resource, name, _known(_PATTERN_TYPES, pattern_type, path)))

    async def _read(self, pattern: ResourcePattern) -> None:
        stored = StoredPattern(camel_case(pattern.resource_type), pattern.name, pattern.pattern_type.name)
        try:
            async with self._lock:
                self.authorizer.set_acls(pattern, _entries(stored, await self._store.read(stored)))
        except (MalformedZNode, NoAuth):
            await self._rereading.begin_later()  # no notification may follow the repair
            raise
        logger.info("the ACLs of %s changed", stored.path)

    async def _read_again(self) -> None:
        """Read all ACLs. Those of a malformed node stay as they are. Raises StoreError, NotAllRead."""
        malformed: dict[StoredPattern, MalformedZNode] = {}
        await self._read_all(malformed)
        self._malformed.report({pattern.path: error for pattern, error in malformed.items()})

    async def _read_all(self, malformed: dict[StoredPattern, MalformedZNode] | None = None) -> None:
        """Read all ACLs. They count together, once all are read and compared; the event loop serves clients in between. `malformed`: see
        `AclStore.read_all`."""
        async with self._lock:
            found: dict[ResourcePattern, list[AccessControlEntry]] = {}
            changed: dict[ResourcePattern, Sequence[AccessControlEntry]] = {}
            index = self.authorizer.index  # it does not change while the lock is held
            for stored, stored_entries in await self._store.read_all(malformed):
                await pause()
                pattern = _pattern(stored)
                try:
                    found[pattern] = entries = _entries(stored, stored_entries)
                except MalformedZNode as error:
                    if malformed is None:
                        raise
                    malformed[stored] = error
                    continue
                if set(entries) != set(index.entries(pattern)):
                    changed[pattern] = entries
            unread = set(map(_pattern, malformed or ()))
            for pattern in index.patterns():
                if pattern not in found and pattern not in unread:
                    changed[pattern] = ()
                await pause()
            for pattern, its_entries in changed.items():
                self.authorizer.set_acls(pattern, its_entries)


def _pattern(stored: StoredPattern) -> ResourcePattern:
    return ResourcePattern(RESOURCE_TYPES[stored.resource_type], stored.name, _PATTERN_TYPES[stored.pattern_type])


def _known(named: dict[str, _T], name: str, path: str) -> _T:
    """The member of that name, in any case. An unknown name raises MalformedZNode: to ignore an ACL might grant what a Deny forbids."""
    member = named.get(name.upper())
    if member is None:
        raise MalformedZNode(path, f"unknown name {name!r}")
    return member


def _entries(stored: StoredPattern, entries: Iterable[AclEntry]) -> list[AccessControlEntry]:
    return [
        AccessControlEntry(
            each.principal,
            each.host,
            _known(OPERATIONS, each.operation, stored.path),
            _known(PERMISSION_TYPES, each.permission_type, stored.path),
        )
        for each in entries
    ]


class _Deletion:
    """Removes the ACLs of one pattern that filters select."""

    def __init__(self, selecting: Iterable[tuple[int, AclFilter]]) -> None:
        """`selecting` are the filters that select the pattern, each with its number, in the order of the numbers."""
        self._first: dict[tuple[str | None, str | None, int, int], int] = {}
        """By what filters say of entries, the number of the first of them."""
        for number, each in selecting:
            self._first.setdefault((each.principal, each.host, each.operation, each.permission_type), number)
        self.selected: dict[AccessControlEntry, int] = {}
        """The ACLs that the last call of `change` removed, with the number of the first filter that selects them."""

    def change(self, present: list[AccessControlEntry]) -> list[AccessControlEntry]:
        """The ACLs that stay."""
        self.selected.clear()
        for entry in present:
            numbers = [number for asked in _filters_of(entry) if (number := self._first.get(asked)) is not None]
            if numbers:
                self.selected[entry] = min(numbers)
        return [entry for entry in present if entry not in self.selected]


def _filters_of(entry: AccessControlEntry) -> Iterator[tuple[str | None, str | None, int, int]]:
    """All that a filter that selects the entry may say of it."""
    return product(
        (entry.principal, None), (entry.host, None), (entry.operation, Operation.ANY), (entry.permission_type, PermissionType.ANY)
    )


def _stored(pattern: StoredPattern, change: _Change, present: list[AclEntry]) -> Iterable[AclEntry]:
    """A change in the form of the store. Raises MalformedZNode."""
    return map(_stored_entry, dict.fromkeys(change(_entries(pattern, present))))


def _with(added: list[AccessControlEntry], present: list[AccessControlEntry]) -> list[AccessControlEntry]:
    return [*present, *added]


def _stored_entry(entry: AccessControlEntry) -> AclEntry:
    return AclEntry(entry.principal, camel_case(entry.permission_type), entry.host, camel_case(entry.operation))
