"""The keys of the metadata topic have the names, defaults and bounds of Apache Kafka."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.remote_metadata import metadata_settings

PREFIX = "rlmm.config.remote.log.metadata."
ZOOKEEPER = {"zookeeper.connect": "localhost:2181"}


def test_the_defaults_are_those_of_apache_kafka() -> None:
    settings = metadata_settings(BrokerConfig(ZOOKEEPER))
    assert settings == (50, 3, -1, 120_000, 100, "PLAINTEXT", ())


def test_a_broker_that_may_be_alone_has_one_replica() -> None:
    assert metadata_settings(BrokerConfig()).replication_factor == 1
    assert metadata_settings(BrokerConfig({f"{PREFIX}topic.replication.factor": "3"})).replication_factor == 3


def test_settings_have_the_prefix_of_the_configuration_and_clients_of_java_are_left_out() -> None:
    given = {
        "remote.log.metadata.manager.impl.prefix": "mine.",
        "mine.remote.log.metadata.topic.num.partitions": "7",
        "mine.remote.log.metadata.topic.retention.ms": "1000",
        "mine.remote.log.metadata.consumer.fetch.max.bytes": "1",
        f"{PREFIX}topic.num.partitions": "9",
    }
    config = BrokerConfig(ZOOKEEPER | given)
    settings = metadata_settings(config)
    assert (settings.partitions, settings.retention_ms) == (7, 1000)
    assert settings.ignored == ("remote.log.metadata.consumer.fetch.max.bytes",)
    assert config.unknown == [f"{PREFIX}topic.num.partitions"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topic.num.partitions", "0"),
        ("topic.replication.factor", "0"),
        ("topic.retention.ms", "0"),
        ("topic.retention.ms", "-2"),
        ("consume.wait.ms", "-1"),
        ("initialization.retry.interval.ms", "x"),
        ("initialization.retry.max.timeout.ms", "-1"),
    ],
)
def test_values_out_of_bounds_end_the_start(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=PREFIX + name):
        metadata_settings(BrokerConfig({PREFIX + name: text}))


def test_the_listener_is_the_one_between_brokers_unless_another_is_named() -> None:
    listeners = {
        "listeners": "A://:1,B://:2",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "inter.broker.listener.name": "A",
    }
    assert metadata_settings(BrokerConfig(listeners)).listener_name == "A"
    assert metadata_settings(BrokerConfig(listeners | {"remote.log.metadata.manager.listener.name": "B"})).listener_name == "B"
