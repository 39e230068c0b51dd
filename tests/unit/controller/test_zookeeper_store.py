"""Which requests the store of ZooKeeper sends again after a connection broke: no ZooKeeper is needed to see that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kazoo.exceptions import BadVersionError, ConnectionLoss

from ottla.controller.errors import SessionExpired, StoreUnavailable
from ottla.controller.store import zookeeper_store
from ottla.controller.store.metadata_store import Create, Multi, Request, SetData
from ottla.controller.store.zookeeper_client import Listener
from ottla.controller.store.zookeeper_store import ZooKeeperSettings, ZooKeeperStore
from ottla.controller.store.zookeeper_wire import MAX_REQUEST_BYTES, ZooKeeperWire

SESSION_ID = 5
LONG = bytes(MAX_REQUEST_BYTES)


class BreakingClient:
    """A client whose connection breaks at will. `sent`: the requests without an answer, with their tags."""

    last_error = "broken"

    def __init__(self, _hosts: str, _timeout_ms: int, _tls: None, _credentials: None, listener: Listener, _login: None) -> None:
        self.listener = listener
        self.sent: list[tuple[Any, object]] = []
        self._connections = 0

    def start(self) -> None:
        self._connections += 1
        self.listener.on_connected(self._connections, SESSION_ID, 0)

    def resume(self, generation: int) -> bool:
        return generation == self._connections

    def submit(self, request: Any, tag: object) -> bool:
        self.sent.append((request, tag))
        return True

    def watch(self, event: object) -> None: ...

    async def close(self) -> None: ...

    def break_connection(self) -> None:
        """Break it before any answer, and establish another one."""
        sent, self.sent = self.sent, []
        for _, tag in sent:
            self.listener.on_reply(tag, None, ConnectionLoss())
        self.listener.on_disconnected(self.last_error)
        self.start()


@pytest.mark.parametrize("long", [Create("/long", LONG), SetData("/long", LONG), Multi((SetData("/long", LONG), Create("/change")))])
def test_a_request_that_is_too_long_for_zookeeper_is_not_sent_again(monkeypatch: pytest.MonkeyPatch, long: Request) -> None:
    """ZooKeeper closes the connection on it, so that the requests behind it would never be answered."""
    clients: list[BreakingClient] = []

    def a_client(*arguments: Any) -> BreakingClient:
        clients.append(BreakingClient(*arguments))
        return clients[-1]

    monkeypatch.setattr(zookeeper_store, "ZooKeeperClient", a_client)

    async def scenario() -> None:
        store = ZooKeeperStore(ZooKeeperSettings("127.0.0.1:1"))
        await store.open_session()
        (client,) = clients
        asked = asyncio.ensure_future(store.pipeline([Create("/before"), long, Create("/after")]))
        await asyncio.sleep(0)
        assert len(client.sent) == 3
        client.break_connection()
        again = client.sent
        assert [request.path for request, _ in again] == ["/before", "/after"]
        for request, tag in again:
            client.listener.on_reply(tag, request.path, None)
        before, refused, after = await asked
        assert (before, after) == ("/before", "/after")
        assert isinstance(refused, StoreUnavailable)
        assert str(refused).startswith("/long: the connection to ZooKeeper broke at a request as long as this of ")
        assert "jute.maxbuffer" in str(refused)
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("pause_s", [600.0, 0.0])
def test_others_as_long_are_refused_for_a_while_before_they_break_the_next_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, pause_s: float
) -> None:
    clients: list[BreakingClient] = []

    def a_client(*arguments: Any) -> BreakingClient:
        clients.append(BreakingClient(*arguments))
        return clients[-1]

    monkeypatch.setattr(zookeeper_store, "ZooKeeperClient", a_client)
    monkeypatch.setattr(zookeeper_store, "LONG_REQUEST_PAUSE_S", pause_s)

    async def scenario() -> None:
        store = ZooKeeperStore(ZooKeeperSettings("127.0.0.1:1", max_in_flight_requests=1))
        await store.open_session()
        (client,) = clients

        async def answered(asked: asyncio.Future[Any]) -> list[str]:
            await asyncio.sleep(0)
            while client.sent:
                ((request, tag),) = client.sent
                client.sent = []
                client.listener.on_reply(tag, request.path, None)
            return [type(each).__name__ if isinstance(each, StoreUnavailable) else each for each in await asked]

        def pipeline(*requests: Request) -> asyncio.Future[Any]:
            return asyncio.ensure_future(store.pipeline(requests))

        assert await answered(pipeline(Create("/first", LONG))) == ["/first"]
        breaking = pipeline(Create("/breaks", LONG), Create("/waits", LONG))
        await asyncio.sleep(0)
        client.break_connection()
        is_refused = pause_s > 0
        assert await answered(breaking) == ["RequestTooLong", "RequestTooLong" if is_refused else "/waits"]
        others = pipeline(Create("/before"), Create("/long", LONG), Create("/after"))
        assert await answered(others) == ["/before", "RequestTooLong" if is_refused else "/long", "/after"]
        assert caplog.text.count("refused a request: /") == (3 if is_refused else 1)
        await store.close()

    asyncio.run(scenario())


def test_requests_are_translated_when_they_are_sent_in_the_order_of_their_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[BreakingClient] = []
    translated: list[str] = []
    to_wire = ZooKeeperWire.to_wire

    def a_client(*arguments: Any) -> BreakingClient:
        clients.append(BreakingClient(*arguments))
        return clients[-1]

    def noting(wire: ZooKeeperWire, request: Request) -> Any:
        assert isinstance(request, Create)
        translated.append(request.path)
        return to_wire(wire, request)

    monkeypatch.setattr(zookeeper_store, "ZooKeeperClient", a_client)
    monkeypatch.setattr(ZooKeeperWire, "to_wire", noting)

    async def scenario() -> None:
        store = ZooKeeperStore(ZooKeeperSettings("127.0.0.1:1", max_in_flight_requests=2))
        await store.open_session()
        (client,) = clients
        paths = [f"/{number}" for number in range(8)]
        first = asyncio.ensure_future(store.pipeline([Create(path) for path in paths[:4]]))
        second = asyncio.ensure_future(store.pipeline([Create(path) for path in paths[4:]]))
        await asyncio.sleep(0)
        for answered in range(6):
            assert translated == paths[: answered + 2]
            request, tag = client.sent.pop(0)
            client.listener.on_reply(tag, request.path, None)
        assert await first == paths[:4]
        third = asyncio.ensure_future(store.pipeline([Create("/never")]))
        await asyncio.sleep(0)
        client.listener.on_session_ended("it expired")
        for asked in (second, third):
            with pytest.raises(SessionExpired):
                await asked
        assert translated == paths
        await store.close()

    asyncio.run(scenario())


def test_a_store_catches_up_by_a_write_that_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[BreakingClient] = []

    def a_client(*arguments: Any) -> BreakingClient:
        clients.append(BreakingClient(*arguments))
        return clients[-1]

    monkeypatch.setattr(zookeeper_store, "ZooKeeperClient", a_client)

    async def scenario() -> None:
        store = ZooKeeperStore(ZooKeeperSettings("127.0.0.1:1"))
        await store.open_session()
        (client,) = clients
        catching_up = asyncio.ensure_future(store.catch_up())
        await asyncio.sleep(0)
        ((request, tag),) = client.sent
        assert (type(request).__name__, request.path, request.version) == ("SetData", "/", 2**31 - 1)
        assert not catching_up.done()
        client.listener.on_reply(tag, None, BadVersionError())
        await catching_up
        await store.close()

    asyncio.run(scenario())
