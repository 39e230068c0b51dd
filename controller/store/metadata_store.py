"""Declares the port to the cluster's metadata: a small znode tree modelled on ZooKeeper.

Callers are the controller, its administration, and the brokers' registration. Implementations: `memory_store`
(simulation, tests), `embedded_store` (a SQLite file that the broker processes of one host share) and `zookeeper_store`.
`tests/contract/test_metadata_store.py` checks each of them against these invariants:

* Requests of one store are carried out in the order of their submission. `pipeline` is one round trip for many
  requests, each of which succeeds or fails on its own; `Multi` is atomic.
* Every write takes a higher zxid than any write before it. A czxid is never used again, so the czxid of /brokers/ids/N
  serves as the broker epoch.
* An ephemeral node lives as long as the session that created it; it has no children.
* A watch fires once, on the event loop, before the result of any later request of the same store is delivered.
* After the session expired every request raises SessionExpired until `open_session` started a new one. Watches end with
  the session.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from ottla.controller.errors import NoNode, StoreError

ANY_VERSION = -1
"""For `set` and `delete`: matches any version. Kafka's ZkVersion.MatchAnyVersion."""


class Stat(NamedTuple):
    """ZooKeeper's metadata of a node."""

    version: int
    cversion: int
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    ephemeral_owner: int
    """Session that owns an ephemeral node, 0 for a persistent one."""


class EventType(Enum):
    """The kind of change that a watch reports."""

    CREATED = "created"
    DATA_CHANGED = "data changed"
    DELETED = "deleted"
    CHILDREN_CHANGED = "children changed"


class WatchedEvent(NamedTuple):
    """One firing of a watch."""

    type: EventType
    path: str


Watch: TypeAlias = Callable[[WatchedEvent], None]


class Create(NamedTuple):
    """Result: the path created, which for a sequential node has ten digits appended. Raises NodeExists, NoNode (parent)."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    """Result: the new Stat. Raises NoNode, BadVersion."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Result: None. Raises NoNode, BadVersion, NotEmpty."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Result: None. Raises NoNode, BadVersion. Useful only inside a Multi."""

    path: str
    version: int


Write: TypeAlias = Create | SetData | Delete | Check


class Multi(NamedTuple):
    """All of the writes or none. Result: the list of their results. Raises the error of the first write that fails; `index` is the position
    of that write."""

    writes: tuple[Write, ...]


class Get(NamedTuple):
    """Result: (data, Stat). Raises NoNode, and then sets no watch. The watch fires when the data changes or the node is deleted."""

    path: str
    watch: Watch | None = None


class Exists(NamedTuple):
    """Result: the Stat or None. The watch fires when the node is created, changed or deleted."""

    path: str
    watch: Watch | None = None


class Children(NamedTuple):
    """Result: the names of the children, sorted. Raises NoNode. The watch fires when a child is created or deleted, or
    the node is deleted."""

    path: str
    watch: Watch | None = None


Request: TypeAlias = Write | Multi | Get | Exists | Children
Result: TypeAlias = str | Stat | tuple[bytes | None, Stat] | list[str] | list[str | Stat | None] | None


class SessionEvents:
    """Counts connections, disconnections and expired sessions of a store, for metrics.

    To measure the latency of requests, set `stopwatch` (returns seconds) and `on_answered`, which is called with the
    seconds of each request.
    """

    __slots__ = ("auth_failures", "connects", "disconnects", "expirations", "on_answered", "stopwatch")

    def __init__(self) -> None:
        self.connects = 0
        self.disconnects = 0
        self.expirations = 0
        self.auth_failures = 0
        self.stopwatch: Callable[[], float] | None = None
        self.on_answered: Callable[[float], None] = _ignore


def _ignore(_: float) -> None:
    """The default: latencies are not measured."""


class MetadataStore(Protocol):
    """A client of the tree with one session."""

    session_events: SessionEvents | None = None
    """None for a store without a connection."""

    @property
    def session_id(self) -> int:
        """Id of the current session, 0 before the first and after an expiry."""

    @property
    def is_connected(self) -> bool:
        """Whether the store can be reached now; always true for a store without a connection."""
        return True

    async def open_session(self) -> int:
        """Connect, or start a new session after the last one expired; returns its id."""

    async def close(self) -> None:
        """End the session (its ephemeral nodes vanish at once) and release everything. May be called twice."""

    def on_session_expired(self, callback: Callable[[], None]) -> None:
        """Have `callback` called on the event loop whenever the session is found to have expired."""

    async def other_sessions(self) -> list[str]:
        """The owners of other live sessions, in words, where the store knows them; ZooKeeper does not name them."""
        return []

    async def forbidden(self, paths: Sequence[str]) -> list[str]:
        """Those of `paths` whose node exists and belongs to another identity, so that this client may not change it.

        A store without identities forbids nothing. Raises SessionExpired, StoreUnavailable.
        """
        return []

    async def catch_up(self) -> None:
        """Wait until later reads see what any client had written before this call.

        A server of ZooKeeper may be behind the others for seconds; other stores never are. Raises SessionExpired.
        """
        return

    async def pipeline(self, requests: Sequence[Request]) -> list[Result | StoreError]:
        """Carry out `requests` in order in one round trip; the list has the result or the error of each.

        Raises SessionExpired when the session ended before or while they were carried out.
        """

    async def _one(self, request: Request) -> Result:
        (outcome,) = await self.pipeline((request,))
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    async def create(self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False) -> str:
        """See Create."""
        created = await self._one(Create(path, data, ephemeral, sequential))
        assert isinstance(created, str)
        return created

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        """See Get."""
        return data_and_stat(await self._one(Get(path, watch)))

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """See SetData."""
        stat = await self._one(SetData(path, data, version))
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See Delete."""
        await self._one(Delete(path, version))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """See Exists."""
        stat = await self._one(Exists(path, watch))
        assert stat is None or isinstance(stat, Stat)
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See Children."""
        return names(await self._one(Children(path, watch)))

    async def multi(self, writes: Sequence[Write]) -> list[str | Stat | None]:
        """See Multi."""
        results = await self._one(Multi(tuple(writes)))
        assert isinstance(results, list)
        return [*results]

    async def ensure_path(self, path: str) -> None:
        """Create `path` and every missing ancestor as persistent nodes without data; a parent only after the child
        failed for want of it."""
        outcome = (await self.pipeline((Create(path),)))[0]
        if isinstance(outcome, NoNode):
            await self.ensure_path(parent_of(path))
            await self.ensure_path(path)


def data_and_stat(outcome: Result | StoreError) -> tuple[bytes | None, Stat]:
    """The result of a Get in a pipeline. Raises the error if there is one instead."""
    if isinstance(outcome, StoreError):
        raise outcome
    assert isinstance(outcome, tuple)
    assert not isinstance(outcome, Stat)
    return outcome


def names(outcome: Result | StoreError) -> list[str]:
    """The result of a Children in a pipeline. Raises the error if there is one instead."""
    if isinstance(outcome, StoreError):
        raise outcome
    assert isinstance(outcome, list)
    return [str(name) for name in outcome]


def parent_of(path: str) -> str:
    """`/a/b` of `/a/b/c`; `/` of `/a`."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """`c` of `/a/b/c`."""
    return path.rpartition("/")[2]
