"""The values a broker has in force, and how it describes them."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.keys.general import BROKER_ID
from ottla.config.keys.groups import GROUP_INITIAL_REBALANCE_DELAY_MS, OFFSETS_TOPIC_REPLICATION_FACTOR
from ottla.config.keys.kraft import NODE_ID
from ottla.config.keys.log import LOG_CLEANUP_POLICY, LOG_DIRS, LOG_FLUSH_INTERVAL_MS, LOG_RETENTION_MS, LOG_ROLL_JITTER_MS, LOG_ROLL_MS
from ottla.config.keys.network import ADVERTISED_LISTENERS, LISTENERS
from ottla.config.keys.security import PASSWORD_ENCODER_SECRET
from ottla.config.keys.transactions import TRANSACTION_STATE_LOG_MIN_ISR
from ottla.config.keys.zookeeper import ZOOKEEPER_CONNECT, ZOOKEEPER_CONNECTION_TIMEOUT_MS
from ottla.config.schema.describe import ConfigEntry, ConfigSource, ConfigSynonym
from ottla.config.schema.types import Password

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({}, 168 * HOUR),
        ({"log.retention.hours": "2"}, 2 * HOUR),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_a_retention_wins(properties: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig(properties)[LOG_RETENTION_MS] == retention_ms


def test_a_key_without_value_takes_it_from_the_key_it_stands_for() -> None:
    config = BrokerConfig(
        {
            "log.roll.hours": "2",
            "log.roll.jitter.hours": "1",
            "log.flush.scheduler.interval.ms": "5",
            "log.dir": "one",
            "zookeeper.session.timeout.ms": "6",
            "listeners": "PLAINTEXT://a:1",
        }
    )
    assert config[LOG_ROLL_MS] == 2 * HOUR
    assert config[LOG_ROLL_JITTER_MS] == HOUR
    assert config[LOG_FLUSH_INTERVAL_MS] == 5
    assert config[LOG_DIRS] == "one"
    assert config[ZOOKEEPER_CONNECTION_TIMEOUT_MS] == 6
    assert config[ADVERTISED_LISTENERS] == "PLAINTEXT://a:1"


def test_the_broker_id_and_the_node_id_are_one() -> None:
    assert BrokerConfig({"broker.id": "3"})[NODE_ID] == 3
    assert BrokerConfig({"node.id": "3"})[BROKER_ID] == 3


def test_values_have_their_type() -> None:
    config = BrokerConfig({"log.cleanup.policy": "compact , delete", "password.encoder.secret": " s3cret "})
    assert config[LOG_CLEANUP_POLICY] == ("compact", "delete")
    assert config[PASSWORD_ENCODER_SECRET] == Password("s3cret")
    assert "s3cret" not in repr(config[PASSWORD_ENCODER_SECRET])
    assert config[ZOOKEEPER_CONNECT] is None


def test_a_broker_on_its_own_has_defaults_for_that() -> None:
    alone, member = BrokerConfig(), BrokerConfig({"zookeeper.connect": "zk:2181"})
    assert (alone.standalone, member.standalone) == (True, False)
    assert (alone[OFFSETS_TOPIC_REPLICATION_FACTOR], member[OFFSETS_TOPIC_REPLICATION_FACTOR]) == (1, 3)
    assert (alone[TRANSACTION_STATE_LOG_MIN_ISR], member[TRANSACTION_STATE_LOG_MIN_ISR]) == (1, 2)
    assert (alone[GROUP_INITIAL_REBALANCE_DELAY_MS], member[GROUP_INITIAL_REBALANCE_DELAY_MS]) == (0, 3000)
    assert (alone[LISTENERS], member[LISTENERS]) == ("PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://:9092")
    assert (alone[LOG_DIRS], member[LOG_DIRS]) == ("./data", "/tmp/kafka-logs")
    assert BrokerConfig({"offsets.topic.replication.factor": "2"})[OFFSETS_TOPIC_REPLICATION_FACTOR] == 2


def described(config: BrokerConfig, name: str) -> ConfigEntry:
    (entry,) = config.describe([name])
    return entry


def test_a_default_of_a_broker_on_its_own_is_described_as_a_default() -> None:
    entry = described(BrokerConfig(), "offsets.topic.replication.factor")
    assert (entry.value, entry.source) == ("1", ConfigSource.DEFAULT_CONFIG)
    assert [(each.value, each.source) for each in entry.synonyms] == [("1", ConfigSource.DEFAULT_CONFIG)]


def test_a_secret_is_described_without_its_value() -> None:
    entry = described(BrokerConfig({"password.encoder.secret": "s3cret"}), "password.encoder.secret")
    assert (entry.value, entry.sensitive, entry.source) == (None, True, ConfigSource.STATIC_BROKER_CONFIG)
    assert [each.value for each in entry.synonyms] == [None]


@pytest.mark.parametrize(
    ("name", "value"), [("my.plugin.token", "x"), ("super.users", "User:a"), ("allow.everyone.if.no.acl.found", "true")]
)
def test_a_property_of_a_plugin_is_described_as_a_secret(name: str, value: str) -> None:
    """In Apache Kafka the authorizer is a plugin, too."""
    entry = described(BrokerConfig({name: value}), name)
    assert (entry.value, entry.sensitive, entry.kind.name, entry.read_only) == (None, True, "UNKNOWN", True)
    assert entry.documentation is None
    assert entry.synonyms == (ConfigSynonym(name, None, ConfigSource.STATIC_BROKER_CONFIG),)
    assert entry.source is ConfigSource.STATIC_BROKER_CONFIG


def test_a_listeners_key_is_described_with_its_base_key_as_synonym() -> None:
    config = BrokerConfig({"listener.name.plaintext.max.connections": "5", "max.connections": "9"})
    entry = described(config, "listener.name.plaintext.max.connections")
    assert (entry.value, entry.kind.name) == ("5", "INT")
    assert [(each.name, each.value, each.source.name) for each in entry.synonyms] == [
        ("listener.name.plaintext.max.connections", "5", "STATIC_BROKER_CONFIG"),
        ("max.connections", "9", "STATIC_BROKER_CONFIG"),
        ("max.connections", "2147483647", "DEFAULT_CONFIG"),
    ]


def test_a_mechanisms_key_of_a_listener_is_a_secret_when_its_base_key_is() -> None:
    name = "listener.name.external.scram-sha-256.sasl.jaas.config"
    entry = described(BrokerConfig({name: "secret;"}), name)
    assert (entry.value, entry.sensitive, entry.kind.name) == (None, True, "PASSWORD")


def test_the_synonyms_of_a_retention_are_in_kafkas_order() -> None:
    config = BrokerConfig({"log.retention.ms": "1", "log.retention.hours": "3"})
    assert [(each.name, each.value, each.source.name) for each in described(config, "log.retention.ms").synonyms] == [
        ("log.retention.ms", "1", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "3", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "168", "DEFAULT_CONFIG"),
    ]


def test_the_synonym_of_minutes_is_hours() -> None:
    config = BrokerConfig({"log.retention.minutes": "2", "log.retention.hours": "3"})
    assert [(each.name, each.value) for each in described(config, "log.retention.minutes").synonyms] == [
        ("log.retention.minutes", "2"),
        ("log.retention.hours", "3"),
        ("log.retention.hours", "168"),
    ]


def test_the_clusters_default_is_described_by_itself() -> None:
    config = BrokerConfig({"max.connections": "4"})
    config.update_dynamic({"max.connections": "6"}, {"max.connections": "5", "num.io.threads": "9"})
    entries = config.describe_default()
    assert [(entry.name, entry.value, entry.source.name) for entry in entries] == [
        ("max.connections", "5", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("num.io.threads", "9", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
    ]
    assert [each.value for each in entries[0].synonyms] == ["5"]
    assert [entry.name for entry in config.describe_default(["num.io.threads"])] == ["num.io.threads"]


def test_unknown_properties_and_those_without_effect_are_named() -> None:
    config = BrokerConfig({"no.such.key": "1", "ssl.secure.random.implementation": "x", "num.io.threads": "2"})
    assert config.unknown == ["no.such.key"]
    assert config.without_effect == ["ssl.secure.random.implementation"]
