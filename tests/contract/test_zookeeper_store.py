"""What only a store on a real ZooKeeper meets: lost connections, sessions that others end, ACLs, an ensemble that is not there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.handlers.threading import SequentialThreadingHandler

from ottla.controller.errors import NodeExists, SessionExpired, StoreUnavailable
from ottla.controller.store import zookeeper_store
from ottla.controller.store.metadata_store import EventType, WatchedEvent
from ottla.controller.store.zookeeper_client import EXPIRED
from ottla.controller.store.zookeeper_store import ZooKeeperSettings, ZooKeeperStore
from tests.support.apache_kafka.ports import free_ports
from tests.support.zookeeper import ZooKeeperServer, a_chroot, a_zookeeper, shared_zookeeper

pytestmark = pytest.mark.java

SESSION_TIMEOUT_MS = 4000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    with a_zookeeper(tmp_path) as running:
        yield running


def play(scenario: Callable[[ZooKeeperStore], Awaitable[None]], connect: str, **settings: object) -> None:
    """With one store that has a session."""

    async def run() -> None:
        chosen: dict[str, object] = {"session_timeout_ms": SESSION_TIMEOUT_MS} | settings
        store = ZooKeeperStore(ZooKeeperSettings(connect, **chosen))  # type: ignore[arg-type]  # by name
        try:
            await store.open_session()
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.01)


def test_a_session_that_is_ended_by_others_says_so_and_another_can_be_opened(server: ZooKeeperServer) -> None:
    async def scenario(store: ZooKeeperStore) -> None:
        expired: list[int] = []
        store.on_session_expired(lambda: expired.append(store.session_id))
        first = store.session_id
        await store.create("/mine", b"x", ephemeral=True)
        await asyncio.to_thread(server.expire, first)
        await until(lambda: expired == [0])
        with pytest.raises(SessionExpired):
            await store.exists("/mine")
        assert await store.open_session() not in (0, first)
        assert await store.exists("/mine") is None
        assert (store.session_events.connects, store.session_events.expirations) == (2, 1)

    play(scenario, server.connect)


def test_requests_and_watches_outlive_a_restart_of_the_server(server: ZooKeeperServer) -> None:
    async def scenario(store: ZooKeeperStore) -> None:
        seen: list[WatchedEvent] = []
        session = store.session_id
        await store.create("/a", b"1")
        await store.create("/held", ephemeral=True)
        await store.get("/a", seen.append)
        await store.children("/", seen.append)
        await asyncio.to_thread(server.stop)
        waiting = asyncio.ensure_future(store.set("/a", b"2"))
        await asyncio.sleep(0)
        assert not waiting.done()
        await asyncio.to_thread(server.start)
        assert (await waiting).version == 1
        await store.create("/b")
        await until(lambda: {(e.type, e.path) for e in seen} == {(EventType.DATA_CHANGED, "/a"), (EventType.CHILDREN_CHANGED, "/")})
        assert store.session_id == session
        assert (await store.exists("/held")) is not None
        events = store.session_events
        assert events.auth_failures == 0
        assert (events.connects, events.disconnects, events.expirations) == (2, 1, 0)

    play(scenario, server.connect, session_timeout_ms=4 * SESSION_TIMEOUT_MS)  # a busy machine may take its time to start a JVM


def test_whoever_wants_to_know_is_told_how_long_each_request_took(server: ZooKeeperServer) -> None:
    async def scenario(store: ZooKeeperStore) -> None:
        await store.create("/before")
        times = iter(range(100))
        took: list[float] = []
        store.session_events.stopwatch = lambda: next(times)
        store.session_events.on_answered = took.append
        await store.create("/a")
        await store.get("/a")
        assert took == [1, 1]

    play(scenario, server.connect)


def test_a_server_that_stands_still_blocks_no_loop(server: ZooKeeperServer) -> None:
    async def scenario(store: ZooKeeperStore) -> None:
        server.pause()
        waiting = asyncio.ensure_future(store.create("/a"))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not waiting.done()
        server.resume()
        assert await waiting == "/a"

    play(scenario, server.connect)


def test_what_is_protected_can_be_read_but_not_written_by_others() -> None:
    connect = a_chroot()

    async def scenario(store: ZooKeeperStore) -> None:
        await store.create("/topics", b"x")
        await store.ensure_path("/config/users")
        await store.create("/config/users/alice", b"secret")
        await store.ensure_path("/config/brokers")
        await store.create("/config/brokers/1", b"password")
        await store.ensure_path("/consumers")
        with pytest.raises(NodeExists):
            await store.create("/topics")
        await asyncio.to_thread(trespass)
        assert (await store.set("/topics", b"y")).version == 1

    def trespass() -> None:
        stranger = KazooClient(connect)
        stranger.start()
        try:
            assert stranger.get("/topics")[0] == b"x"
            for forbidden in (
                lambda: stranger.set("/topics", b"z"),
                lambda: stranger.get("/config/users/alice"),
                lambda: stranger.get("/config/brokers/1"),
            ):
                with pytest.raises(NoAuthError):
                    forbidden()
            stranger.create("/consumers/of-old")
        finally:
            stranger.stop()
            stranger.close()

    play(scenario, connect, set_acl=True, credentials="kafka:sesame")


def test_the_nodes_of_another_identity_are_named_and_stay_as_they_are() -> None:
    connect = a_chroot()
    paths = ["/topics", "/config/users", "/consumers", "/missing"]

    async def scenario(store: ZooKeeperStore) -> None:
        for path in paths[:-1]:
            await store.ensure_path(path)
        for credentials, expected in (("kafka:sesame", []), ("kafka:other", paths[:2]), (None, paths[:2])):
            other = ZooKeeperStore(ZooKeeperSettings(connect, credentials=credentials))
            await other.open_session()
            assert await other.forbidden(paths) == expected
            await other.close()
        assert [(await store.get(path))[1].version for path in paths[:-1]] == [0, 0, 0]

    play(scenario, connect, set_acl=True, credentials="kafka:sesame")


def test_a_server_of_the_list_that_does_not_answer_is_passed_over_and_every_node_of_the_chroot_is_made() -> None:
    (port,) = free_ports(1)
    hosts, path = a_chroot().split("/", 1)

    async def scenario(store: ZooKeeperStore) -> None:
        await store.create("/here", b"")

    for servers in (f"127.0.0.1:{port},{hosts}", f"{hosts},127.0.0.1:{port}"):
        play(scenario, f"{servers}/{path}/of/{'first' if servers.endswith(hosts) else 'last'}")


def test_nobody_at_the_address_is_one_clear_error() -> None:
    (port,) = free_ports(1)

    async def scenario(store: ZooKeeperStore) -> None:
        raise AssertionError("there is nobody")

    with pytest.raises(StoreUnavailable, match=rf"zookeeper\.connect=127\.0\.0\.1:{port}/k: no session with ZooKeeper within 300 ms"):
        play(scenario, f"127.0.0.1:{port}/k", connection_timeout_ms=300)


@pytest.mark.parametrize("jitter", [1, 40])
def test_a_silent_session_pings_after_a_third_of_its_time_as_zookeepers_own_client(
    server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch, jitter: int
) -> None:
    """Whatever kazoo draws, in hundredths of a second: that would be subtracted from the third."""
    waits: list[float] = []
    select = SequentialThreadingHandler.select

    def recorded(handler: SequentialThreadingHandler, readable: list[object], writable: object, broken: object, timeout_s: float) -> object:
        if len(readable) > 1:  # for ZooKeeper, and for a request to be sent
            waits.append(timeout_s)
        return select(handler, readable, writable, broken, timeout_s)

    async def scenario(store: ZooKeeperStore) -> None:
        await store.create("/something", b"")

    monkeypatch.setattr(SequentialThreadingHandler, "select", recorded)
    monkeypatch.setattr("kazoo.protocol.connection.random.randint", lambda low, high: min(max(jitter, low), high))
    play(scenario, server.connect)
    assert max(waits) == pytest.approx(SESSION_TIMEOUT_MS / 3000, abs=0.25)


@pytest.mark.parametrize("connect", [lambda: shared_zookeeper().connect, a_chroot], ids=["root", "chroot"])
def test_a_session_that_ends_as_soon_as_it_has_begun_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch, connect: Callable[[], str]
) -> None:
    on_connected = zookeeper_store._Session.on_connected

    def end_what_has_begun(session: zookeeper_store._Session, generation: int, session_id: int, last_zxid: int) -> None:
        monkeypatch.undo()
        on_connected(session, generation, session_id, last_zxid)
        session.on_session_ended(EXPIRED)

    async def scenario() -> None:
        store = ZooKeeperStore(ZooKeeperSettings(connect()))
        with pytest.raises(SessionExpired):
            await store.open_session()
        await store.open_session()
        assert await store.exists("/")
        await store.close()

    monkeypatch.setattr(zookeeper_store._Session, "on_connected", end_what_has_begun)
    asyncio.run(scenario())
