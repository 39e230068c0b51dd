"""Stored configurations come into force: at the start, on changes, and before the logs of a new topic are made."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from ottla.broker.configuration.client_quotas import StoredQuotas
from ottla.broker.configuration.ip_quotas import IpQuotas
from ottla.broker.network.connection_quotas import ConnectionQuotas
from ottla.broker.network.limits import NetworkLimits
from ottla.broker.quotas.client_quotas import ClientQuotas, Windows
from ottla.broker.quotas.quota_bounds import ABSENT, Tags
from ottla.broker.security import rereading
from ottla.config.keys.log import LOG_RETENTION_MS
from ottla.config.keys.network import NUM_IO_THREADS
from ottla.config.topic import RETENTION_MS, SEGMENT_BYTES
from ottla.controller.admin.config_admin import Malformed
from ottla.controller.errors import StoreError, StoreUnavailable
from ottla.controller.store.metadata_store import Request, Result
from ottla.controller.znodes.changes import encode_config
from ottla.controller.znodes.layout import DEFAULT_ENTITY, config_path
from ottla.protocol.topic_partition import TopicPartition
from tests.support.configuration_stage import Stage, asks_to_host, control, on_a_stage
from tests.support.controlled_cluster import until
from tests.support.pauses import a_turn, every_pause_waits

WINDOWS = Windows(11, 1000)


def test_what_is_stored_is_in_force_after_loading() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.admin.set_broker_configs("0", {"num.io.threads": "9"})
        await stage.admin.set_broker_configs("", {"num.io.threads": "7", "log.retention.ms": "5000"})
        await stage.admin.alter_entity_config("topics", "t", lambda _: {"segment.bytes": "100"})
        await stage.dynamic.load()
        assert (stage.config[NUM_IO_THREADS], stage.config[LOG_RETENTION_MS]) == (9, 5000)
        config = stage.dynamic.topic_config_of("t")
        assert (config[SEGMENT_BYTES], config[RETENTION_MS]) == (100, 5000)
        assert stage.dynamic.topic_config_of("other")[RETENTION_MS] == 5000

    on_a_stage(scenario)


def test_configurations_are_shared_and_remembered() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.admin.alter_entity_config("topics", "t", lambda _: {"segment.bytes": "100"})
        await stage.dynamic.load()
        assert stage.dynamic.topic_config_of("t") is stage.dynamic.topic_config_of("t")
        assert stage.dynamic.topic_config_of("a") is stage.dynamic.topic_config_of("b")

    on_a_stage(scenario)


def test_the_overrides_of_deleted_topics_are_forgotten() -> None:
    async def scenario(stage: Stage) -> None:
        for topic in ("deleted", "hosted", "elsewhere"):
            await stage.admin.alter_entity_config("topics", topic, lambda _: {"segment.bytes": "100"})
        await stage.dynamic.load()
        stage.follow()
        stage.host("hosted")
        stage.replicas.cluster.topics["elsewhere"] = object()

        def known() -> list[str]:
            return [topic for topic in ("deleted", "hosted", "elsewhere") if stage.dynamic.topic_config_of(topic).overrides]

        (on_deleted,) = stage.replicas.deletion_listeners
        await on_deleted([TopicPartition(topic, 0) for topic in ("deleted", "hosted", "elsewhere")])
        assert known() == ["hosted", "elsewhere"]
        del stage.replicas.partitions["hosted"]
        for listener in stage.replicas.leadership_listeners:
            listener(SimpleNamespace(topic_partition=TopicPartition("hosted", 0)))
        assert known() == ["elsewhere"]

    on_a_stage(scenario)


def test_a_changed_topic_reaches_its_logs_and_no_others() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.dynamic.load()
        stage.follow()
        log, other = stage.host("t"), stage.host("u")
        await stage.admin.alter_entity_config("topics", "t", lambda _: {"segment.bytes": "100"})
        await until(lambda: log.config[SEGMENT_BYTES] == 100)
        assert stage.replicas.changed == ["t"]
        assert other.config[SEGMENT_BYTES] != 100

    on_a_stage(scenario)


def test_a_change_reaches_many_logs_with_pauses() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.dynamic.load()
        stage.follow()
        logs = [stage.host("t") for _ in range(5)]
        every_pause_waits()
        await stage.admin.alter_entity_config("topics", "t", lambda _: {"segment.bytes": "100"})
        await until(lambda: bool(stage.replicas.changed))
        reached = []
        while (count := sum(log.config[SEGMENT_BYTES] == 100 for log in logs)) < len(logs):
            reached.append(count)
            await a_turn()
        assert {2, 3, 4} <= set(reached)
        assert len(stage.replicas.changed) == len(logs)

    on_a_stage(scenario)


def test_a_changed_default_reaches_every_log_but_not_over_an_override() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.admin.alter_entity_config("topics", "own", lambda _: {"retention.ms": "1"})
        await stage.dynamic.load()
        stage.follow()
        log, own = stage.host("t"), stage.host("own")
        await stage.admin.set_broker_configs("", {"log.retention.ms": "77"})
        await until(lambda: log.config[RETENTION_MS] == 77)
        assert own.config[RETENTION_MS] == 1
        await stage.admin.set_broker_configs("", {})
        await until(lambda: log.config[RETENTION_MS] == 604_800_000)

    on_a_stage(scenario)


def test_what_changes_while_the_logs_are_opened_reaches_those_that_were_open_already() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.dynamic.load()
        log, other = stage.host("t"), stage.host("u")
        await stage.admin.alter_entity_config("topics", "t", lambda _: {"segment.bytes": "100"})
        await stage.admin.set_broker_configs("", {"log.retention.ms": "77"})
        await stage.dynamic.catch_up()
        stage.follow()
        await until(lambda: other.config[RETENTION_MS] == 77)
        assert (log.config[SEGMENT_BYTES], log.config[RETENTION_MS]) == (100, 77)
        assert stage.dynamic.topic_config_of("new")[RETENTION_MS] == 77

    on_a_stage(scenario)


def test_catching_up_reports_a_change_once_even_while_the_watch_fires() -> None:
    async def scenario(stage: Stage) -> None:
        reported: list[tuple[str, dict[str, str]]] = []
        await stage.dynamic.load()
        stage.follow()
        stage.dynamic.on_entity_change("clients", lambda name, config: reported.append((name, config)))
        await stage.admin.alter_entity_config("clients", "c", lambda _: {"producer_byte_rate": "5"})
        await asyncio.gather(stage.dynamic.catch_up(), stage.dynamic.catch_up())
        for _ in range(10):
            await asyncio.sleep(0)
        assert reported == [("c", {"producer_byte_rate": "5"})]

    on_a_stage(scenario)


def test_what_changed_unnoticed_is_in_force_in_a_new_session() -> None:
    async def scenario(stage: Stage) -> None:
        store = stage.node.store
        await stage.admin.alter_entity_config("topics", "former", lambda _: {"segment.bytes": "100"})
        await stage.dynamic.load()
        stage.follow()
        former, changed, same = stage.host("former"), stage.host("changed"), stage.host("same")
        # Their notifications are gone by the time of the next session.
        await store.delete(config_path("topics", "former"))
        await store.create(config_path("topics", "changed"), encode_config({"retention.ms": "7"}))
        await store.create(config_path("brokers", DEFAULT_ENTITY), encode_config({"num.io.threads": "9"}))
        stage.node.ensemble.expire(store.session_id)
        await until(lambda: changed.config[RETENTION_MS] == 7)
        assert former.config[SEGMENT_BYTES] == same.config[SEGMENT_BYTES] > 100
        assert stage.config[NUM_IO_THREADS] == 9
        assert sorted(stage.replicas.changed) == ["changed", "former"]

    on_a_stage(scenario)


def test_quotas_that_changed_unnoticed_count_in_a_new_session() -> None:
    async def scenario(stage: Stage) -> None:
        store = stage.node.store
        quotas = ClientQuotas(WINDOWS, WINDOWS, WINDOWS, lambda: 0)
        addresses = ConnectionQuotas(NetworkLimits(), 0.0)
        users, ips = StoredQuotas(stage.admin, stage.dynamic, quotas), IpQuotas(stage.admin, stage.dynamic, addresses)
        await stage.dynamic.load()
        stage.follow()
        for entity_type, name, config in (
            ("clients", "former", {"producer_byte_rate": "5"}),
            ("users", "alice/clients/former", {"producer_byte_rate": "5"}),
            ("ips", "10.0.0.1", {"connection_creation_rate": "0"}),
        ):
            await stage.admin.alter_entity_config(entity_type, name, dict(config).__or__)
        await users.load()
        await ips.load()
        await stage.dynamic.catch_up()
        assert quotas.produce.bounds.find("alice", "former") == (Tags("alice", "former"), 5)
        assert addresses.ip_delay("10.0.0.1", 0.0) > 0
        # Their notifications are gone by the time of the next session.
        for entity_type, name in (("clients", "former"), ("users", "alice/clients/former"), ("ips", "10.0.0.1")):
            await store.delete(config_path(entity_type, name))
        await store.create(config_path("clients", DEFAULT_ENTITY), encode_config({"producer_byte_rate": "7"}))
        await store.create(config_path("users", "bob"), encode_config({"producer_byte_rate": "8"}))
        await store.create(config_path("ips", "10.0.0.2"), encode_config({"connection_creation_rate": "0"}))
        stage.node.ensemble.expire(store.session_id)
        await until(lambda: addresses.ip_delay("10.0.0.2", 0.0) > 0)
        assert addresses.ip_delay("10.0.0.1", 0.0) == 0
        found = [quotas.produce.bounds.find(user, "former") for user in ("alice", "bob")]
        assert found == [(Tags(ABSENT, "former"), 7), (Tags("bob", ABSENT), 8)]

    on_a_stage(scenario)


def test_a_quota_that_changes_while_all_are_read_is_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(stage: Stage) -> None:
        quotas = ClientQuotas(WINDOWS, WINDOWS, WINDOWS, lambda: 0)
        users = StoredQuotas(stage.admin, stage.dynamic, quotas)
        await stage.dynamic.load()
        await stage.admin.alter_entity_config("clients", "c", lambda _: {"producer_byte_rate": "5"})
        await stage.dynamic.catch_up()
        read_all = stage.admin.read_all

        async def overtaken(entity_type: str, malformed: Malformed | None = None) -> dict[str, dict[str, str]]:
            found = await read_all(entity_type, malformed)
            if entity_type == "clients":
                await stage.admin.alter_entity_config("clients", "c", lambda _: {"producer_byte_rate": "6"})
                for _ in range(100):
                    await asyncio.sleep(0)  # a broker that does not wait applies the change now
            return found

        monkeypatch.setattr(stage.admin, "read_all", overtaken)
        await users.load()
        await until(lambda: quotas.produce.bounds.find("", "c") == (Tags(ABSENT, "c"), 6))

    on_a_stage(scenario)


def test_an_error_with_one_change_ends_no_later_one(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.dynamic.load()
        stage.follow()
        reported: list[int] = []
        stage.dynamic.on_entity_change("clients", lambda name, config: reported.append(int(config["producer_byte_rate"])))
        await stage.admin.alter_entity_config("clients", "c", lambda _: {"producer_byte_rate": "bad"})
        await stage.dynamic.catch_up()
        await stage.admin.alter_entity_config("clients", "c", lambda _: {"producer_byte_rate": "5"})
        await until(lambda: reported == [5])
        assert "a change of configurations is lost" in caplog.text

    on_a_stage(scenario)


def test_the_configuration_of_another_broker_is_not_ours() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.dynamic.load()
        stage.follow()
        await stage.admin.alter_entity_config("brokers", "1", lambda _: {"num.io.threads": "12"})
        await stage.dynamic.catch_up()
        assert stage.config[NUM_IO_THREADS] == 8

    on_a_stage(scenario)


@pytest.mark.parametrize(("configs", "ordered"), [({"unclean.leader.election.enable": "true"}, ["t"]), ({"retention.ms": "1"}, [])])
def test_unclean_elections_that_are_switched_on_for_a_topic_are_held(configs: dict[str, str], ordered: list[str]) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.dynamic.load()
        stage.follow()
        await stage.admin.alter_entity_config("topics", "t", lambda _: configs)
        await stage.dynamic.catch_up()
        await asyncio.sleep(0)
        assert stage.elections == ordered

    on_a_stage(scenario)


def test_unclean_elections_that_are_switched_on_for_all_are_held_for_all() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.dynamic.load()
        stage.follow()
        await stage.admin.set_broker_configs("", {"unclean.leader.election.enable": "true"})
        await stage.dynamic.catch_up()
        await asyncio.sleep(0)
        assert stage.elections == [None]

    on_a_stage(scenario)


def test_a_bad_override_is_left_out_and_named_and_the_rest_counts(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.admin.alter_entity_config("topics", "t", lambda _: {"segment.bytes": "-3", "retention.ms": "5", "from.the.future": "x"})
        await stage.dynamic.load()
        config = stage.dynamic.topic_config_of("t")
        assert config[RETENTION_MS] == 5
        assert dict(config.overrides) == {"retention.ms": "5", "from.the.future": "x"}

    on_a_stage(scenario)
    assert "topic t: Invalid value -3 for configuration segment.bytes" in caplog.text


def test_stored_secrets_are_left_out_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage) -> None:
        stored = {"listener.name.x.ssl.keystore.password": "encoded-secret", "num.io.threads": "9"}
        await stage.admin.alter_entity_config("brokers", "0", lambda _: stored)
        await stage.dynamic.load()
        assert stage.config[NUM_IO_THREADS] == 9
        assert "listener.name.x.ssl.keystore.password" not in stage.config.dynamic_broker

    on_a_stage(scenario)
    assert "listener.name.x.ssl.keystore.password could not be decoded" in caplog.text
    assert "encoded-secret" not in caplog.text


def test_the_configuration_of_a_new_topic_is_read_before_its_logs_are_made() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.admin.alter_entity_config("topics", "t", lambda _: {"segment.bytes": "100"})
        await stage.dynamic.load()
        # Deleted and created again: nobody is notified of either.
        await stage.node.store.delete("/config/topics/t")
        await stage.node.store.create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"9"}}')
        await control(stage).on_leader_and_isr(asks_to_host("t"))
        assert stage.replicas.known_at_creation == {"t": {"retention.ms": "9"}}

    on_a_stage(scenario)


def test_the_configuration_of_a_hosted_topic_is_not_read_again() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.admin.alter_entity_config("topics", "t", lambda _: {"segment.bytes": "100"})
        await stage.dynamic.load()
        stage.host("t")
        await stage.node.store.delete("/config/topics/t")
        await control(stage).on_leader_and_isr(asks_to_host("t"))
        assert stage.replicas.known_at_creation == {"t": {"segment.bytes": "100"}}

    on_a_stage(scenario)


def test_the_configurations_of_many_new_topics_take_few_round_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.dynamic.load()
        store = stage.node.store
        topics = [f"t{number}" for number in range(250)]
        for topic in topics:
            await store.create(config_path("topics", topic), encode_config({"retention.ms": topic[1:]}))
        pipeline, round_trips = store.pipeline, 0

        async def counted(requests: Sequence[Request]) -> list[Result | StoreError]:
            nonlocal round_trips
            round_trips += 1
            return await pipeline(requests)

        monkeypatch.setattr(store, "pipeline", counted)
        await control(stage).on_leader_and_isr(asks_to_host(*topics, "without"))
        assert round_trips == 3
        assert stage.replicas.known_at_creation == {topic: {"retention.ms": topic[1:]} for topic in topics} | {"without": {}}

    on_a_stage(scenario)


def test_a_store_that_is_away_does_not_keep_a_replica_from_being_made(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.dynamic.load()

        async def away(topics: object) -> None:
            raise StoreUnavailable("/store", "it is away")

        monkeypatch.setattr(stage.dynamic, "refresh", away)
        await control(stage).on_leader_and_isr(asks_to_host("t"))
        assert stage.replicas.known_at_creation == {"t": {}}

    on_a_stage(scenario)
    assert "the configurations of t cannot be read" in caplog.text


def test_a_configuration_that_cannot_be_read_for_a_new_replica_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rereading, "FIRST_PAUSE_SECONDS", 0.001)

    async def scenario(stage: Stage) -> None:
        await stage.dynamic.load()
        stage.follow()
        await stage.node.store.create(config_path("topics", "t"), encode_config({"retention.ms": "-1"}))
        read_many, failures = stage.admin.read_many, [StoreUnavailable("/store", "it is away") for _ in range(2)]

        async def away_at_first(entity_type: str, entities: Sequence[str], malformed: Malformed | None = None) -> dict[str, dict[str, str]]:
            if failures:
                raise failures.pop()
            return await read_many(entity_type, entities, malformed)

        monkeypatch.setattr(stage.admin, "read_many", away_at_first)
        await control(stage).on_leader_and_isr(asks_to_host("t"))
        log = stage.host("t")
        assert log.config[RETENTION_MS] > 0
        await until(lambda: log.config[RETENTION_MS] == -1)

    on_a_stage(scenario)


def test_a_new_replica_has_the_configuration_that_its_server_of_zookeeper_has_not_seen_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.dynamic.load()
        store = stage.node.store

        async def catch_up() -> None:
            await store.create(config_path("topics", "t"), encode_config({"retention.ms": "-1"}))

        monkeypatch.setattr(store, "catch_up", catch_up)
        await control(stage).on_leader_and_isr(asks_to_host("t"))
        assert stage.replicas.known_at_creation == {"t": {"retention.ms": "-1"}}

    on_a_stage(scenario)
