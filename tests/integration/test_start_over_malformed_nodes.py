"""A broker starts over malformed nodes of configurations, or ends its start with one line and leaves no task behind."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.broker.configuration.dynamic_config import KEEPS_RECORDS
from ottla.broker.environment import Environment
from ottla.broker.server import Broker, CannotStart
from ottla.config.broker import BrokerConfig
from ottla.controller.znodes.layout import config_path

SECONDS = 60


def a_broker(directory: Path) -> Broker:
    environment = Environment()
    environment.is_process = False  # it is the process of the tests, whose garbage collector is theirs
    return Broker(BrokerConfig({"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0", "broker.id": "7"}), environment)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def play() -> None:
        async with asyncio.timeout(SECONDS):
            await scenario()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(play())


async def store_malformed(directory: Path, *paths: str) -> None:
    """A first start makes a topic `t` and these nodes."""
    broker = a_broker(directory)
    await broker.start()
    await broker.services.administration.auto_topics.create(["t"])
    store = broker.services.administration.store
    for path in paths:
        await store.ensure_path(path)
        await store.set(path, b"{")
    await broker.stop()


def test_malformed_nodes_of_topics_users_clients_and_addresses_do_not_end_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        entities = (("topics", "t"), ("users", "u"), ("users", "u/clients/c"), ("clients", "c"), ("ips", "10.0.0.1"))
        await store_malformed(tmp_path, *(config_path(kind, name) for kind, name in entities))
        broker = a_broker(tmp_path)
        await broker.start()
        partition = broker.services.data.replica_manager.partition("t", 0)
        assert partition is not None
        assert partition.is_leader
        assert partition.log.config.overrides == KEEPS_RECORDS
        await broker.stop()

    run(scenario)


@pytest.mark.parametrize("name", ["7", "<default>"])
def test_a_malformed_configuration_of_the_broker_ends_the_start_with_one_line(tmp_path: Path, name: str) -> None:
    async def scenario() -> None:
        await store_malformed(tmp_path, config_path("brokers", name))
        with pytest.raises(CannotStart, match=f"^/config/brokers/{name}: not JSON: .*; repair or remove the node$"):
            await a_broker(tmp_path).start()

    run(scenario)
