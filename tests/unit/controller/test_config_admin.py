"""Changing configurations: Apache Kafka's sentences, znodes and notifications; every broker learns of every change once."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ottla.config.topic import TOPIC_KEYS
from ottla.controller.admin import change_notifications
from ottla.controller.admin.change_notifications import EXPIRATION_MS
from ottla.controller.admin.config_admin import ConfigAdmin, ConfigOp, OpType, apply_ops
from ottla.controller.admin.config_changes import ConfigChanges
from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.errors import (
    BadArguments,
    ControllerError,
    InvalidAdminRequest,
    InvalidTopicConfig,
    NoAuth,
    NoNode,
    StoreError,
    StoreUnavailable,
    UnknownTopicOrPartition,
)
from ottla.controller.store.metadata_store import Request, Result, Stat, Watch
from ottla.controller.znodes.changes import encode_config, encode_config_change
from ottla.controller.znodes.znode_json import MalformedZNode
from tests.support.clocks import ManualClock
from tests.support.controlled_cluster import BrokerUnderTest, new_ensemble, until

SET, DELETE, APPEND, SUBTRACT = OpType


def run(scenario: Callable[[BrokerUnderTest, ConfigAdmin], Awaitable[None]]) -> None:
    async def play() -> None:
        broker = BrokerUnderTest(new_ensemble())
        await broker.start()
        await broker.topics.create_topics([NewTopic("cfg", 1, 1)])
        try:
            await scenario(broker, ConfigAdmin(broker.store, 0, broker.config))
        finally:
            await broker.stop()

    asyncio.run(play())


def body(broker: BrokerUnderTest, path: str) -> str | None:
    node = broker.ensemble.dump().get(path)
    return None if node is None or node.data is None else node.data.decode()


TOPIC_REFUSED: list[tuple[str, list[ConfigOp], type[ControllerError], str]] = [
    ("cfg", [ConfigOp("nope", "1", SET)], InvalidTopicConfig, "Unknown topic config name: nope"),
    ("cfg", [ConfigOp("nope", "1", APPEND)], InvalidTopicConfig, "Unknown config name: nope"),
    (
        "cfg",
        [ConfigOp("retention.ms", "1", APPEND)],
        InvalidTopicConfig,
        "Config value append is not allowed for config key: retention.ms",
    ),
    (
        "cfg",
        [ConfigOp("retention.ms", "x", SET)],
        InvalidTopicConfig,
        "Invalid config value for resource ConfigResource(type=TOPIC, name='cfg'): "
        "Invalid value x for configuration retention.ms: Not a number of type LONG",
    ),
    ("none", [ConfigOp("retention.ms", "5", SET)], UnknownTopicOrPartition, "The topic 'none' does not exist."),
    ("bad name", [ConfigOp("retention.ms", "5", SET)], UnknownTopicOrPartition, "The topic 'bad name' does not exist."),
    ("", [ConfigOp("retention.ms", "5", SET)], InvalidAdminRequest, "Default topic resources are not allowed."),
]


@pytest.mark.parametrize(("topic", "ops", "error", "message"), TOPIC_REFUSED, ids=[message[:50] for *_, message in TOPIC_REFUSED])
def test_a_bad_topic_config_is_refused_in_kafkas_words(topic: str, ops: list[ConfigOp], error: type[ControllerError], message: str) -> None:
    async def scenario(broker: BrokerUnderTest, admin: ConfigAdmin) -> None:
        with pytest.raises(error) as refused:
            await admin.alter_topic_configs(topic, ops)
        assert str(refused.value) == message
        assert not [path for path in broker.ensemble.dump() if path.startswith("/config/changes/")]

    run(scenario)


BROKER_REFUSED: list[tuple[str, list[ConfigOp], type[ControllerError], str]] = [
    ("7", [ConfigOp("log.cleaner.threads", "2", SET)], InvalidAdminRequest, "Unexpected broker id, expected 0, but received 7"),
    ("x", [ConfigOp("log.cleaner.threads", "2", SET)], InvalidAdminRequest, "Node id must be an integer, but it is: x"),
    ("0", [ConfigOp("broker.rack", "2", SET)], InvalidAdminRequest, "Cannot update these configs dynamically: Set(broker.rack)"),
    (
        "0",
        [ConfigOp("log.cleaner.threads", "q", SET)],
        InvalidAdminRequest,
        "Invalid value q for configuration log.cleaner.threads: Not a number of type INT",
    ),
    (
        "0",
        [ConfigOp("listener.name.external.ssl.keystore.password", "q", SET)],
        InvalidTopicConfig,
        "Invalid config value for resource ConfigResource(type=BROKER, name='0'): Password encoder secret not configured",
    ),
    (
        "0",
        [ConfigOp("num.io.threads", "100", SET)],
        InvalidAdminRequest,
        "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for "
        "num.io.threads=100, value should not be greater than double the current value 8 for configuration Invalid dynamic configuration",
    ),
]


@pytest.mark.parametrize(("resource", "ops", "error", "message"), BROKER_REFUSED, ids=[message[:50] for *_, message in BROKER_REFUSED])
def test_a_bad_broker_config_is_refused_in_kafkas_words(
    resource: str, ops: list[ConfigOp], error: type[ControllerError], message: str
) -> None:
    async def scenario(_: BrokerUnderTest, admin: ConfigAdmin) -> None:
        with pytest.raises(error) as refused:
            await admin.alter_broker_configs(resource, ops)
        assert str(refused.value) == message

    run(scenario)


def test_incremental_changes_go_from_what_stands_there() -> None:
    async def scenario(broker: BrokerUnderTest, admin: ConfigAdmin) -> None:
        await admin.alter_topic_configs("cfg", [ConfigOp("cleanup.policy", "compact", APPEND), ConfigOp("retention.ms", "5", SET)])
        assert body(broker, "/config/topics/cfg") == '{"version":1,"config":{"cleanup.policy":"delete,compact","retention.ms":"5"}}'
        await admin.alter_topic_configs("cfg", [ConfigOp("cleanup.policy", "delete", SUBTRACT), ConfigOp("retention.ms", None, DELETE)])
        assert await admin.read("topics", "cfg") == {"cleanup.policy": "compact"}
        await admin.alter_topic_configs("cfg", [ConfigOp("cleanup.policy", "compact,x", SUBTRACT)], validate_only=True)
        assert await admin.read("topics", "cfg") == {"cleanup.policy": "compact"}
        await admin.set_topic_configs("cfg", {"segment.bytes": "100000"})
        assert await admin.read_all("topics") == {"cfg": {"segment.bytes": "100000"}}
        asked = [f"none-{at}" for at in range(250)]
        assert await admin.read_many("topics", [*asked, "cfg"]) == {"cfg": {"segment.bytes": "100000"}}
        assert await admin.read_many("topics", ["cfg", *asked]) == {"cfg": {"segment.bytes": "100000"}}

    run(scenario)


def test_the_overrides_of_many_topics_are_read_in_one_round_trip_and_the_error_of_one_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    trips: list[int] = []

    async def scenario(broker: BrokerUnderTest, admin: ConfigAdmin) -> None:
        await admin.set_topic_configs("cfg", {"segment.bytes": "100000"})
        await broker.store.create("/config/topics/damaged", b"no JSON")
        pipeline = broker.store.pipeline

        async def counted(requests: Sequence[Request]) -> list[Result | StoreError]:
            trips.append(len(requests))
            return await pipeline(requests)

        monkeypatch.setattr(broker.store, "pipeline", counted)
        found = await admin.read_each("topics", ["cfg", "damaged", "none"])
        assert (found["cfg"], found["none"]) == ({"segment.bytes": "100000"}, {})
        assert isinstance(found["damaged"], MalformedZNode)
        assert await admin.read_each("topics", []) == {}

    run(scenario)
    assert trips == [3]


def test_an_entity_with_a_name_that_no_answer_could_carry_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    long, longest = "%C3%BC" * 16_384, "a" * 32_767

    async def scenario(broker: BrokerUnderTest, admin: ConfigAdmin) -> None:
        for user in (long, longest, "%61" * 20_000, "alice"):
            await admin.alter_entity_config("users", user, lambda current: {"producer_byte_rate": "1"})
        assert sorted(await admin.read_all("users")) == ["%61" * 20_000, longest, "alice"]

    run(scenario)
    assert "a name has more than 32767 bytes; delete its node" in caplog.text


def test_every_change_is_the_node_and_then_a_notification() -> None:
    async def scenario(broker: BrokerUnderTest, admin: ConfigAdmin) -> None:
        await admin.set_topic_configs("cfg", {"segment.bytes": "100000"})
        await admin.alter_broker_configs("0", [ConfigOp("log.cleaner.threads", "2", SET)])
        await admin.alter_broker_configs("", [ConfigOp("log.retention.ms", "700000000", SET)])
        await admin.alter_entity_config("users", "u1/clients/c1", lambda _: {"controller_mutation_rate": "5.0"})
        assert body(broker, "/config/brokers/0") == '{"version":1,"config":{"log.cleaner.threads":"2"}}'
        assert body(broker, "/config/brokers/<default>") == '{"version":1,"config":{"log.retention.ms":"700000000"}}'
        assert body(broker, "/config/users/u1/clients/c1") == '{"version":1,"config":{"controller_mutation_rate":"5.0"}}'
        assert body(broker, "/config/users/u1/clients") is None
        entities = [body(broker, path) for path in broker.ensemble.dump() if path.startswith("/config/changes/config_change_000000000")]
        assert entities == [
            f'{{"version":2,"entity_path":"{entity}"}}'
            for entity in ("topics/cfg", "brokers/0", "brokers/<default>", "users/u1/clients/c1")
        ]
        assert await admin.read_user_clients() == {"u1/clients/c1": {"controller_mutation_rate": "5.0"}}

    run(scenario)


THROTTLED = "leader.replication.throttled.replicas"


@pytest.mark.parametrize(
    ("op", "old", "value", "new"),
    [
        (APPEND, "a,b", "b,c,c", "a,b,c,c"),
        (SUBTRACT, "a,b,a,c", "c,a,x", "b,a"),
        (APPEND, ",".join(map(str, range(20_000))), ",".join(map(str, range(40_000))), ",".join(map(str, range(40_000)))),
        (SUBTRACT, ",".join(map(str, range(40_000))), ",".join(map(str, range(20_000, 40_000))), ",".join(map(str, range(20_000)))),
    ],
    ids=["append", "subtract", "append-many", "subtract-many"],
)
def test_a_list_is_appended_to_and_subtracted_from_whatever_its_length(op: OpType, old: str, value: str, new: str) -> None:
    """The event loop does it; a time that grows with the square of the length would stop it for seconds."""
    begin = time.thread_time()
    assert apply_ops([ConfigOp(THROTTLED, value, op)], {THROTTLED: old}, TOPIC_KEYS.get) == {THROTTLED: new}
    assert time.thread_time() - begin < 1


@pytest.mark.slow
def test_a_configuration_that_is_too_long_for_zookeeper_is_refused() -> None:
    """One value of a request has at most 32,767 bytes, but incremental changes add up."""

    async def scenario(broker: BrokerUnderTest, admin: ConfigAdmin) -> None:
        too_long = ",".join(f"{number}:1" for number in range(130_000))
        names = "follower.replication.throttled.replicas", THROTTLED
        text = "The configuration has [0-9]{7} bytes, which is more than the largest of 1000000."
        for validate_only in (False, True):
            with pytest.raises(InvalidAdminRequest, match=text):
                await admin.set_topic_configs("cfg", dict.fromkeys(names, too_long), validate_only=validate_only)
        assert await admin.read("topics", "cfg") == {}
        created = await broker.topics.create_topics(
            [NewTopic("new", 1, 1, configs=dict.fromkeys(names, too_long)), NewTopic("other", 1, 1)]
        )
        assert isinstance(created["new"], InvalidAdminRequest)
        assert not isinstance(created["other"], ControllerError)
        assert "/config/topics/new" not in broker.ensemble.dump()

    run(scenario)


def test_a_quota_entity_without_quotas_vanishes_with_the_nodes_above_that_only_led_there() -> None:
    async def scenario(broker: BrokerUnderTest, admin: ConfigAdmin) -> None:
        await admin.alter_entity_config("users", "u1", lambda _: {"request_percentage": "50.5"})
        await admin.alter_entity_config("users", "u1/clients/c1", lambda _: {"consumer_byte_rate": "1"})
        await admin.alter_entity_config("users", "u2/clients/c1", lambda _: {"consumer_byte_rate": "1"})
        await admin.alter_entity_config("users", "u1", lambda _: {})
        assert body(broker, "/config/users/u1") == '{"version":1,"config":{}}'
        await admin.alter_entity_config("users", "u1", lambda _: {"request_percentage": "50.5"})
        await admin.alter_entity_config("users", "u1/clients/c1", lambda _: {})
        await admin.alter_entity_config("users", "u2/clients/c1", lambda _: {})
        users = [path for path in broker.ensemble.dump() if path.startswith("/config/users")]
        assert users == ["/config/users", "/config/users/u1"]

    run(scenario)


@pytest.mark.parametrize("name", [".", "..", "./clients/c"])
def test_a_name_that_no_node_can_have_is_refused_at_once(name: str) -> None:
    async def scenario(_: BrokerUnderTest, admin: ConfigAdmin) -> None:
        with pytest.raises(BadArguments):
            await asyncio.wait_for(admin.alter_entity_config("users", name, lambda _: {"producer_byte_rate": "1"}), 10)

    run(scenario)


def test_a_node_whose_parent_cannot_be_made_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def not_made(_: str) -> None:
        """As on a ZooKeeper whose node above belongs to another identity."""

    async def scenario(broker: BrokerUnderTest, admin: ConfigAdmin) -> None:
        monkeypatch.setattr(broker.store, "ensure_path", not_made)
        with pytest.raises(NoNode):
            await asyncio.wait_for(admin.alter_entity_config("users", "u/clients/c", lambda _: {"producer_byte_rate": "1"}), 10)

    run(scenario)


def test_the_last_quota_of_a_user_takes_no_credential_away_that_comes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: BrokerUnderTest, admin: ConfigAdmin) -> None:
        path = "/config/users/u"
        await admin.alter_entity_config("users", "u", lambda _: {"producer_byte_rate": "1"})
        get, others = broker.store.get, [encode_config({"producer_byte_rate": "1", "SCRAM-SHA-256": "salt=..."})]

        async def overtaken(path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
            found = await get(path, watch)
            if others:
                await broker.store.set(path, others.pop())
            return found

        monkeypatch.setattr(broker.store, "get", overtaken)
        await admin.alter_entity_config("users", "u", without_quota)
        assert body(broker, path) == '{"version":1,"config":{"SCRAM-SHA-256":"salt=..."}}'
        await admin.alter_entity_config("users", "u", lambda _: {})
        assert body(broker, path) is None

    def without_quota(current: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in current.items() if name != "producer_byte_rate"}

    run(scenario)


def test_two_writers_lose_no_change() -> None:
    async def scenario(broker: BrokerUnderTest, admin: ConfigAdmin) -> None:
        names = ["retention.ms", "segment.bytes", "flush.ms", "retention.bytes"]
        await asyncio.gather(*(admin.alter_topic_configs("cfg", [ConfigOp(name, "100", SET)]) for name in names))
        assert await admin.read("topics", "cfg") == dict.fromkeys(names, "100")

    run(scenario)


def test_a_broker_is_told_of_every_change_after_it_began_to_listen() -> None:
    async def scenario(broker: BrokerUnderTest, admin: ConfigAdmin) -> None:
        await admin.set_topic_configs("cfg", {"retention.ms": "1"})
        told: list[tuple[str, str, dict[str, Any]]] = []
        changes = ConfigChanges(broker.store, broker.ensemble.clock, lambda *change: told.append(change))
        await changes.start()
        await admin.set_topic_configs("cfg", {"retention.ms": "2"})
        await admin.alter_entity_config("clients", "<default>", lambda _: {"consumer_byte_rate": "1"})
        await broker.store.create("/config/changes/config_change_", b"garbage", sequential=True)
        await admin.set_topic_configs("cfg", {})
        await until(lambda: len(told) == 3)
        assert [change[:2] for change in told] == [("topics", "cfg"), ("clients", "<default>"), ("topics", "cfg")]
        assert told[-1][2] == {}
        await changes.stop()

    run(scenario)


@pytest.mark.parametrize("refusal", [NoAuth("/config/topics/other", "another identity"), BadArguments("/config/topics/..")])
def test_a_change_that_can_never_be_read_does_not_hold_up_later_ones(refusal: StoreError, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: BrokerUnderTest, admin: ConfigAdmin) -> None:
        told: list[str] = []
        changes = ConfigChanges(broker.store, broker.ensemble.clock, lambda _, name, __: told.append(name))
        await changes.start()
        pipeline = broker.store.pipeline

        async def refusing(requests: Sequence[Request]) -> list[Result | StoreError]:
            found = await pipeline(requests)
            return [
                refusal if getattr(each, "path", "") == "/config/topics/other" else it for each, it in zip(requests, found, strict=True)
            ]

        monkeypatch.setattr(broker.store, "pipeline", refusing)
        await broker.store.create("/config/changes/config_change_", encode_config_change("topics/other"), sequential=True)
        await admin.set_topic_configs("cfg", {"retention.ms": "2"})
        await until(lambda: told == ["cfg"])
        await changes.stop()

    run(scenario)


def test_a_change_that_the_store_did_not_show_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_notifications, "RETRY_SECONDS", 0)

    async def scenario(broker: BrokerUnderTest, admin: ConfigAdmin) -> None:
        told: list[str] = []
        changes = ConfigChanges(broker.store, broker.ensemble.clock, lambda _, name, __: told.append(name))
        await changes.start()
        children, refusals = broker.store.children, [StoreUnavailable("metadata.db", "disk I/O error")] * 2

        async def refusing(path: str, watch: Watch | None = None) -> list[str]:
            if refusals:
                raise refusals.pop()
            return await children(path, watch)

        monkeypatch.setattr(broker.store, "children", refusing)
        await admin.set_topic_configs("cfg", {"retention.ms": "2"})
        await until(lambda: told == ["cfg"])
        await changes.stop()

    run(scenario)


def test_notifications_are_kept_for_a_quarter_of_an_hour() -> None:
    async def scenario(broker: BrokerUnderTest, admin: ConfigAdmin) -> None:
        clock = broker.ensemble.clock
        assert isinstance(clock, ManualClock)
        told: list[str] = []
        changes = ConfigChanges(broker.store, clock, lambda *change: told.append(change[1]))
        await changes.start()
        await admin.set_topic_configs("cfg", {"retention.ms": "1"})
        clock.move(EXPIRATION_MS)
        await admin.set_topic_configs("cfg", {"retention.ms": "2"})
        await until(lambda: len(told) == 2)
        assert len([path for path in broker.ensemble.dump() if path.startswith("/config/changes/")]) == 2
        clock.move(1)
        await admin.set_topic_configs("cfg", {"retention.ms": "3"})
        await until(lambda: "/config/changes/config_change_0000000000" not in broker.ensemble.dump())
        assert len([path for path in broker.ensemble.dump() if path.startswith("/config/changes/")]) == 2
        await changes.stop()

    run(scenario)
