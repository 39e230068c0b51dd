"""Topic overrides and what a topic's configuration is; the refusals are those of Apache Kafka 3.9.1, which was given every one of these."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError, TopicConfigError
from ottla.config.schema.describe import ConfigEntry, ConfigSource
from ottla.config.topic import (
    BROKER_KEY_OF,
    CLEANUP_POLICY,
    LOCAL_RETENTION_MS,
    MAX_MESSAGE_BYTES,
    MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    RETENTION_MS,
    SEGMENT_MS,
    TOPIC_KEYS,
    TopicConfig,
    validate_topic_overrides,
)

TIERED = {"remote.log.storage.system.enable": "true"}

# broker properties, topic overrides, Kafka's line
REFUSED = [
    ({}, {"retention": "1"}, "Unknown topic config name: retention"),
    ({}, {"log.segment.bytes": "1000"}, "Unknown topic config name: log.segment.bytes"),
    ({}, {"segment.bytes": "13"}, "Invalid value 13 for configuration segment.bytes: Value must be at least 14"),
    ({}, {"segment.bytes": "1GB"}, "Invalid value 1GB for configuration segment.bytes: Not a number of type INT"),
    ({}, {"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
    ({}, {"segment.ms": "0"}, "Invalid value 0 for configuration segment.ms: Value must be at least 1"),
    ({}, {"flush.ms": "-1"}, "Invalid value -1 for configuration flush.ms: Value must be at least 0"),
    ({}, {"segment.jitter.ms": "-1"}, "Invalid value -1 for configuration segment.jitter.ms: Value must be at least 0"),
    (
        {},
        {"cleanup.policy": "compact,remove"},
        "Invalid value remove for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    (
        {},
        {"message.timestamp.type": "Now"},
        "Invalid value Now for configuration message.timestamp.type: String must be one of: CreateTime, LogAppendTime",
    ),
    (
        {},
        {"leader.replication.throttled.replicas": "0:1, x"},
        "Invalid value [0:1, x] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas must be "
        "the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
    ),
    (
        {},
        {"follower.replication.throttled.replicas": f"{'1' * 5000}:0"},
        f"Invalid value [{'1' * 5000}:0] for configuration follower.replication.throttled.replicas: "
        "follower.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    ),
    (
        {},
        {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
        "conflict topic config setting min.compaction.lag.ms (2) > max.compaction.lag.ms (1)",
    ),
    (
        {"log.cleaner.max.compaction.lag.ms": "5"},
        {"min.compaction.lag.ms": "6"},
        "conflict topic config setting min.compaction.lag.ms (6) > max.compaction.lag.ms (5)",
    ),
    (
        {},
        {"remote.storage.enable": "true"},
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
    ),
    (
        {},
        {"remote.log.copy.disable": "true"},
        "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode.",
    ),
    (
        TIERED,
        {"remote.storage.enable": "true", "cleanup.policy": "compact"},
        "Remote log storage is unsupported for the compacted topics",
    ),
    (
        TIERED | {"inter.broker.protocol.version": "3.4"},
        {"remote.storage.enable": "true"},
        "Remote log storage needs inter.broker.protocol.version 3.5-IV0 or newer: followers of older releases do not learn that "
        "records are in the remote store only",
    ),
    (
        TIERED,
        {"remote.storage.enable": "true", "retention.ms": "10", "local.retention.ms": "11"},
        "Invalid value 11 for configuration local.retention.ms: Value must not be more than retention.ms property value: 10",
    ),
    (
        TIERED,
        {"remote.storage.enable": "true", "retention.bytes": "10", "local.retention.bytes": "-1"},
        "Invalid value -1 for configuration local.retention.bytes: Value must not be -1 as retention.bytes value is set as 10.",
    ),
]

ACCEPTED = [
    ({}, {}),
    ({}, {"cleanup.policy": "compact,delete", "retention.ms": "-1"}),
    ({}, {"cleanup.policy": ""}),
    ({}, {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "0:1,1:2"}),
    ({}, {"local.retention.ms": "99999999999"}),
    (TIERED, {"remote.storage.enable": "true", "retention.ms": "10", "local.retention.ms": "10"}),
    (TIERED, {"remote.storage.enable": "true", "retention.bytes": "-2", "local.retention.bytes": "10"}),  # below 0 is no limit
    (TIERED | {"inter.broker.protocol.version": "3.5"}, {"remote.storage.enable": "true"}),
]


@pytest.mark.parametrize(("properties", "overrides", "line"), REFUSED)
def test_overrides_are_refused_in_kafkas_words(properties: dict[str, str], overrides: dict[str, str], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_topic_overrides(overrides, BrokerConfig(properties))
    assert str(refused.value) == line


@pytest.mark.parametrize(("properties", "overrides"), ACCEPTED)
def test_overrides_that_kafka_accepts_are_accepted(properties: dict[str, str], overrides: dict[str, str]) -> None:
    broker = BrokerConfig(properties)
    validate_topic_overrides(overrides, broker)
    TopicConfig(overrides, broker)


def test_remote_storage_cannot_be_taken_back_in_silence() -> None:
    with pytest.raises(TopicConfigError, match="It is invalid to disable remote storage without deleting remote data"):
        validate_topic_overrides({}, BrokerConfig(TIERED), existing={"remote.storage.enable": "true"})


def test_a_tiered_topic_can_be_changed_while_the_protocol_between_brokers_is_older_again() -> None:
    tiered = {"remote.storage.enable": "true"}
    broker = BrokerConfig(TIERED | {"inter.broker.protocol.version": "3.4"})
    validate_topic_overrides(tiered | {"retention.ms": "10"}, broker, existing=tiered)


def test_a_topic_without_overrides_has_the_brokers_values() -> None:
    topic = TopicConfig({}, BrokerConfig({"log.roll.hours": "2", "message.max.bytes": "77", "log.retention.minutes": "3"}))
    assert topic[SEGMENT_MS] == 2 * 3_600_000
    assert topic[MAX_MESSAGE_BYTES] == 77
    assert topic[RETENTION_MS] == 3 * 60_000
    assert topic[CLEANUP_POLICY] == ("delete",)


def test_an_override_beats_the_broker() -> None:
    topic = TopicConfig({"cleanup.policy": "compact, delete"}, BrokerConfig({"log.cleanup.policy": "delete"}))
    assert topic[CLEANUP_POLICY] == ("compact", "delete")


def test_a_topic_config_is_a_snapshot_of_the_brokers_values() -> None:
    broker = BrokerConfig()
    before = TopicConfig({}, broker)
    broker.update_dynamic({}, {"log.retention.ms": "5"})
    assert before[RETENTION_MS] == 7 * 86_400_000
    assert TopicConfig({}, broker)[RETENTION_MS] == 5


@pytest.mark.parametrize(
    ("properties", "overrides", "in_force"),
    [
        ({}, {}, 2**63 - 1),
        ({"log.message.timestamp.difference.max.ms": "5"}, {}, 5),
        ({"log.message.timestamp.difference.max.ms": "5", "log.message.timestamp.before.max.ms": "6"}, {}, 6),
        ({"log.message.timestamp.before.max.ms": "6"}, {"message.timestamp.difference.max.ms": "7"}, 6),
        ({}, {"message.timestamp.difference.max.ms": "7"}, 7),
        ({}, {"message.timestamp.difference.max.ms": "7", "message.timestamp.before.max.ms": "8"}, 8),
    ],
)
def test_the_older_timestamp_limit_holds_where_the_newer_have_their_default(
    properties: dict[str, str], overrides: dict[str, str], in_force: int
) -> None:
    assert TopicConfig(overrides, BrokerConfig(properties))[MESSAGE_TIMESTAMP_BEFORE_MAX_MS] == in_force


def test_local_retention_is_the_whole_retention_unless_it_is_set() -> None:
    assert TopicConfig({"retention.ms": "9"}, BrokerConfig())[LOCAL_RETENTION_MS] == 9
    assert TopicConfig({"retention.ms": "9", "local.retention.ms": "4"}, BrokerConfig())[LOCAL_RETENTION_MS] == 4


def described(topic: TopicConfig, name: str) -> ConfigEntry:
    (entry,) = topic.describe([name])
    return entry


def test_an_entry_names_every_place_that_sets_it_strongest_first() -> None:
    broker = BrokerConfig({"log.segment.bytes": "500"})
    broker.update_dynamic({"log.segment.bytes": "700"}, {"log.segment.bytes": "600"})
    entry = described(TopicConfig({"segment.bytes": "800"}, broker), "segment.bytes")
    assert entry.value == "800"
    assert entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert [(each.name, each.value, each.source.name) for each in entry.synonyms] == [
        ("segment.bytes", "800", "DYNAMIC_TOPIC_CONFIG"),
        ("log.segment.bytes", "700", "DYNAMIC_BROKER_CONFIG"),
        ("log.segment.bytes", "600", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("log.segment.bytes", "500", "STATIC_BROKER_CONFIG"),
        ("log.segment.bytes", "1073741824", "DEFAULT_CONFIG"),
    ]


def test_an_entry_set_by_a_weaker_synonym_alone_counts_as_default() -> None:
    """Apache Kafka drops synonyms before the first of the entry's own name."""
    entry = described(TopicConfig({}, BrokerConfig({"log.retention.hours": "1"})), "retention.ms")
    assert (entry.value, entry.source, entry.synonyms) == ("3600000", ConfigSource.DEFAULT_CONFIG, ())


def test_a_stored_override_nobody_knows_is_shown_as_a_secret() -> None:
    entry = described(TopicConfig({"later.key": "x"}, BrokerConfig()), "later.key")
    assert (entry.value, entry.sensitive, entry.kind.name) == (None, True, "UNKNOWN")


def test_every_topic_key_but_those_of_throttling_and_tiering_has_a_broker_key() -> None:
    without = TOPIC_KEYS.keys() - BROKER_KEY_OF.keys()
    assert without == {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
    assert BROKER_KEY_OF.keys() <= TOPIC_KEYS.keys()
