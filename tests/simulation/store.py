"""The way of a node to the metadata store: the tree in memory, seen over a network that delays and cuts, with sessions that time out.

Per session everything arrives in order, both ways. A request that cannot pass waits; when the session was ended meanwhile, the node learns
that when it can be reached again, and until then believes what it last heard. That is when two controllers believe in themselves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ottla.controller.errors import SessionExpired, StoreError
from ottla.controller.store.memory_store import MemoryEnsemble, MemoryStore
from ottla.controller.store.metadata_store import Children, Exists, Get, MetadataStore, Request, Result, Watch, WatchedEvent
from tests.simulation.elections import STOPPED
from tests.simulation.loop import Life
from tests.simulation.network import SimulatedNetwork

ENSEMBLE = "zookeeper"
RETRY_S = 0.02


class SessionKeeper:
    """The ensemble's idea of who is alive. `sweep` is to be called every now and then."""

    def __init__(self, ensemble: MemoryEnsemble, network: SimulatedNetwork, timeout_s: float) -> None:
        self.ensemble = ensemble
        self.network = network
        self._timeout_s = timeout_s
        self._heard: dict[SimulatedStore, float] = {}
        self.ended: dict[int, str] = {}
        """What ended a session."""

    def begin(self, store: SimulatedStore) -> None:
        """A session was opened."""
        self._heard[store] = self.network.loop.time()

    def end(self, store: SimulatedStore) -> None:
        """A session was closed by its owner."""
        if self._heard.pop(store, None) is not None and store.inner is not None:
            self.ended[store.inner.session_id] = STOPPED

    def sweep(self) -> None:
        """Hear of those that can be heard of; end the sessions of those that were silent for too long."""
        now = self.network.loop.time()
        for store, heard in list(self._heard.items()):
            if not store.life.is_dead and not store.life.is_paused and self.network.passes(store.host, ENSEMBLE):
                self._heard[store] = now
            elif now - heard > self._timeout_s:
                life = store.life
                self.expire(store, "killed" if life.is_dead else "hung" if life.is_paused else "cut off")

    def expire(self, store: SimulatedStore, why: str = "expired") -> None:
        """End a session whatever its owner does."""
        del self._heard[store]
        assert store.inner is not None
        self.ended[store.inner.session_id] = why
        self.ensemble.expire(store.inner.session_id)

    def store_of(self, host: str) -> SimulatedStore | None:
        """The node's store, if it has a session that stands."""
        return next((store for store in self._heard if store.host == host and not store.life.is_dead), None)


class SimulatedStore(MetadataStore):
    """One life of one node's client."""

    def __init__(self, keeper: SessionKeeper, host: str, life: Life) -> None:
        self.host = host
        self.life = life
        self.inner: MemoryStore | None = None
        self._keeper = keeper
        self._network = keeper.network
        self._session_id = 0
        self._on_expired: list[Callable[[], None]] = []
        self._up: deque[tuple[MemoryStore, list[Request], asyncio.Future[list[Result | StoreError]]]] = deque()
        self._down: deque[tuple[MemoryStore, Callable[[], None]]] = deque()
        self._waiting: dict[asyncio.Future[list[Result | StoreError]], None] = {}
        self._pumping: set[str] = set()

    @property
    def session_id(self) -> int:
        """See MetadataStore."""
        return self._session_id

    @property
    def is_connected(self) -> bool:
        """See MetadataStore."""
        return bool(self._session_id) and self._network.passes(self.host, ENSEMBLE)

    async def open_session(self) -> int:
        """See MetadataStore."""
        while True:
            if self._network.passes(self.host, ENSEMBLE):
                break
            await asyncio.sleep(RETRY_S)
        if not self._session_id:
            inner = self.inner = self._keeper.ensemble.store()
            self._session_id = await inner.open_session()
            inner.on_session_expired(lambda: self.send_down(inner, self._expired))
            self._keeper.begin(self)
        return self._session_id

    async def close(self) -> None:
        """See MetadataStore."""
        self._keeper.end(self)
        inner, self.inner = self.inner, None
        self._session_id = 0
        if inner is not None:
            await inner.close()

    def on_session_expired(self, callback: Callable[[], None]) -> None:
        """See MetadataStore."""
        self._on_expired.append(callback)

    async def pipeline(self, requests: Sequence[Request]) -> list[Result | StoreError]:
        """See MetadataStore."""
        inner = self.inner
        if not self._session_id or inner is None:
            raise SessionExpired("")
        done: asyncio.Future[list[Result | StoreError]] = asyncio.get_running_loop().create_future()
        self._waiting[done] = None
        self._up.append((inner, [self._watched(inner, request) for request in requests], done))
        self._pump("up", self._carry_up)
        try:
            return await done
        finally:
            del self._waiting[done]

    def _watched(self, inner: MemoryStore, request: Request) -> Request:
        if not isinstance(request, Get | Exists | Children) or request.watch is None:
            return request
        return request._replace(watch=DelayedWatch(self, inner, request.watch))

    def _carry_up(self) -> None:
        while self._up:
            inner, requests, done = self._up.popleft()
            if not inner.session_id:
                outcomes: Any = None
            else:
                outcomes = [inner.carry_out(request) for request in requests]
            self.send_down(inner, partial(self._answer, done, outcomes))

    def _answer(self, done: asyncio.Future[list[Result | StoreError]], outcomes: list[Result | StoreError] | None) -> None:
        if done.done():
            return
        if outcomes is None:
            done.set_exception(SessionExpired(""))
        else:
            done.set_result(outcomes)

    def send_down(self, inner: MemoryStore, callback: Callable[[], None]) -> None:
        """Let something come to the node from the ensemble."""
        self._down.append((inner, callback))
        self._pump("down", self._carry_down)

    def _carry_down(self) -> None:
        while self._down:
            inner, callback = self._down.popleft()
            if inner is self.inner:
                self.life.call_soon(callback)

    def _expired(self) -> None:
        """Runs in the name of the node: it has heard."""
        self._session_id = 0
        for done in list(self._waiting):
            if not done.done():
                done.set_exception(SessionExpired(""))
        for callback in self._on_expired:
            callback()

    def _pump(self, direction: str, carry: Callable[[], None]) -> None:
        """Let what waits in one direction travel, in nobody's name, as soon as the link is there."""
        if direction in self._pumping:
            return
        self._pumping.add(direction)

        def arrive() -> None:
            if self.life.is_dead and direction == "up":
                self._up.clear()
            if not self._network.passes(self.host, ENSEMBLE) or self.life.is_paused:
                if not self.life.is_dead:
                    self._network.loop.in_nobodys_name(RETRY_S, arrive)
                return
            self._pumping.discard(direction)
            carry()

        self._network.send(self.host, ENSEMBLE, arrive)


@dataclass(frozen=True, slots=True)
class DelayedWatch:
    """A watch whose firing travels to the node. Those of one watch are equal, so that a path that is watched twice fires once."""

    store: SimulatedStore
    inner: MemoryStore
    watch: Watch

    def __call__(self, event: WatchedEvent) -> None:
        self.store.send_down(self.inner, partial(self.watch, event))
