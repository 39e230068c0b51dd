"""Applies writes to a znode tree by ZooKeeper's rules for nodes, versions and zxids.

`memory_store` and `embedded_store` apply writes through `apply` to their own `Nodes`. They differ only in where nodes
are kept, which clients share them, and when a session ends.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla.config.zookeeper_connect import NOT_IN_PATHS
from ottla.controller.errors import BadArguments, BadVersion, NoChildrenForEphemerals, NodeExists, NoNode, NotEmpty, StoreError
from ottla.controller.store.metadata_store import (
    ANY_VERSION,
    Check,
    Create,
    EventType,
    Multi,
    SetData,
    Stat,
    WatchedEvent,
    Write,
    parent_of,
)


class Node(NamedTuple):
    """A znode. `created` counts the children ever created and numbers sequential ones; cversion also counts deletions."""

    data: bytes | None
    version: int
    cversion: int
    created: int
    children: int
    czxid: int
    mzxid: int
    pzxid: int
    """zxid of the last creation or deletion of a child."""
    ctime_ms: int
    mtime_ms: int
    ephemeral_owner: int

    @property
    def stat(self) -> Stat:
        """The part that clients see."""
        return Stat(self.version, self.cversion, self.czxid, self.mzxid, self.ctime_ms, self.mtime_ms, self.ephemeral_owner)


ROOT = Node(b"", 0, -1, 0, 0, 0, 0, 0, 0, 0, 0)
"""The root of an empty tree. Its cversion begins at -1 as in ZooKeeper, which does not count its own child /zookeeper
as created."""


class Nodes(Protocol):
    """A container of nodes by path."""

    def find(self, path: str) -> Node | None:
        """The node at this path, None if there is none."""

    def put(self, path: str, node: Node) -> None:
        """Add or replace."""

    def remove(self, path: str) -> None:
        """Remove an existing node."""


class Staged:
    """Buffers changes to other nodes, to be applied together or dropped. Makes a Multi atomic."""

    def __init__(self, below: Nodes) -> None:
        self.below = below
        self.changed: dict[str, Node | None] = {}

    def find(self, path: str) -> Node | None:
        """See Nodes."""
        return self.changed[path] if path in self.changed else self.below.find(path)

    def put(self, path: str, node: Node) -> None:
        """See Nodes."""
        self.changed[path] = node

    def remove(self, path: str) -> None:
        """See Nodes."""
        self.changed[path] = None

    def move_down(self) -> None:
        """Apply the changes to the nodes below."""
        for path, node in self.changed.items():
            if node is not None:
                self.below.put(path, node)
            elif self.below.find(path) is not None:
                self.below.remove(path)
        self.changed = {}


@dataclass(slots=True)
class Attempt:
    """One attempt to write: its session, zxid, time, and the events it has caused so far."""

    session_id: int
    zxid: int
    now_ms: int
    events: list[WatchedEvent]


def apply(write: Write | Multi, nodes: Nodes, attempt: Attempt) -> str | Stat | list[str | Stat | None] | None:
    """Carry out `write` and append the events for watches to `attempt.events`. Raises StoreError, and then changes
    nothing."""
    if not isinstance(write, Multi):
        return _apply_one(write, nodes, attempt)
    staged = Staged(nodes)
    events = attempt.events
    attempt.events = []
    results: list[str | Stat | None] = []
    try:
        for index, one in enumerate(write.writes):
            try:
                results.append(_apply_one(one, staged, attempt))
            except StoreError as error:
                error.index = index
                raise
        staged.move_down()
        events += attempt.events
    finally:
        attempt.events = events
    return results


def delete_ephemerals(paths: Iterable[str], nodes: Nodes, attempt: Attempt) -> None:
    """Delete the ephemeral nodes of a session that ended."""
    for path in sorted(paths):
        _delete(path, ANY_VERSION, nodes, attempt)


def _apply_one(write: Write, nodes: Nodes, attempt: Attempt) -> str | Stat | None:
    if isinstance(write, Create):
        return _create(write, nodes, attempt)
    if isinstance(write, SetData):
        return _set(write, nodes, attempt)
    if isinstance(write, Check):
        _found(write.path, write.version, nodes)
        return None
    _delete(write.path, write.version, nodes, attempt)
    return None


def _create(write: Create, nodes: Nodes, attempt: Attempt) -> str:
    parent_path = parent_of(write.path)
    check_path(write.path, write.sequential)
    parent = nodes.find(parent_path)
    if parent is None:
        raise NoNode(write.path)
    path = f"{write.path}{parent.created:010d}" if write.sequential else write.path
    if nodes.find(path) is not None:
        raise NodeExists(write.path)
    if parent.ephemeral_owner:
        raise NoChildrenForEphemerals(write.path)
    owner = attempt.session_id if write.ephemeral else 0
    zxid, now_ms = attempt.zxid, attempt.now_ms
    nodes.put(path, Node(write.data, 0, 0, 0, 0, zxid, zxid, zxid, now_ms, now_ms, owner))
    nodes.put(
        parent_path,
        parent._replace(cversion=parent.cversion + 1, created=parent.created + 1, children=parent.children + 1, pzxid=zxid),
    )
    attempt.events += (WatchedEvent(EventType.CREATED, path), WatchedEvent(EventType.CHILDREN_CHANGED, parent_path))
    return path


def _set(write: SetData, nodes: Nodes, attempt: Attempt) -> Stat:
    node = _found(write.path, write.version, nodes)
    node = node._replace(data=write.data, version=node.version + 1, mzxid=attempt.zxid, mtime_ms=attempt.now_ms)
    nodes.put(write.path, node)
    attempt.events.append(WatchedEvent(EventType.DATA_CHANGED, write.path))
    return node.stat


def _delete(path: str, version: int, nodes: Nodes, attempt: Attempt) -> None:
    if path == "/":
        raise BadArguments(path)
    node = _found(path, version, nodes)
    if node.children:
        raise NotEmpty(path)
    parent_path = parent_of(path)
    parent = nodes.find(parent_path)
    assert parent is not None, "a node has a parent"
    nodes.remove(path)
    nodes.put(parent_path, parent._replace(cversion=parent.cversion + 1, children=parent.children - 1, pzxid=attempt.zxid))
    attempt.events += (WatchedEvent(EventType.DELETED, path), WatchedEvent(EventType.CHILDREN_CHANGED, parent_path))


def _found(path: str, version: int, nodes: Nodes) -> Node:
    node = nodes.find(path)
    if node is None:
        raise NoNode(path)
    if version not in (ANY_VERSION, node.version):
        raise BadVersion(path)
    return node


def check_path(path: str, sequential: bool = False) -> None:
    """Raises BadArguments unless `path` is absolute and free of empty, `.` and `..` parts and of characters that
    ZooKeeper refuses."""
    parts = path.split("/")
    if sequential and parts[-1] == "":
        parts.pop()
    if parts[0] or len(parts) < 2 or any(part in {"", ".", ".."} for part in parts[1:]) or NOT_IN_PATHS.search(path):
        raise BadArguments(path)
