"""Malformed nodes of configurations: what counts instead, and what comes into force when they are repaired."""

import pytest

from ottla.broker.configuration.client_quotas import StoredQuotas
from ottla.broker.configuration.dynamic_config import KEEPS_RECORDS, DynamicConfig
from ottla.broker.configuration.ip_quotas import IpQuotas
from ottla.broker.network.connection_quotas import ConnectionQuotas
from ottla.broker.network.limits import NetworkLimits
from ottla.broker.quotas.client_quotas import ClientQuotas, Windows
from ottla.broker.security import rereading
from ottla.config.keys.network import NUM_IO_THREADS
from ottla.config.topic import RETENTION_MS, SEGMENT_BYTES
from ottla.controller.znodes.changes import encode_config, encode_config_change
from ottla.controller.znodes.layout import CONFIG_CHANGE_PREFIX, DEFAULT_ENTITY, config_path
from ottla.controller.znodes.znode_json import MalformedZNode
from tests.support.configuration_stage import Stage, asks_to_host, control, on_a_stage
from tests.support.controlled_cluster import until

WINDOWS = Windows(11, 1000)


def test_a_topic_whose_configuration_cannot_be_understood_keeps_no_other_from_being_hosted(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.dynamic.load()
        await stage.node.store.create("/config/topics/bad", b"no JSON")
        await stage.admin.alter_entity_config("topics", "t", lambda _: {"segment.bytes": "100"})
        await control(stage).on_leader_and_isr(asks_to_host("bad", "t"))
        assert stage.replicas.known_at_creation == {"bad": KEEPS_RECORDS, "t": {"segment.bytes": "100"}}

    on_a_stage(scenario)
    assert "topic bad keeps all records: /config/topics/bad: " in caplog.text


def test_a_malformed_topic_keeps_its_records_until_its_configuration_is_repaired(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rereading, "FIRST_PAUSE_SECONDS", 0.001)

    async def scenario(stage: Stage) -> None:
        store = stage.node.store
        await store.create("/config/topics/bad", b"no JSON")
        await stage.admin.alter_entity_config("topics", "t", lambda _: {"segment.bytes": "100"})
        await stage.dynamic.load()
        assert stage.dynamic.topic_config_of("bad").overrides == KEEPS_RECORDS
        assert stage.dynamic.topic_config_of("bad")[RETENTION_MS] == -1
        assert stage.dynamic.topic_config_of("t")[SEGMENT_BYTES] == 100
        stage.follow()
        bad, removed = stage.host("bad"), stage.host("removed")
        await store.set("/config/topics/bad", encode_config({"retention.ms": "7"}))  # as by zookeeper-shell.sh, without a notification
        await until(lambda: bad.config[RETENTION_MS] == 7)
        await store.create("/config/topics/removed", b"{")
        stage.node.ensemble.expire(store.session_id)
        await until(lambda: removed.config[RETENTION_MS] == -1)
        await store.delete("/config/topics/removed")
        await until(lambda: removed.config[RETENTION_MS] > 0)

    on_a_stage(scenario)
    named = [line for line in caplog.messages if "/config/topics/" in line]
    assert [line.partition(";")[0] for line in named] == [
        "topics/bad keeps its former configuration", "topics/removed keeps its former configuration",
    ]  # fmt: skip


@pytest.mark.parametrize("bad", [{"cleanup.policy": "compat"}, {"retention.ms": "forever"}, {"retention.bytes": ""}])
def test_a_topic_with_a_bad_value_for_what_is_deleted_keeps_its_records(bad: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage) -> None:
        overrides = {"cleanup.policy": "compact", "retention.ms": "7", "segment.bytes": "100"} | bad
        await stage.admin.alter_entity_config("topics", "t", lambda _: overrides)
        await stage.dynamic.load()
        config = stage.dynamic.topic_config_of("t")
        assert config.overrides == {**KEEPS_RECORDS, "segment.bytes": "100"}

    on_a_stage(scenario)
    assert "this override is ignored and all records are kept" in caplog.text


def test_a_topic_whose_configuration_becomes_malformed_has_the_former_one_until_it_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rereading, "FIRST_PAUSE_SECONDS", 0.001)

    async def scenario(stage: Stage) -> None:
        store = stage.node.store
        await stage.admin.alter_entity_config("topics", "t", lambda _: {"retention.ms": "7"})
        await stage.dynamic.load()
        stage.follow()
        log = stage.host("t")
        await store.set(config_path("topics", "t"), b"{")
        await store.create(CONFIG_CHANGE_PREFIX, encode_config_change("topics/t"), sequential=True)
        await stage.dynamic.catch_up()
        assert log.config[RETENTION_MS] == 7
        await store.set(config_path("topics", "t"), encode_config({"retention.ms": "8"}))
        await until(lambda: log.config[RETENTION_MS] == 8)

    on_a_stage(scenario)


