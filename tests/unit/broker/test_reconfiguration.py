"""Changes of the broker's own configuration are applied while it runs."""

import asyncio
from typing import cast

import pytest

from ottla.broker.configuration import reconfiguration as reconfiguring
from ottla.broker.configuration.reconfiguration import Reconfiguration
from ottla.broker.network.host_names import HostNames
from ottla.broker.network.limits import NetworkLimits
from ottla.broker.network.socket_server import SocketServer
from ottla.config.broker import BrokerConfig
from ottla.config.listeners import EndPoint
from ottla.controller.store.memory_store import MemoryEnsemble, MemoryStore
from ottla.controller.znodes.layout import BrokerRegistration
from tests.support.clocks import ManualClock


class Listeners:
    """The part of a SocketServer that listeners are added to."""

    def __init__(self) -> None:
        self.added: list[str] = []

    async def add_listener(self, endpoint: EndPoint) -> None:
        self.added.append(endpoint.listener_name)

    def remove_listener(self, listener_name: str) -> None:
        self.added.remove(listener_name)

    def apply(self, limits: NetworkLimits) -> None:
        """See SocketServer."""


async def prepare(_: EndPoint) -> None:
    """Nothing is to be prepared."""


def test_a_broker_that_has_stopped_binds_no_listener() -> None:
    async def scenario() -> None:
        config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:9092"})
        server = Listeners()
        store = MemoryStore(MemoryEnsemble(ManualClock()))
        await store.open_session()
        reconfiguration = Reconfiguration(
            config, HostNames(), cast("SocketServer", server), store, 0, lambda: BrokerRegistration((), None, 0), prepare
        )
        reconfiguration.start()
        for name in ("SECOND", "THIRD"):
            changed = {
                "listeners": f"PLAINTEXT://127.0.0.1:9092,{name}://127.0.0.1:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT,THIRD:PLAINTEXT",
            }
            assert "listeners" in config.update_dynamic(changed, {})
            await reconfiguration.close()
        assert server.added == ["SECOND"]

    asyncio.run(scenario())


def test_a_broker_ends_although_its_new_listeners_cannot_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconfiguring, "CLOSE_SECONDS", 0.001)

    async def scenario() -> None:
        config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:9092"})
        server = Listeners()
        store = MemoryStore(MemoryEnsemble(ManualClock()))

        async def never(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(store, "set", never)
        reconfiguration = Reconfiguration(
            config, HostNames(), cast("SocketServer", server), store, 0, lambda: BrokerRegistration((), None, 0), prepare
        )
        reconfiguration.start()
        changed = {
            "listeners": "PLAINTEXT://127.0.0.1:9092,SECOND://127.0.0.1:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT",
        }
        config.update_dynamic(changed, {})
        async with asyncio.timeout(90):
            await reconfiguration.close()
        assert server.added == ["SECOND"]

    asyncio.run(scenario())
