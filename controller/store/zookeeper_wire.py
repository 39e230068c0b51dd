"""Translates requests and outcomes of the port to and from kazoo: chroot, ACLs, stats, error codes, the failing write
of a Multi. Pure.

A path that no znode can have is sent in a form that ZooKeeper refuses. So the request fails in its turn, also inside a
Multi, and never names a node outside the chroot.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
)
from kazoo.protocol import serialization as wire
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from ottla.controller.errors import (
    SAME_IDENTITY,
    BadArguments,
    BadVersion,
    NoAuth,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    RequestTooLong,
    StoreError,
    StoreUnavailable,
)
from ottla.controller.store.metadata_store import Check, Children, Create, Delete, Exists, Get, Multi, Request, Result, SetData, Stat, Write
from ottla.controller.store.tree import check_path
from ottla.controller.znodes.security import SCRAM_SECRET

SENSITIVE_PATHS = ("/config/users", "/config/brokers", "/delegation_token/tokens", SCRAM_SECRET)
"""Paths with secrets: if ACLs are set, other clients may not even read them."""
OPEN_PATH = "/consumers"
"""Parent of the registrations of old consumers, which write there themselves."""

_EPHEMERAL, _SEQUENTIAL = 1, 2
_ERRORS: dict[type[Exception], type[StoreError]] = {
    NoNodeError: NoNode,
    NodeExistsError: NodeExists,
    BadVersionError: BadVersion,
    NotEmptyError: NotEmpty,
    NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    BadArgumentsError: BadArguments,
}
_MAX_SET_WATCHES_BYTES = 128 * 1024
"""Size at which a SetWatches request is split, bytes: the same as in ZooKeeper's own client. ZooKeeper accepts requests
up to 1 MiB."""

MAX_REQUEST_BYTES = 0xFFFFF
"""Longest request that a ZooKeeper with the default jute.maxbuffer accepts, bytes, without the length in front."""
_HEAD_BYTES = 8
"""Bytes of xid and type in front of a request."""

Watcher = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class SetWatches:
    """Sets watches again on a new connection; kazoo has no such request. Watches whose node changed after `last_zxid`
    fire at once."""

    last_zxid: int
    data: Sequence[str]
    missing: Sequence[str]
    children: Sequence[str]

    type: ClassVar[int] = 101

    def serialize(self) -> bytes:
        """The body after the type."""
        vectors = b"".join(
            struct.pack("!i", len(paths)) + b"".join(wire.write_string(path) for path in paths)
            for paths in (self.data, self.missing, self.children)
        )
        return struct.pack("!q", self.last_zxid) + vectors

    def deserialize(self, _: bytes, __: int) -> bool:
        """The reply is empty."""
        return True


def set_watches(last_zxid: int, data: Sequence[str], missing: Sequence[str], children: Sequence[str]) -> list[SetWatches]:
    """The requests to set all these watches, split by size. Paths are absolute, with the chroot."""
    requests: list[SetWatches] = []
    for place, paths in enumerate((data, missing, children)):
        begin = 0
        while begin < len(paths):
            end, size = begin, 0
            while end < len(paths) and size < _MAX_SET_WATCHES_BYTES:
                size += len(paths[end]) + 4
                end += 1
            vectors: list[Sequence[str]] = [(), (), ()]
            vectors[place] = paths[begin:end]
            requests.append(SetWatches(last_zxid, *vectors))
            begin = end
    return requests


def too_long(request: Request, sent: Any) -> RequestTooLong | None:
    """The outcome of a request, in kazoo's form `sent`, that is longer than ZooKeeper accepts by default; None for others."""
    size = _HEAD_BYTES + len(sent.serialize())
    if size <= MAX_REQUEST_BYTES:
        return None
    return RequestTooLong(
        _path_of(request),
        f"the connection to ZooKeeper broke at a request as long as this of {size} bytes; by default ZooKeeper refuses more than "
        f"{MAX_REQUEST_BYTES} (its system property jute.maxbuffer)",
    )


def create_chroot(chroot: str) -> list[Create]:
    """The nodes of `/a/b`: `/a`, `/a/b`."""
    parts = chroot.split("/")
    return [Create("/".join(parts[:length])) for length in range(2, len(parts) + 1)]


