"""A broker that starts after a crash in the middle of a move between log directories."""

import asyncio
import shutil
from pathlib import Path

import pytest

from ottla.broker.environment import Environment
from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig
from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.controller import Controller
from ottla.protocol.topic_partition import TopicPartition
from tests.support.batches import a_batch

T0 = TopicPartition("topic", 0)


class InATest(Environment):
    """The process, and its garbage collector, are those of the tests."""

    def __init__(self) -> None:
        super().__init__()
        self.is_process = False


def a_broker(directory: Path) -> Broker:
    config = {"log.dirs": f"{directory}/a,{directory}/b", "listeners": "PLAINTEXT://127.0.0.1:0", "broker.id": "3"}
    return Broker(BrokerConfig(config), InATest())


def test_a_copy_is_no_longer_than_its_log_when_the_broker_gets_its_roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on records are appended, and whoever compares lengths later cannot see what the log had lost."""
    asyncio.run(make_a_topic(tmp_path))
    (log,) = tmp_path.glob("?/topic-0")
    other = tmp_path / ("b" if log.parent.name == "a" else "a")
    copy = other / f"topic-0.{7:032x}-future"
    shutil.copytree(log, copy)
    with (copy / f"{0:020}.log").open("ab") as lost:
        lost.write(a_batch(2, base_offset=0, leader_epoch=0))
    found: list[int] = []
    startup = Controller.startup

    async def starting() -> None:
        broker = a_broker(tmp_path)

        async def seen(controller: Controller) -> int:
            future = broker.log_manager.get(T0, future=True)
            found.append(-1 if future is None else future.log_end_offset)
            return await startup(controller)

        monkeypatch.setattr(Controller, "startup", seen)
        await broker.start()
        await broker.stop()

    asyncio.run(starting())
    assert found == [0]


async def make_a_topic(directory: Path) -> None:
    broker = a_broker(directory)
    await broker.start()
    await broker.services.administration.topic_admin.create_topics([NewTopic(T0.topic, 1, 1)])
    await broker.stop()
