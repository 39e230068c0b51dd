"""Topics on demand: what is created, what those who ask are told, and that many who ask make it once."""

import asyncio
import json
from pathlib import Path

import pytest

from ottla.broker.cluster.auto_topics import AutoTopics, internal_topic_settings
from ottla.config.broker import BrokerConfig
from ottla.controller.znodes.changes import decode_config
from ottla.controller.znodes.layout import config_path
from ottla.protocol.errors import ErrorCode
from tests.support.controlled_cluster import BrokerUnderTest, new_ensemble
from tests.support.pauses import without_pauses

GOLDEN = Path(__file__).parents[2] / "golden" / "zookeeper" / "06-groups.json"


async def a_node(**properties: str) -> BrokerUnderTest:
    node = BrokerUnderTest(new_ensemble(), properties={name.replace("_", "."): value for name, value in properties.items()})
    await node.start()
    return node


def auto_topics(node: BrokerUnderTest) -> AutoTopics:
    return AutoTopics(node.config, node.topics)


def test_a_created_topic_is_to_be_asked_for_again() -> None:
    async def scenario() -> None:
        node = await a_node(num_partitions="3")
        codes = await auto_topics(node).create(["t", "bad name"])
        assert codes == {"t": ErrorCode.LEADER_NOT_AVAILABLE, "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION}
        await node.settle()
        assert len(node.receiver.cluster.topics["t"].partitions) == 3
        assert await auto_topics(node).create(["t"]) == {"t": ErrorCode.LEADER_NOT_AVAILABLE}
        await node.stop()

    asyncio.run(scenario())


def test_very_many_topics_are_checked_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        node = await a_node()
        pauses = 0

        async def pause() -> None:
            nonlocal pauses
            pauses += 1
            await asyncio.sleep(0)

        for module in ("broker.cluster.auto_topics", "controller.admin.topic_admin"):
            monkeypatch.setattr(f"ottla.{module}.pause", pause)
        names = [f"t{number}" for number in range(20)]
        auto = AutoTopics(node.config, node.topics)
        first, second = await asyncio.gather(auto.create(names), auto.create([*names[10:], "bad name"]))
        assert first == dict.fromkeys(names, ErrorCode.LEADER_NOT_AVAILABLE)
        assert second == {**dict.fromkeys(names[10:], ErrorCode.LEADER_NOT_AVAILABLE), "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION}
        assert pauses > 4 * len(names)
        await node.stop()

    asyncio.run(scenario())


def test_what_cannot_be_created_is_answered_with_the_reason() -> None:
    async def scenario() -> None:
        node = await a_node(default_replication_factor="3")
        assert await auto_topics(node).create(["t"]) == {"t": ErrorCode.INVALID_REPLICATION_FACTOR}
        await node.stop()

    asyncio.run(scenario())


def test_the_log_says_once_why_there_is_no_topic_for_the_offsets(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        node = await a_node(offsets_topic_replication_factor="3")
        auto = auto_topics(node)
        for _ in range(3):
            assert await auto.create(["__consumer_offsets"]) == {"__consumer_offsets": ErrorCode.INVALID_REPLICATION_FACTOR}
        await node.stop()

    asyncio.run(scenario())
    (line,) = [record.message for record in caplog.records if record.name == "ottla.broker.cluster.auto_topics"]
    assert "__consumer_offsets cannot be created" in line
    assert "Replication factor: 3 larger than available brokers: 1. Start more brokers, or lower offsets.topic.replication.factor" in line


def test_those_who_ask_at_the_same_time_share_one_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        without_pauses()
        node = await a_node()
        asked: list[list[str]] = []
        create_topics = node.topics.create_topics

        async def recorded(topics, **options):  # type: ignore[no-untyped-def]  # passes everything on
            asked.append([topic.name for topic in topics])
            return await create_topics(topics, **options)

        monkeypatch.setattr(node.topics, "create_topics", recorded)
        auto = auto_topics(node)
        found = await asyncio.gather(auto.create(["a", "b"]), auto.create(["b", "c"]), auto.create(["a"]))
        assert asked == [["a", "b"], ["c"]]
        assert [set(codes) for codes in found] == [{"a", "b"}, {"b", "c"}, {"a"}]
        assert {code for codes in found for code in codes.values()} == {ErrorCode.LEADER_NOT_AVAILABLE}
        await node.stop()

    asyncio.run(scenario())


def test_a_client_that_goes_away_does_not_take_the_topic_with_it() -> None:
    async def scenario() -> None:
        node = await a_node()
        auto = auto_topics(node)
        first, second = asyncio.create_task(auto.create(["t"])), asyncio.create_task(auto.create(["t"]))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == {"t": ErrorCode.LEADER_NOT_AVAILABLE}
        await node.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_have_the_configuration_that_apache_kafka_gives_them(name: str) -> None:
    (recorded,) = [node for node in json.loads(GOLDEN.read_text())["tree"] if node["path"] == config_path("topics", name)]
    settings = internal_topic_settings(name, BrokerConfig({"transaction.state.log.min.isr": "1"}))
    assert settings is not None
    assert dict(settings.configs) == decode_config(recorded["path"], recorded["data"].encode())
    assert settings.num_partitions == 50


def test_other_topics_have_no_settings_of_their_own() -> None:
    assert internal_topic_settings("t", BrokerConfig()) is None


def test_metadata_may_create_topics_unless_it_is_switched_off() -> None:
    async def scenario() -> None:
        node = await a_node()
        assert auto_topics(node).enabled
        assert not AutoTopics(BrokerConfig({"auto.create.topics.enable": "false"}), node.topics).enabled
        await node.stop()

    asyncio.run(scenario())