class ZooKeeperWire:
    """Translates for one chroot ("" or "/path") and one policy of ACLs."""

    def __init__(self, chroot: str, secure: bool, watcher: Watcher) -> None:
        """`watcher` is attached to every request that sets a watch."""
        self._chroot = chroot
        self._secure = secure
        self._watcher = watcher

    def to_wire(self, request: Request) -> Any:
        """The request as kazoo sends it."""
        if isinstance(request, Multi):
            return wire.Transaction([self._part_to_wire(write) for write in request.writes])
        if isinstance(request, Check):
            return wire.Transaction([self._part_to_wire(request)])  # ZooKeeper closes the connection on a Check outside a transaction
        return self._part_to_wire(request)

    def _part_to_wire(self, request: Exists | Get | Children | Write) -> Any:
        path = self.absolute(request.path, request)
        if isinstance(request, Create):
            flags = _EPHEMERAL * request.ephemeral | _SEQUENTIAL * request.sequential
            return wire.Create(path, request.data, acls(request.path, self._secure), flags)
        if isinstance(request, SetData):
            return wire.SetData(path, request.data, request.version)
        if isinstance(request, Delete):
            return wire.Delete(path, request.version)
        if isinstance(request, Check):
            return wire.CheckVersion(path, request.version)
        watcher = None if request.watch is None else self._watcher
        if isinstance(request, Get):
            return wire.GetData(path, watcher)
        if isinstance(request, Exists):
            return wire.Exists(path, watcher)
        return wire.GetChildren(path, watcher)

    def absolute(self, path: str, request: Request | None = None) -> str:
        """The path with the chroot."""
        if path == "/" and not isinstance(request, Create | Delete):
            return self._chroot or "/"
        sequential = isinstance(request, Create) and request.sequential
        try:
            check_path(path, sequential)
        except BadArguments:
            return f"{self._chroot}/\0"  # refused before any other check
        return self._chroot + path

    def relative(self, path: str) -> str:
        """The path without the chroot."""
        return path[len(self._chroot) :] or "/"

    def outcome(self, request: Request, result: Any, error: Exception | None) -> Result | StoreError:
        """The result or the error that the reply means for the caller."""
        if isinstance(request, Multi):
            if error is not None:
                return StoreUnavailable(_path_of(request), _reason(error))
            return self._multi_outcome(request.writes, result)
        if error is not None:
            impossible = isinstance(request, Exists) and isinstance(error, BadArgumentsError)
            return None if impossible else _refusal(request, error)
        if isinstance(request, Check):
            checked = self._multi_outcome((request,), result)
            return checked if isinstance(checked, StoreError) else None
        if isinstance(request, Get):
            data, stat = result
            return data, _stat(stat)
        if isinstance(request, Children):
            return sorted(result)
        if isinstance(request, Exists):
            return None if result is None else _stat(result)
        return self._write_result(request, result)

    def _multi_outcome(self, writes: Sequence[Write], results: Sequence[Any]) -> Result | StoreError:
        for index, result in enumerate(results):
            # Writes before the failing one were rolled back, those after it were not tried.
            if isinstance(result, Exception) and not isinstance(result, RolledBackError):
                refused = _refusal(writes[index], result)
                refused.index = index
                return refused
        return [self._write_result(write, result) for write, result in zip(writes, results, strict=True)]

    def _write_result(self, write: Write, result: Any) -> str | Stat | None:
        if isinstance(write, Create):
            return self.relative(result)
        return _stat(result) if isinstance(write, SetData) else None


def acls(path: str, secure: bool) -> list[ACL]:
    """The ACLs of a node: open to all; or with zookeeper.set.acl all permissions for its creator, and read permission
    for others."""
    if not secure or path == OPEN_PATH:
        return list(OPEN_ACL_UNSAFE)
    if path.startswith(SENSITIVE_PATHS):
        return list(CREATOR_ALL_ACL)
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


def _path_of(request: Request) -> str:
    """The path of a request, for errors; that of its first write for a Multi."""
    if isinstance(request, Multi):
        return request.writes[0].path if request.writes else "/"
    return request.path


def _refusal(request: Exists | Get | Children | Write, error: Exception) -> StoreError:
    if isinstance(error, NoAuthError):
        return NoAuth(request.path, f"{_reason(error)}; the node belongs to another identity. With zookeeper.set.acl {SAME_IDENTITY}")
    kind = _ERRORS.get(type(error))
    if kind is None:
        return StoreUnavailable(request.path, _reason(error))
    if kind is BadArguments and not isinstance(request, Create) and request.path != "/":
        kind = NoNode  # ZooKeeper reports BadArguments for a path that no node can have
    return kind(request.path)


def _reason(error: Exception) -> str:
    return f"ZooKeeper refused the request: {type(error).__name__.removesuffix('Error')}"


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.cversion, stat.czxid, stat.mzxid, stat.ctime, stat.mtime, stat.ephemeralOwner)
