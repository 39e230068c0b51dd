"""How long the client of ZooKeeper waits where no server answers: no ZooKeeper is needed to see that."""

from __future__ import annotations

import asyncio
import socket

import pytest
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.connection import ConnectionHandler

from controller.errors import StoreUnavailable
from controller.store.zookeeper_store import ZooKeeperSettings, ZooKeeperStore

SESSION_TIMEOUT_MS = 60_000


def test_one_server_that_forgets_a_connection_does_not_cost_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a session is enough for more than one attempt, though there is one server only."""
    waits: list[float] = []

    def answer_nothing(_: ConnectionHandler, timeout: float, *__: object) -> None:
        waits.append(timeout)
        raise ConnectionDropped("no answer")

    monkeypatch.setattr(ConnectionHandler, "_invoke", answer_nothing)

    async def scenario(port: int) -> None:
        store = ZooKeeperStore(ZooKeeperSettings(f"127.0.0.1:{port}", SESSION_TIMEOUT_MS, connection_timeout_ms=500))
        with pytest.raises(StoreUnavailable):
            await store.open_session()
        await store.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(scenario(server.getsockname()[1]))
    assert waits
    assert max(waits) <= SESSION_TIMEOUT_MS / 1000 / 3
