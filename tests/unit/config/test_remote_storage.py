"""The rules of tiered storage for the keys of a broker, in the words of Apache Kafka."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.remote_storage import AIVEN_REMOTE_STORAGE, LOCAL_TIERED_STORAGE, check_no_topic_is_tiered, check_remote_storage
from ottla.config.topic import TopicConfig

ENABLED = {"remote.log.storage.system.enable": "true", "remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE}
LISTENERS = {"listeners": "A://:0,B://:0", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT", "inter.broker.listener.name": "A"}


@pytest.mark.parametrize(
    "properties",
    [
        {"remote.log.storage.manager.class.name": "com.example.Store"},  # without effect, since the system is off
        {"log.retention.ms": "5", "log.local.retention.ms": "6"},  # the same
        {**ENABLED, "log.retention.ms": "-1", "log.local.retention.ms": "-1"},
        ENABLED,
        {**ENABLED, "remote.log.storage.manager.class.name": AIVEN_REMOTE_STORAGE, "remote.log.storage.manager.class.path": "/opt/aiven/*"},
        {**ENABLED, **LISTENERS, "remote.log.metadata.manager.listener.name": "B"},
    ],
)
def test_a_broker_may_have_a_store_that_is_built_in(properties: dict[str, str]) -> None:
    check_remote_storage(BrokerConfig(properties))


@pytest.mark.parametrize(
    ("properties", "line"),
    [
        (
            {"remote.log.storage.system.enable": "true"},
            "Invalid value null for configuration remote.log.storage.manager.class.name: Value must be the class of a "
            f"store that this broker has: {LOCAL_TIERED_STORAGE},{AIVEN_REMOTE_STORAGE}",
        ),
        (
            {**ENABLED, "remote.log.storage.manager.class.name": "com.example.Store"},
            "Invalid value com.example.Store for configuration remote.log.storage.manager.class.name: Value must be the class of a "
            f"store that this broker has: {LOCAL_TIERED_STORAGE},{AIVEN_REMOTE_STORAGE}",
        ),
        (
            {**ENABLED, "remote.log.metadata.manager.class.name": "com.example.Metadata"},
            "Invalid value com.example.Metadata for configuration remote.log.metadata.manager.class.name: Value must be "
            "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        ),
        (
            {**ENABLED, **LISTENERS, "remote.log.metadata.manager.listener.name": "X"},
            "Invalid value X for configuration remote.log.metadata.manager.listener.name: Should be set as a listener name within valid "
            "broker listener name list: A,B",
        ),
        (
            {**ENABLED, "log.retention.hours": "1", "log.local.retention.ms": "3600001"},
            "Invalid value 3600001 for configuration local.retention.ms: Value must not be more than retention.ms property value: 3600000",
        ),
        (
            {**ENABLED, "log.local.retention.ms": "-1"},
            "Invalid value -1 for configuration local.retention.ms: Value must not be -1 as retention.ms value is set as 604800000.",
        ),
        (
            {**ENABLED, "log.retention.bytes": "1000", "log.local.retention.bytes": "2000"},
            "Invalid value 2000 for configuration local.retention.bytes: Value must not be more than retention.bytes property value: 1000",
        ),
        (
            {**ENABLED, "rlmm.config.remote.log.metadata.topic.num.partitions": "0"},
            "Invalid value 0 for configuration rlmm.config.remote.log.metadata.topic.num.partitions: Value must be at least 1",
        ),
    ],
)
def test_wrong_keys_end_the_start(properties: dict[str, str], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_remote_storage(BrokerConfig(properties))
    assert str(refused.value) == line


def test_a_broker_without_remote_storage_does_not_start_with_a_tiered_topic() -> None:
    topics = [{"retention.ms": "5"}, {"remote.storage.enable": "true"}]
    check_no_topic_is_tiered(BrokerConfig(ENABLED), topics)
    check_no_topic_is_tiered(BrokerConfig(), [{"remote.storage.enable": "false"}])
    with pytest.raises(ConfigError) as refused:
        check_no_topic_is_tiered(BrokerConfig(), topics)
    assert str(refused.value) == (
        "You have to delete all topics with the property remote.storage.enable=true before disabling tiered storage cluster-wide"
    )


@pytest.mark.parametrize(
    ("properties", "overrides", "has_it"),
    [
        (ENABLED, {"remote.storage.enable": "true"}, True),
        (ENABLED, {}, False),
        ({}, {"remote.storage.enable": "true"}, False),
        (ENABLED, {"remote.storage.enable": "true", "cleanup.policy": "compact,delete"}, False),
    ],
)
def test_a_topic_has_remote_storage_if_broker_and_topic_enable_it(
    properties: dict[str, str], overrides: dict[str, str], has_it: bool
) -> None:
    assert TopicConfig(overrides, BrokerConfig(properties)).has_remote_storage == has_it
