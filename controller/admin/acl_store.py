"""Reads and writes the ACLs in the metadata store. Kafka's ZkAclStore and the writing part of its AclAuthorizer.

Writes are conditional on the version that was read, so that brokers that write at the same time lose no ACL. Each write includes a
notification for the other brokers.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import NamedTuple

from ottla.controller.errors import BadVersion, NodeExists, NoNode, StoreError
from ottla.controller.store.metadata_store import (
    Children,
    Create,
    Delete,
    Get,
    MetadataStore,
    Multi,
    Result,
    SetData,
    Write,
    data_and_stat,
    names,
)
from ottla.controller.znodes.pauses import slices
from ottla.controller.znodes.security import (
    ACL,
    ACL_CHANGE_PREFIX,
    ACL_CHANGES,
    EXTENDED_ACL_CHANGE_PREFIX,
    EXTENDED_ACL_CHANGES,
    PREFIXED_ACL,
    AclEntry,
    decode_acls,
    encode_acl_change,
    encode_acls,
    encode_extended_acl_change,
)
from ottla.controller.znodes.znode_json import MalformedZNode

logger = logging.getLogger(__name__)

MAX_RETRIES = 10
"""Repetitions of a write that another broker was quicker than, as in Apache Kafka."""
LITERAL, PREFIXED = "LITERAL", "PREFIXED"
_ROOTS = {LITERAL: ACL, PREFIXED: PREFIXED_ACL}


Change = Callable[[list[AclEntry]], Iterable[AclEntry]]
"""Computes the new ACLs of a pattern from the current ones."""
Failure = StoreError | MalformedZNode


class StoredPattern(NamedTuple):
    """The pattern of a resource. `resource_type` is the name of a znode (`TransactionalId`), `pattern_type` is LITERAL or PREFIXED."""

    resource_type: str
    name: str
    pattern_type: str

    @property
    def path(self) -> str:
        """The znode of the pattern's ACLs."""
        return f"{_ROOTS[self.pattern_type]}/{self.resource_type}/{self.name}"


