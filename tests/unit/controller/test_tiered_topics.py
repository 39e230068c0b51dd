"""Which changes of a topic's tiered storage are refused, in the words of Apache Kafka; and that it cannot be switched off."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.remote_storage import LOCAL_TIERED_STORAGE
from ottla.controller.admin.config_admin import ConfigAdmin, ConfigOp, OpType
from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.errors import InvalidTopicConfig
from tests.support.controlled_cluster import BrokerUnderTest, new_ensemble

SET, DELETE, *_ = OpType
SYSTEM = {"remote.log.storage.system.enable": "true", "remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE}
ENABLE = ConfigOp("remote.storage.enable", "true", SET)
PREFIX = "Invalid config value for resource ConfigResource(type=TOPIC, name='cfg'): "
DISABLED = (
    "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data and turn to read only, "
    "please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable remote storage and delete all remote "
    "data, please set `remote.storage.enable=false,remote.log.delete.on.disable=true`."
)


def run(scenario: Callable[[ConfigAdmin], Awaitable[None]], properties: dict[str, str]) -> None:
    async def play() -> None:
        broker = BrokerUnderTest(new_ensemble())
        await broker.start()
        await broker.topics.create_topics([NewTopic("cfg", 1, 1)])
        try:
            await scenario(ConfigAdmin(broker.store, 0, BrokerConfig(properties)))
        finally:
            await broker.stop()

    asyncio.run(play())


REFUSED = [
    pytest.param(
        {},
        [ENABLE],
        PREFIX + "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
        id="system off",
    ),
    pytest.param(
        SYSTEM,
        [ENABLE, ConfigOp("cleanup.policy", "compact,delete", SET)],
        PREFIX + "Remote log storage is unsupported for the compacted topics",
        id="compacted",
    ),
    pytest.param(
        SYSTEM,
        [ENABLE, ConfigOp("retention.ms", "1000", SET), ConfigOp("local.retention.ms", "2000", SET)],
        PREFIX + "Invalid value 2000 for configuration local.retention.ms: Value must not be more than retention.ms property value: 1000",
        id="local retention longer than retention",
    ),
    pytest.param(
        SYSTEM,
        [ENABLE, ConfigOp("retention.ms", "1000", SET), ConfigOp("local.retention.ms", "-1", SET)],
        PREFIX + "Invalid value -1 for configuration local.retention.ms: Value must not be -1 as retention.ms value is set as 1000.",
        id="local retention without limit",
    ),
    pytest.param(
        SYSTEM,
        [ENABLE, ConfigOp("local.retention.ms", "-3", SET)],
        PREFIX + "Invalid value -3 for configuration local.retention.ms: Value must be at least -2",
        id="local retention below -2",
    ),
    pytest.param(
        SYSTEM,
        [ENABLE, ConfigOp("remote.log.copy.disable", "true", SET)],
        "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode.",
        id="a key of KRaft",
    ),
]


@pytest.mark.parametrize(("properties", "ops", "message"), REFUSED)
def test_a_change_is_refused_in_kafkas_words(properties: dict[str, str], ops: list[ConfigOp], message: str) -> None:
    async def scenario(admin: ConfigAdmin) -> None:
        with pytest.raises(InvalidTopicConfig) as refused:
            await admin.alter_topic_configs("cfg", ops)
        assert str(refused.value) == message

    run(scenario, properties)


@pytest.mark.parametrize("op", [ConfigOp("remote.storage.enable", "false", SET), ConfigOp("remote.storage.enable", None, DELETE)])
def test_tiered_storage_is_not_switched_off(op: ConfigOp) -> None:
    """Apache Kafka accepts it with ZooKeeper, and loses what is in the remote store at the next start."""

    async def scenario(admin: ConfigAdmin) -> None:
        await admin.alter_topic_configs("cfg", [ENABLE])
        for change in (admin.alter_topic_configs("cfg", [op]), admin.set_topic_configs("cfg", {"retention.ms": "5"})):
            with pytest.raises(InvalidTopicConfig) as refused:
                await change
            assert str(refused.value) == DISABLED
        await admin.set_topic_configs("cfg", {"retention.ms": "5", "remote.storage.enable": "true"})
        assert await admin.read("topics", "cfg") == {"retention.ms": "5", "remote.storage.enable": "true"}

    run(scenario, SYSTEM)


def test_a_tiered_topic_does_not_become_compacted() -> None:
    async def scenario(admin: ConfigAdmin) -> None:
        await admin.alter_topic_configs("cfg", [ENABLE])
        with pytest.raises(InvalidTopicConfig, match="Remote log storage is unsupported for the compacted topics"):
            await admin.alter_topic_configs("cfg", [ConfigOp("cleanup.policy", "compact", SET)])

    run(scenario, SYSTEM)
