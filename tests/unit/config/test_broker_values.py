"""Values a broker refuses, with the line it says: the texts of Apache Kafka 3.9.1, which was given every one of these."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError

CLUSTER = {"zookeeper.connect": "127.0.0.1:2181"}

BAD_VALUES = [
    ({"num.io.threads": "0"}, "Invalid value 0 for configuration num.io.threads: Value must be at least 1"),
    ({"num.io.threads": "-1"}, "Invalid value -1 for configuration num.io.threads: Value must be at least 1"),
    ({"num.io.threads": "many"}, "Invalid value many for configuration num.io.threads: Not a number of type INT"),
    ({"num.io.threads": ""}, "Invalid value  for configuration num.io.threads: Not a number of type INT"),
    ({"num.io.threads": "1.5"}, "Invalid value 1.5 for configuration num.io.threads: Not a number of type INT"),
    ({"num.io.threads": "2147483648"}, "Invalid value 2147483648 for configuration num.io.threads: Not a number of type INT"),
    ({"log.retention.ms": "1e3"}, "Invalid value 1e3 for configuration log.retention.ms: Not a number of type LONG"),
    (
        {"offsets.topic.replication.factor": "70000"},
        "Invalid value 70000 for configuration offsets.topic.replication.factor: Not a number of type SHORT",
    ),
    (
        {"offsets.topic.replication.factor": "0"},
        "Invalid value 0 for configuration offsets.topic.replication.factor: Value must be at least 1",
    ),
    ({"group.share.max.groups": "101"}, "Invalid value 101 for configuration group.share.max.groups: Value must be no more than 100"),
    (
        {"log.cleaner.min.cleanable.ratio": "1.5"},
        "Invalid value 1.5 for configuration log.cleaner.min.cleanable.ratio: Value must be no more than 1",
    ),
    (
        {"log.cleaner.min.cleanable.ratio": "-1"},
        "Invalid value -1.0 for configuration log.cleaner.min.cleanable.ratio: Value must be at least 0",
    ),
    (
        {"log.cleaner.min.cleanable.ratio": "half"},
        "Invalid value half for configuration log.cleaner.min.cleanable.ratio: Not a number of type DOUBLE",
    ),
    (
        {"auto.create.topics.enable": "yes"},
        "Invalid value yes for configuration auto.create.topics.enable: Expected value to be either true or false",
    ),
    (
        {"compression.type": "brotli"},
        "Invalid value brotli for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    (
        {"log.cleanup.policy": "delete,shred"},
        "Invalid value shred for configuration log.cleanup.policy: String must be one of: compact, delete",
    ),
    (
        {"compression.gzip.level": "0"},
        "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
    ),
    ({"compression.lz4.level": "18"}, "Invalid value 18 for configuration compression.lz4.level: Value must be no more than 17"),
    (
        {"remote.log.manager.copier.thread.pool.size": "0"},
        "Invalid value 0 for configuration remote.log.manager.copier.thread.pool.size: Value can be -1 or greater than 0",
    ),
    (
        {"inter.broker.protocol.version": "5.0"},
        "Invalid value 5.0 for configuration inter.broker.protocol.version: Version 5.0 is not a valid version",
    ),
    (
        {"remote.log.metadata.manager.impl.prefix": " "},
        "Invalid value  for configuration remote.log.metadata.manager.impl.prefix: String must be non-empty",
    ),
    (
        {"group.consumer.migration.policy": "sideways"},
        "Invalid value sideways for configuration group.consumer.migration.policy: "
        "String must be one of (case insensitive): DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL",
    ),
    (
        {"security.inter.broker.protocol": "TLS"},
        "Invalid value TLS for configuration security.inter.broker.protocol: "
        "String must be one of: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
    ),
]

CONTRADICTIONS = [
    ({"broker.id": "1", "node.id": "2"}, "You must set `node.id` to the same value as `broker.id`."),
    (
        {"broker.id": "1001"},
        "requirement failed: broker.id must be greater than or equal to -1 and not greater than reserved.broker.max.id",
    ),
    ({"broker.id.generation.enable": "false"}, "requirement failed: broker.id must be greater than or equal to 0"),
    ({"log.roll.ms": "0"}, "requirement failed: log.roll.ms must be greater than or equal to 1"),
    ({"log.roll.jitter.ms": "-1"}, "requirement failed: log.roll.jitter.ms must be greater than or equal to 0"),
    ({"log.retention.ms": "0"}, "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
    ({"log.retention.minutes": "0"}, "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
    ({"log.dirs": " , "}, "requirement failed: At least one log directory must be defined via log.dirs or log.dir."),
    (
        {"log.cleaner.dedupe.buffer.size": "2097152", "log.cleaner.threads": "2"},
        "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    ),
    (
        {"replica.fetch.wait.max.ms": "30001"},
        "requirement failed: replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms "
        "to prevent unnecessary socket timeouts",
    ),
    (
        {"replica.fetch.wait.max.ms": "20000", "replica.lag.time.max.ms": "10000"},
        "requirement failed: replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms "
        "to prevent frequent changes in ISR",
    ),
    (
        {"offsets.commit.required.acks": "-2"},
        "offsets.commit.required.acks must be greater or equal to -1 and less or equal to offsets.topic.replication.factor",
    ),
    (
        {"offsets.commit.required.acks": "4"},
        "offsets.commit.required.acks must be greater or equal to -1 and less or equal to offsets.topic.replication.factor",
    ),
    ({"offsets.topic.compression.codec": "5"}, "Unknown compression type id: 5"),
    (
        {"queued.max.request.bytes": "1000"},
        "requirement failed: queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    ),
    (
        {"max.connections.per.ip": "0"},
        "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
    ),
    (
        {"max.connections.per.ip.overrides": "a b:1"},
        "max.connections.per.ip.overrides contains invalid addresses : a b",
    ),
    (
        {"max.connections.per.ip.overrides": f"a:{'1' * 5000}"},
        f"Error parsing configuration property 'max.connections.per.ip.overrides': '{'1' * 5000}' is not a number of connections",
    ),
    (
        {"connections.max.idle.ms": "100"},
        "requirement failed: connection.failed.authentication.delay.ms=100 should always be less than connections.max.idle.ms=100 "
        "to prevent failed authentication responses from timing out",
    ),
    (
        {"security.inter.broker.protocol": "SASL_PLAINTEXT", "listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "PLAIN"},
        "requirement failed: sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms "
        "when SASL is used for inter-broker communication",
    ),
    (
        {"group.consumer.heartbeat.interval.ms": "1000"},
        "group.consumer.heartbeat.interval.ms must be greater than or equals to group.consumer.min.heartbeat.interval.ms",
    ),
    (
        {"group.consumer.session.timeout.ms": "100000"},
        "group.consumer.session.timeout.ms must be less than or equals to group.consumer.max.session.timeout.ms",
    ),
    (
        {"group.share.max.heartbeat.interval.ms": "1"},
        "group.share.max.heartbeat.interval.ms must be greater than or equals to group.share.min.heartbeat.interval.ms",
    ),
    (
        {"group.coordinator.rebalance.protocols": "consumer"},
        "Disabling the 'classic' protocol is not supported.",
    ),
    (
        {"group.coordinator.rebalance.protocols": "classic,consumer"},
        "The new 'consumer' rebalance protocol is only supported in KRaft cluster.",
    ),
    (
        {"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.11.0"},
        "requirement failed: log.message.format.version 0.11.0 can only be used when inter.broker.protocol.version "
        "is set to version 0.11.0 or higher",
    ),
    (
        {"inter.broker.protocol.version": "0.9.0", "log.message.format.version": "0.10.1"},
        "requirement failed: log.message.format.version 0.10.1 can only be used when inter.broker.protocol.version "
        "is set to version 0.10.0 or higher",
    ),
]

ACCEPTED = [
    {},
    {"broker.id": "1000"},
    {"node.id": "3"},
    {"log.retention.hours": "-1"},
    {"queued.max.request.bytes": "104857600"},
    {"queued.max.request.bytes": "0"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:10, ::1:5"},
    {"connections.max.idle.ms": "-1"},
    {"inter.broker.protocol.version": "3.9.1"},
    {"inter.broker.protocol.version": "2.8-IV1", "log.message.format.version": "2.8"},
    {"log.cleaner.min.cleanable.ratio": "0.25f"},
    {"num.io.threads": " +16 "},
    {"auto.create.topics.enable": " TRUE "},
    {"log.cleanup.policy": "compact , delete"},
    {"log.cleanup.policy": ""},
    {"some.plugin.key": "anything"},
]


@pytest.mark.parametrize(("properties", "line"), BAD_VALUES)
def test_a_bad_value_is_refused_in_kafkas_words(properties: dict[str, str], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(CLUSTER | properties)
    assert refused.value.client_message == line


@pytest.mark.parametrize(("properties", "line"), CONTRADICTIONS)
def test_values_that_do_not_go_together_are_refused_in_kafkas_words(properties: dict[str, str], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(CLUSTER | properties)
    assert refused.value.client_message == line
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("properties", ACCEPTED)
def test_what_kafka_accepts_is_accepted(properties: dict[str, str]) -> None:
    BrokerConfig(CLUSTER | properties)


VALUES_OF_4 = [
    {"group.coordinator.append.linger.ms": "-1"},
    {"group.share.max.size": "1"},
    {"group.share.record.lock.duration.ms": "3600000", "group.share.max.record.lock.duration.ms": "3600000"},
]


@pytest.mark.parametrize("properties", VALUES_OF_4)
def test_what_kafka_4_accepts_for_newer_groups_is_accepted(properties: dict[str, str]) -> None:
    BrokerConfig(CLUSTER | properties)


def test_the_protocols_of_kafka_4_are_accepted_without_zookeeper() -> None:
    BrokerConfig({"group.coordinator.rebalance.protocols": "classic,consumer,share,streams"})


def test_the_operator_does_not_read_the_prefix_that_clients_get() -> None:
    with pytest.raises(ConfigError, match=r"^broker\.id must be greater"):
        BrokerConfig({"broker.id": "1001"})


@pytest.mark.parametrize("properties", [{"process.roles": "broker,controller"}, {"zookeeper.metadata.migration.enable": "true"}])
def test_kraft_is_refused_with_what_to_do(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"asks for KRaft, which this server does not have: remove it"):
        BrokerConfig(properties)


def test_a_cleaner_without_threads_is_refused() -> None:
    with pytest.raises(ConfigError, match="Log cleaner threads should be at least 1"):
        BrokerConfig({"log.cleaner.threads": "0"})