@pytest.mark.parametrize("name", ["0", DEFAULT_ENTITY])
def test_a_malformed_configuration_of_the_broker_ends_the_start_but_not_what_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rereading, "FIRST_PAUSE_SECONDS", 0.001)

    async def scenario(stage: Stage) -> None:
        store = stage.node.store
        await stage.admin.set_broker_configs("" if name == DEFAULT_ENTITY else name, {"num.io.threads": "9"})
        await stage.dynamic.load()
        stage.follow()
        hosted = stage.host("t")
        await store.set(config_path("brokers", name), b"{")
        await store.create(config_path("topics", "t"), encode_config({"retention.ms": "7"}))
        started = DynamicConfig(stage.config, store, stage.admin, 0, stage.node.ensemble.clock)
        with pytest.raises(MalformedZNode, match=f"^/config/brokers/{name}: "):
            await started.load()
        await started.close()
        stage.node.ensemble.expire(store.session_id)
        await until(lambda: hosted.config[RETENTION_MS] == 7)
        assert stage.config[NUM_IO_THREADS] == 9
        await store.set(config_path("brokers", name), encode_config({"num.io.threads": "8"}))
        await until(lambda: stage.config[NUM_IO_THREADS] == 8)

    on_a_stage(scenario)


def test_a_malformed_quota_keeps_its_former_value_and_is_read_when_it_is_repaired(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rereading, "FIRST_PAUSE_SECONDS", 0.001)

    async def scenario(stage: Stage) -> None:
        store = stage.node.store
        paths = [config_path("clients", "c"), config_path("users", "alice"), config_path("users", "alice/clients/c")]
        for path in (*paths, config_path("ips", "10.0.0.1")):
            await store.ensure_path(path)
            await store.set(path, b"{")
        await store.create(config_path("clients", "other"), encode_config({"producer_byte_rate": "8"}))
        quotas = ClientQuotas(WINDOWS, WINDOWS, WINDOWS, lambda: 0)
        addresses = ConnectionQuotas(NetworkLimits(), 0.0)
        users, ips = StoredQuotas(stage.admin, stage.dynamic, quotas), IpQuotas(stage.admin, stage.dynamic, addresses)

        def found(user: str, client_id: str = "") -> float | None:
            bound = quotas.produce.bounds.find(user, client_id)
            return None if bound is None else bound[1]

        await stage.dynamic.load()
        await users.load()
        await ips.load()
        stage.follow()
        assert [found("", "other"), found("", "c"), found("alice"), found("alice", "c")] == [8, None, None, None]
        for number, path in enumerate(paths):
            await store.set(path, encode_config({"producer_byte_rate": f"{20 + number}"}))
        await store.set(config_path("ips", "10.0.0.1"), encode_config({"connection_creation_rate": "1"}))
        await until(lambda: [found("", "c"), found("alice"), found("alice", "c")] == [20, 21, 22])
        await until(lambda: addresses.ip_delay("10.0.0.1", 0.0) > 0)
        await store.set(paths[0], b"{")
        await store.create(config_path("users", "bob"), b"{")
        stage.node.ensemble.expire(store.session_id)
        await until(lambda: "/config/users/bob: " in caplog.text)
        assert [found("", "c"), found("bob")] == [20, None]

    on_a_stage(scenario)
    assert caplog.text.count("/config/users/alice/clients/c: ") == 1
