"""Dynamic broker configuration: what may change at run time, at which level, and what is in force then."""

import logging

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.dynamic import is_password
from ottla.config.errors import ConfigError
from ottla.config.keys.log import LOG_CLEANUP_POLICY, LOG_RETENTION_BYTES, LOG_RETENTION_MS, LOG_ROLL_MS
from ottla.config.keys.network import MAX_CONNECTIONS, NUM_IO_THREADS, NUM_NETWORK_THREADS
from ottla.config.keys.quotas import LEADER_REPLICATION_THROTTLED_RATE
from ottla.config.listeners import EndPoint, SecurityProtocol

STATIC = {"listeners": "PLAINTEXT://127.0.0.1:9092", "zookeeper.connect": "127.0.0.1:2181"}

# the level, what is asked for, the line a client of Apache Kafka 3.9.1 gets after "Invalid config value for resource ...: "
REFUSED = [
    ("broker", {"broker.id": "2"}, "Cannot update these configs dynamically: Set(broker.id)"),
    ("broker", {"num.partitions": "many"}, "Cannot update these configs dynamically: Set(num.partitions)"),
    ("cluster", {"log.retention.hours": "2"}, "Cannot update these configs dynamically: Set(log.retention.hours)"),
    (
        "broker",
        {"ssl.keystore.location": "x"},
        "These security configs can be dynamically updated only per-listener using the listener prefix: HashSet(ssl.keystore.location)",
    ),
    (
        "cluster",
        {"advertised.listeners": "PLAINTEXT://a:1"},
        "Cannot update these configs at default cluster level, broker id must be specified: Set(advertised.listeners)",
    ),
    (
        "cluster",
        {"listener.name.plaintext.ssl.keystore.location": "x"},
        "Cannot update these configs at default cluster level, broker id must be specified: "
        "Set(listener.name.plaintext.ssl.keystore.location)",
    ),
    ("broker", {"log.segment.bytes": "1"}, "Invalid value 1 for configuration log.segment.bytes: Value must be at least 14"),
    (
        "broker",
        {"leader.replication.throttled.rate": "-1"},
        "Invalid value -1 for configuration leader.replication.throttled.rate: Value must be at least 0",
    ),
    (
        "broker",
        {"log.retention.ms": "0"},
        "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    ),
    (
        "broker",
        {"num.io.threads": "17"},
        "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for "
        "num.io.threads=17, value should not be greater than double the current value 8 for configuration Invalid dynamic configuration",
    ),
    (
        "cluster",
        {"background.threads": "4"},
        "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for "
        "background.threads=4, value should be at least half the current value 10 for configuration Invalid dynamic configuration",
    ),
    (
        "cluster",
        {"num.replica.fetchers": "0"},
        "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for "
        "num.replica.fetchers=0, value should be at least 1 for configuration Invalid dynamic configuration",
    ),
    (
        "cluster",
        {"log.cleaner.threads": "3"},
        "Invalid value org.apache.kafka.common.config.ConfigException: Log cleaner threads cannot be increased to more than double "
        "the current value 1 for configuration Invalid dynamic configuration",
    ),
    (
        "cluster",
        {"log.local.retention.ms": "9", "log.retention.ms": "8"},
        "Invalid value org.apache.kafka.common.config.ConfigException: Invalid value 9 for configuration log.local.retention.ms: "
        "Value must not be more than log.retention.ms property value: 8 for configuration Invalid dynamic configuration",
    ),
    (
        "broker",
        {"listener.name.plaintext.num.network.threads": "7"},
        "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for "
        "num.network.threads=7, value should not be greater than double the current value 3 "
        "for configuration Invalid dynamic configuration",
    ),
    (
        "broker",
        {"listener.name.plaintext.max.connections": "0"},
        "Invalid value org.apache.kafka.common.config.ConfigException: Invalid max.connections 0 "
        "for configuration Invalid dynamic configuration",
    ),
    (
        "broker",
        {"listener.name.plaintext.connections.max.reauth.ms": "5", "max.connections": "9"},
        "Invalid value org.apache.kafka.common.config.ConfigException: Configs cannot be updated dynamically for existing listener "
        "ListenerName(PLAINTEXT), restart broker or create a new listener for update for configuration Invalid dynamic configuration",
    ),
    (
        "broker",
        {"log.local.retention.bytes": "-1", "log.retention.bytes": "8"},
        "Invalid value org.apache.kafka.common.config.ConfigException: Invalid value -1 for configuration log.local.retention.bytes: "
        "Value must not be -1 as log.retention.bytes value is set as 8. for configuration Invalid dynamic configuration",
    ),
    (
        "broker",
        {"listener.name.plaintext.max.connections": "x"},
        "Invalid value x for configuration max.connections: Not a number of type INT",
    ),
    (
        "broker",
        {"listener.security.protocol.map": "PLAINTEXT:SSL,SSL:SSL"},
        "Invalid value org.apache.kafka.common.config.ConfigException: Security protocol cannot be updated for existing listener "
        "ListenerName(PLAINTEXT) for configuration Invalid dynamic configuration",
    ),
    (
        "broker",
        {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
        "requirement failed: advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
    ),
]

ACCEPTED = [
    ("broker", {"num.io.threads": "16"}),
    ("broker", {"log.retention.ms": "1000", "some.plugin.key": "x"}),
    ("broker", {"leader.replication.throttled.rate": "100"}),
    ("broker", {"advertised.listeners": "PLAINTEXT://127.0.0.1:9092"}),
    ("broker", {"listener.name.plaintext.max.connections": "5"}),
    ("broker", {"listener.name.plaintext.connections.max.reauth.ms": "5"}),
    ("cluster", {"max.connections": "2", "listener.name.plaintext.max.connection.creation.rate": "3"}),
    ("broker", {"log.local.retention.ms": "604800000"}),
    ("cluster", {"listener.name.plaintext.max.connections": "5"}),
    ("cluster", {"max.connections": "10", "message.max.bytes": "5", "unclean.leader.election.enable": "true"}),
]


@pytest.mark.parametrize(("level", "overrides", "line"), REFUSED)
def test_a_change_is_refused_in_kafkas_words(level: str, overrides: dict[str, str], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(STATIC).validate_dynamic(overrides, per_broker=level == "broker")
    assert refused.value.client_message == line


@pytest.mark.parametrize(("level", "overrides"), ACCEPTED)
def test_a_change_that_kafka_accepts_is_accepted(level: str, overrides: dict[str, str]) -> None:
    config = BrokerConfig(STATIC)
    config.validate_dynamic(overrides, per_broker=level == "broker")
    levels = (overrides, {}) if level == "broker" else ({}, overrides)
    assert config.update_dynamic(*levels) == overrides.keys() - {name for name in overrides if STATIC.get(name) == overrides[name]}


def test_the_broker_beats_the_cluster_which_beats_the_file() -> None:
    config = BrokerConfig(STATIC | {"num.io.threads": "4"})
    assert config[NUM_IO_THREADS] == 4
    config.update_dynamic({}, {"num.io.threads": "6"})
    assert config[NUM_IO_THREADS] == 6
    config.update_dynamic({"num.io.threads": "5"}, {"num.io.threads": "6"})
    assert config[NUM_IO_THREADS] == 5
    config.update_dynamic({}, {})
    assert config[NUM_IO_THREADS] == 4


def test_an_override_beats_its_synonyms_in_the_file() -> None:
    config = BrokerConfig(STATIC | {"log.roll.ms": "7", "log.retention.minutes": "2"})
    config.update_dynamic({}, {"log.retention.ms": "9"})
    assert (config[LOG_ROLL_MS], config[LOG_RETENTION_MS]) == (7, 9)


def test_an_update_names_what_changed_and_tells_who_asked() -> None:
    config = BrokerConfig(STATIC)
    told: list[tuple[str, frozenset[str]]] = []
    config.on_change(lambda changed: told.append(("threads", changed)), [NUM_IO_THREADS])
    config.on_change(lambda changed: told.append(("any", changed)))
    assert config.update_dynamic({}, {"max.connections": "5"}) == {"max.connections"}
    assert config.update_dynamic({}, {"max.connections": "5"}) == frozenset()
    assert config.update_dynamic({}, {"max.connections": "5", "num.io.threads": "9"}) == {"num.io.threads"}
    assert told == [("any", {"max.connections"}), ("threads", {"num.io.threads"}), ("any", {"num.io.threads"})]


def test_the_new_values_are_in_force_when_callbacks_run() -> None:
    config = BrokerConfig(STATIC)
    seen: list[int] = []
    config.on_change(lambda _: seen.append(config[MAX_CONNECTIONS]))
    config.update_dynamic({"max.connections": "5"}, {})
    assert seen == [5]


def test_a_callback_that_fails_keeps_no_other_from_the_new_values(caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig(STATIC)
    told: list[str] = []

    def fail(_: frozenset[str]) -> None:
        raise RuntimeError("a fault")

    config.on_change(fail)
    config.on_change(lambda _: told.append("changed"))
    config.on_update(lambda: told.append("updated"))
    assert config.update_dynamic({"max.connections": "5"}, {}) == {"max.connections"}
    assert told == ["changed", "updated"]
    assert "a change of max.connections is not in force everywhere" in caplog.text


def test_stored_entries_that_cannot_be_dynamic_are_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig(STATIC)
    stored = {"broker.id": "7", "max.connections": "many", "ssl.keystore.type": "PEM", "num.io.threads": "9"}
    with caplog.at_level(logging.ERROR):
        assert config.update_dynamic(stored, {"advertised.listeners": "PLAINTEXT://a:1"}) == {"num.io.threads"}
    assert config.dynamic_broker == {"num.io.threads": "9"}
    assert config.dynamic_default == {}
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [
        "max.connections",
        "broker.id",
        "ssl.keystore.type",
        "advertised.listeners",
    ]


def test_a_stored_configuration_that_contradicts_the_file_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig(STATIC | {"log.cleaner.dedupe.buffer.size": "2097153"})  # enough for one thread
    with caplog.at_level(logging.ERROR):
        assert config.update_dynamic({}, {"log.cleaner.threads": "2", "max.connections": "5"}) == frozenset()
    assert config[MAX_CONNECTIONS] == 2**31 - 1
    assert "is not applied: log.cleaner.dedupe.buffer.size must be" in caplog.text


@pytest.mark.parametrize("at_start", [True, False])
@pytest.mark.parametrize(
    "stored",
    [
        {"log.retention.ms": "0"},
        {"log.retention.ms": "many"},
        {"log.retention.bytes": "1000", "log.cleaner.threads": "2"},
        {"log.cleanup.policy": "shred"},
    ],
)
@pytest.mark.parametrize("is_of_cluster", [True, False])
def test_all_records_are_kept_while_what_is_stored_about_that_cannot_be_used(
    stored: dict[str, str], is_of_cluster: bool, at_start: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = BrokerConfig(STATIC | {"log.cleaner.dedupe.buffer.size": "2097153", "log.retention.ms": "1000"})
    with caplog.at_level(logging.ERROR):
        config.update_dynamic(*(({}, stored) if is_of_cluster else (stored, {})), at_start=at_start)
    assert (config[LOG_RETENTION_MS], config[LOG_RETENTION_BYTES], config[LOG_CLEANUP_POLICY]) == (-1, -1, ("delete",))
    assert "all records are kept until the dynamic configuration of log." in caplog.text
    config.update_dynamic({}, {}, at_start=at_start)
    assert config[LOG_RETENTION_MS] == 1000


def test_values_in_force_stay_while_new_ones_cannot_be_applied() -> None:
    config = BrokerConfig(STATIC | {"log.cleaner.dedupe.buffer.size": "2097153"})
    config.update_dynamic({}, {"log.retention.ms": "5000"})
    config.update_dynamic({}, {"log.retention.ms": "1000", "log.cleaner.threads": "2"})
    assert (config[LOG_RETENTION_MS], config[LOG_CLEANUP_POLICY]) == (5000, ("delete",))


@pytest.mark.parametrize("at_start", [True, False])
@pytest.mark.parametrize("bad_level", ["broker", "cluster"])
def test_a_level_that_contradicts_the_file_does_not_undo_the_other(
    bad_level: str, at_start: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = BrokerConfig(STATIC | {"log.cleaner.dedupe.buffer.size": "2097153"})  # enough for one thread
    bad, good = {"log.cleaner.threads": "2", "max.connections": "5"}, {"log.retention.ms": "-1"}
    levels = (bad, good) if bad_level == "broker" else (good, bad)
    with caplog.at_level(logging.WARNING):
        assert config.update_dynamic(*levels, at_start=at_start) == {"log.retention.ms"}
    assert config[LOG_RETENTION_MS] == -1
    assert (config.dynamic_broker, config.dynamic_default) == (({}, good) if bad_level == "broker" else (good, {}))
    assert "is not applied: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread" in caplog.text
    assert "the dynamic configuration in force is ['log.retention.ms']" in caplog.text


def test_rules_about_changes_do_not_hold_at_the_start() -> None:
    config = BrokerConfig(STATIC)
    assert config.update_dynamic({}, {"num.io.threads": "100"}, at_start=True) == {"num.io.threads"}
    assert config[NUM_IO_THREADS] == 100


def test_new_advertised_listeners_are_in_force_at_once() -> None:
    config = BrokerConfig(STATIC)
    config.update_dynamic({"advertised.listeners": "PLAINTEXT://kafka.example:19092"}, {})
    assert config.listeners.advertised == (EndPoint("PLAINTEXT", "kafka.example", 19092, SecurityProtocol.PLAINTEXT),)


def test_a_listener_has_its_own_value_where_it_is_set() -> None:
    config = BrokerConfig(STATIC | {"listener.name.plaintext.num.network.threads": "2"})
    assert config.for_listener("PLAINTEXT")[NUM_NETWORK_THREADS] == 2
    assert config.for_listener("SSL")[NUM_NETWORK_THREADS] == 3


def test_a_key_that_counts_for_no_listener_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig()
    stored = {"listener.name.plaintxt.max.connections": "3", "listener.name.plaintext.max.connections": "3"}
    for threads in ("8", "9"):
        config.update_dynamic({**stored, "num.io.threads": threads}, {})
    assert [record.getMessage() for record in caplog.records] == [
        "dynamic configuration: listener.name.plaintxt.max.connections has no effect: "
        "the prefixes of the listeners are listener.name.plaintext."
    ]


def test_a_quota_of_the_broker_is_dynamic_only() -> None:
    config = BrokerConfig(STATIC)
    config.update_dynamic({LEADER_REPLICATION_THROTTLED_RATE.name: "100"}, {})
    (entry,) = config.describe([LEADER_REPLICATION_THROTTLED_RATE.name])
    assert (entry.value, entry.source.name, entry.kind.name) == ("100", "DYNAMIC_BROKER_CONFIG", "LONG")
    assert config.quota(LEADER_REPLICATION_THROTTLED_RATE) == 100


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("ssl.keystore.password", True),
        ("listener.name.external.ssl.keystore.password", True),
        ("listener.name.external.scram-sha-256.sasl.jaas.config", True),
        ("num.io.threads", False),
        ("some.plugin.key", False),
    ],
)
def test_secrets_are_known_by_name(name: str, secret: bool) -> None:
    assert is_password(name) is secret
