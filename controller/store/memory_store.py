"""Stores the znode tree in memory, for tests, simulation and a broker that leaves no files behind.

`MemoryEnsemble` is shared by the clients; a `MemoryStore` is one client. Everything happens on one event loop. Sessions
end by `close` or by `MemoryEnsemble.expire`, never by time: a simulation decides when a session times out.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

from ottla.controller.errors import NoNode, SessionExpired, StoreError
from ottla.controller.store.metadata_store import (
    Children,
    Exists,
    Get,
    MetadataStore,
    Multi,
    Request,
    Result,
    WatchedEvent,
    Write,
    name_of,
    parent_of,
)
from ottla.controller.store.tree import ROOT, Attempt, Node, apply, delete_ephemerals
from ottla.controller.store.watches import Watches
from ottla.storage.disk.clock import Clock


class MemoryEnsemble:
    """The tree and the sessions. Implements `Nodes`."""

    def __init__(self, clock: Clock, first_session_id: int = 0x1000000000000000) -> None:
        self.clock = clock
        self.zxid = 0
        self._nodes: dict[str, Node] = {"/": ROOT}
        self._children: dict[str, set[str]] = {"/": set()}
        self._session_ids = count(first_session_id)
        self._sessions: dict[int, MemoryStore] = {}

    def store(self) -> "MemoryStore":
        """A new client without a session."""
        return MemoryStore(self)

    def expire(self, session_id: int) -> None:
        """End a session as after a timeout: its ephemeral nodes are deleted, watches of other clients fire, its owner
        is notified."""
        store = self._sessions[session_id]
        self.end_session(session_id)
        store.expired()

    def begin_session(self, store: "MemoryStore") -> int:
        """Start a session of `store`."""
        self.zxid += 1
        session_id = next(self._session_ids)
        self._sessions[session_id] = store
        return session_id

    def end_session(self, session_id: int) -> None:
        """End a session and delete the nodes it owned."""
        del self._sessions[session_id]
        attempt = self._attempt(session_id)
        delete_ephemerals([path for path, node in self._nodes.items() if node.ephemeral_owner == session_id], self, attempt)
        self._fire(attempt.events)

    def write(self, session_id: int, request: Write | Multi) -> Result:
        """Carry out a write and fire the watches of the changed nodes."""
        attempt = self._attempt(session_id)
        result = apply(request, self, attempt)
        self._fire(attempt.events)
        return result

    def names(self, path: str) -> list[str]:
        """The children of an existing node, sorted."""
        return sorted(self._children[path])

    def find(self, path: str) -> Node | None:
        """See tree.Nodes."""
        return self._nodes.get(path)

    def put(self, path: str, node: Node) -> None:
        """See tree.Nodes."""
        if path not in self._nodes:
            self._children[path] = set()
            self._children[parent_of(path)].add(name_of(path))
        self._nodes[path] = node

    def remove(self, path: str) -> None:
        """See tree.Nodes."""
        del self._nodes[path]
        del self._children[path]
        # The parent may be removed before the child when a Multi deleted both: its changes come in no particular order.
        self._children.get(parent_of(path), set()).discard(name_of(path))

    def dump(self) -> dict[str, Node]:
        """Every node by path, sorted. For tests and tools."""
        return dict(sorted(self._nodes.items()))

    def _attempt(self, session_id: int) -> Attempt:
        self.zxid += 1
        return Attempt(session_id, self.zxid, self.clock.now_ms(), [])

    def _fire(self, events: list[WatchedEvent]) -> None:
        for event in events:
            for store in list(self._sessions.values()):
                store.fire(event)


class MemoryStore(MetadataStore):
    """One client of a MemoryEnsemble."""

    def __init__(self, ensemble: MemoryEnsemble) -> None:
        self.ensemble = ensemble
        self._session_id = 0
        self._watches = Watches()
        self._on_expired: list[Callable[[], None]] = []

    @property
    def session_id(self) -> int:
        """See MetadataStore."""
        return self._session_id

    async def open_session(self) -> int:
        """See MetadataStore."""
        if not self._session_id:
            self._session_id = self.ensemble.begin_session(self)
        return self._session_id

    async def close(self) -> None:
        """See MetadataStore."""
        session_id, self._session_id = self._session_id, 0
        self._watches.clear()
        if session_id:
            self.ensemble.end_session(session_id)

    def on_session_expired(self, callback: Callable[[], None]) -> None:
        """See MetadataStore."""
        self._on_expired.append(callback)

    async def pipeline(self, requests: Sequence[Request]) -> list[Result | StoreError]:
        """See MetadataStore."""
        if not self._session_id:
            raise SessionExpired("")
        outcomes = [self.carry_out(request) for request in requests]
        # One turn of the loop, like a round trip: callbacks scheduled by these writes run before their results are
        # seen.
        await asyncio.sleep(0)
        return outcomes

    def expired(self) -> None:
        """The ensemble ended the session."""
        self._session_id = 0
        self._watches.clear()
        loop = asyncio.get_running_loop()
        for callback in self._on_expired:
            loop.call_soon(callback)

    def fire(self, event: WatchedEvent) -> None:
        """A node changed: schedule the callbacks that watch it."""
        for watch in self._watches.take(event):
            asyncio.get_running_loop().call_soon(watch, event)

    def carry_out(self, request: Request) -> Result | StoreError:
        """Carry out one request at once and return its result or its error. For a simulation that models the latency of
        requests itself."""
        try:
            if isinstance(request, Get | Exists | Children):
                return self._read(request)
            return self.ensemble.write(self._session_id, request)
        except StoreError as error:
            return error.with_traceback(None)  # the traceback's frames refer to the returned list: a reference cycle for each refusal

    def _read(self, request: Get | Exists | Children) -> Result:
        node = self.ensemble.find(request.path)
        if node is None and not isinstance(request, Exists):
            raise NoNode(request.path)
        if isinstance(request, Children):
            if request.watch is not None:
                self._watches.add_children(request.path, request.watch)
            return self.ensemble.names(request.path)
        if request.watch is not None:
            self._watches.add_data(request.path, request.watch)
        if isinstance(request, Exists):
            return None if node is None else node.stat
        assert node is not None
        return node.data, node.stat