class AclStore:
    """See the module."""

    def __init__(self, store: MetadataStore, resource_types: Sequence[str], retry_delay_s: Callable[[], float]) -> None:
        """`resource_types` are the names of znodes, in the order in which they are created."""
        self._store = store
        self._resource_types = resource_types
        self._retry_delay_s = retry_delay_s

    async def prepare(self) -> None:
        """Create the paths of ACLs where they are missing. Raises StoreError."""
        for root in (ACL, PREFIXED_ACL):
            await self._store.ensure_path(root)
            for outcome in await self._store.pipeline([Create(f"{root}/{each}") for each in self._resource_types]):
                if isinstance(outcome, StoreError) and not isinstance(outcome, NodeExists):
                    raise outcome
        for root in (ACL_CHANGES, EXTENDED_ACL_CHANGES):
            await self._store.ensure_path(root)

    async def read(self, pattern: StoredPattern) -> list[AclEntry]:
        """The ACLs of a pattern. Raises StoreError, MalformedZNode."""
        (found,) = await self._store.pipeline([Get(pattern.path)])
        return _acls(pattern, found)[0]

    async def read_all(
        self, malformed: MutableMapping[StoredPattern, MalformedZNode] | None = None
    ) -> list[tuple[StoredPattern, list[AclEntry]]]:
        """All ACLs. Directories of unknown resource types are ignored. Patterns with a malformed node are left out and added to
        `malformed`; without it MalformedZNode is raised. Raises StoreError."""
        found = []
        for pattern_type, root in _ROOTS.items():
            for resource_type in names((await self._store.pipeline([Children(root)]))[0]):
                if resource_type not in self._resource_types:
                    logger.warning("ignoring the ACLs of the unknown resource type %s", resource_type)
                    continue
                listed = names((await self._store.pipeline([Children(f"{root}/{resource_type}")]))[0])
                patterns = [StoredPattern(resource_type, name, pattern_type) for name in listed]
                for some in slices(patterns):
                    outcomes = await self._store.pipeline([Get(pattern.path) for pattern in some])
                    for pattern, outcome in zip(some, outcomes, strict=True):
                        if isinstance(outcome, NoNode):
                            continue
                        try:
                            found.append((pattern, decode_acls(pattern.path, data_and_stat(outcome)[0])))
                        except MalformedZNode as error:
                            if malformed is None:
                                raise
                            malformed[pattern] = error
        return found

    async def update(self, changes: Sequence[tuple[StoredPattern, Change]]) -> list[list[AclEntry] | Failure]:
        """Set the ACLs of each pattern to the change of the current ones; without ACLs the node is deleted.

        Returns for each pattern its ACLs, or a StoreError or MalformedZNode if they were not changed. A StoreError may also mean that
        other brokers were quicker at every attempt. A change is called again for each attempt, and may raise MalformedZNode. Patterns are
        independent of each other, and all different.
        """
        outcomes: list[list[AclEntry] | Failure] = []
        for some in slices(changes):
            outcomes += await self._update(some)
        return outcomes

    async def _update(self, changes: Sequence[tuple[StoredPattern, Change]]) -> list[list[AclEntry] | Failure]:
        """The outcomes of one slice, whose requests travel together."""
        outcomes: dict[int, list[AclEntry] | Failure] = {}
        attempts_left = 1 + MAX_RETRIES
        while True:
            attempts_left -= 1
            left = [number for number in range(len(changes)) if number not in outcomes]
            try:
                read = await self._store.pipeline([Get(changes[number][0].path) for number in left])
                writes: dict[int, tuple[list[AclEntry], Multi]] = {}
                for number, found in zip(left, read, strict=True):
                    pattern, change = changes[number]
                    try:
                        present, version = _acls(pattern, found)
                        wanted = list(change(present))
                    except (StoreError, MalformedZNode) as failure:
                        outcomes[number] = failure
                        continue
                    if set(wanted) == set(present):
                        outcomes[number] = present
                    else:
                        writes[number] = wanted, Multi((_write(pattern.path, wanted, version), _notification(pattern)))
                written = await self._store.pipeline([write for _, write in writes.values()]) if writes else []
            except StoreError as failure:  # of the session: all requests share it
                outcomes |= {number: failure for number in left if number not in outcomes}
                written, writes = [], {}
            for (number, (wanted, _)), outcome in zip(writes.items(), written, strict=True):
                if not isinstance(outcome, StoreError):
                    logger.info("updated the ACLs of %s", changes[number][0].path)
                    outcomes[number] = wanted
                elif not attempts_left or not isinstance(outcome, BadVersion | NoNode | NodeExists):
                    outcomes[number] = outcome
            if len(outcomes) == len(changes):
                return [outcomes[number] for number in range(len(changes))]
            await asyncio.sleep(self._retry_delay_s())


def _acls(pattern: StoredPattern, found: Result | StoreError) -> tuple[list[AclEntry], int | None]:
    """The ACLs and the version of their node; None if there is no node. Raises StoreError, MalformedZNode."""
    if isinstance(found, NoNode):
        return [], None
    data, stat = data_and_stat(found)
    return decode_acls(pattern.path, data), stat.version


def _notification(pattern: StoredPattern) -> Create:
    """Notifies all brokers of a change. The names of resource types in notifications are those of Java's constants."""
    constant = "".join(f"_{letter}" if letter.isupper() else letter for letter in pattern.resource_type)[1:].upper()
    if pattern.pattern_type == LITERAL:
        return Create(ACL_CHANGE_PREFIX, encode_acl_change(constant, pattern.name), sequential=True)
    return Create(EXTENDED_ACL_CHANGE_PREFIX, encode_extended_acl_change(constant, pattern.name, pattern.pattern_type), sequential=True)


def _write(path: str, entries: list[AclEntry], version: int | None) -> Write:
    if version is None:
        return Create(path, encode_acls(entries))
    return SetData(path, encode_acls(entries), version) if entries else Delete(path, version)
