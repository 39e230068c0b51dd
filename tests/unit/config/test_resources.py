"""The configurations of groups and of client metrics: what they may be, and how they are described."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError, ResourceConfigError
from ottla.config.resources import describe_client_metrics, describe_group, matches_of, validate_client_metrics, validate_group
from ottla.config.schema.describe import ConfigSource

BROKER = BrokerConfig({"group.consumer.min.session.timeout.ms": "10000", "group.consumer.session.timeout.ms": "20000"})


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"no.such.key": "1"}, "Unknown group config name: no.such.key"),
        ({"consumer.session.timeout.ms": "x"}, "Invalid value x for configuration consumer.session.timeout.ms: Not a number of type INT"),
        ({"consumer.session.timeout.ms": "9999"}, "consumer.session.timeout.ms must be in the range 10000 to 60000 inclusive."),
        ({"share.delivery.count.limit": "11"}, "share.delivery.count.limit must be in the range 2 to 10 inclusive."),
        (
            {"consumer.session.timeout.ms": "15000", "consumer.heartbeat.interval.ms": "15000"},
            "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms",
        ),
        (
            {"share.isolation.level": "dirty"},
            "Invalid value dirty for configuration share.isolation.level: String must be one of: read_committed, read_uncommitted",
        ),
        (
            {"share.auto.offset.reset": "by_duration:1h"},
            "Invalid value by_duration:1h for configuration share.auto.offset.reset: "
            "Invalid value `by_duration:1h` for configuration share.auto.offset.reset. "
            "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        ),
        (
            {"share.auto.offset.reset": "by_duration:-PT1H"},
            "Invalid value by_duration:-PT1H for configuration share.auto.offset.reset: "
            "Invalid value `by_duration:-PT1H` for configuration share.auto.offset.reset. "
            "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        ),
        (
            {"share.auto.offset.reset": "none"},
            "Invalid value none for configuration share.auto.offset.reset: "
            "Invalid value `none` for configuration share.auto.offset.reset. "
            "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        ),
    ],
)
def test_a_group_cannot_have_what_its_broker_does_not_allow(overrides: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_group(overrides, BROKER)
    assert str(refused.value) == reason


def test_a_group_may_have_any_value_within_the_bounds() -> None:
    validate_group({"consumer.session.timeout.ms": "10000", "consumer.heartbeat.interval.ms": "5000"}, BROKER)
    validate_group({"share.auto.offset.reset": "by_duration:PT1H", "share.renew.acknowledge.enable": "false"}, BROKER)


def test_a_value_of_a_group_comes_before_that_of_its_broker() -> None:
    (own,) = describe_group({"consumer.session.timeout.ms": "30000"}, BROKER, ["consumer.session.timeout.ms", "no.such.key"])
    assert (own.value, own.source) == ("30000", ConfigSource.DYNAMIC_GROUP_CONFIG)
    assert [(each.name, each.value, each.source.name) for each in own.synonyms] == [
        ("consumer.session.timeout.ms", "30000", "DYNAMIC_GROUP_CONFIG"),
        ("group.consumer.session.timeout.ms", "20000", "STATIC_BROKER_CONFIG"),
        ("group.consumer.session.timeout.ms", "45000", "DEFAULT_CONFIG"),
    ]
    (of_broker,) = describe_group({}, BROKER, ["consumer.session.timeout.ms"])
    assert (of_broker.value, of_broker.source) == ("20000", ConfigSource.STATIC_BROKER_CONFIG)


@pytest.mark.parametrize(
    ("overrides", "error", "reason"),
    [
        ({"no.such.key": "1"}, ResourceConfigError, "Unknown client metrics configuration: no.such.key"),
        ({"interval.ms": "99"}, ResourceConfigError, "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
        ({"interval.ms": "x"}, ConfigError, "Invalid value x for configuration interval.ms: Not a number of type INT"),
        ({"match": "client_id"}, ConfigError, "Illegal client matching pattern: client_id"),
        ({"match": "client_id=a,other=b"}, ConfigError, "Illegal client matching pattern: other=b"),
        ({"match": "client_id=["}, ConfigError, "Illegal client matching pattern: client_id=["),
    ],
)
def test_client_metrics_cannot_be_what_no_client_has(overrides: dict[str, str], error: type[ConfigError], reason: str) -> None:
    with pytest.raises(error) as refused:
        validate_client_metrics(overrides, lambda pattern: "[" not in pattern)
    assert str(refused.value) == reason


def test_the_parts_of_a_match_have_patterns() -> None:
    overrides = {"interval.ms": "100", "metrics": "a.,b.", "match": "client_id=a=b, client_source_port = 1.*"}
    validate_client_metrics(overrides, lambda pattern: True)
    assert [pattern for _, pattern in matches_of(overrides)] == ["a=b", "1.*"]
    assert matches_of({}) == []


def test_client_metrics_that_do_not_exist_have_the_defaults() -> None:
    entries = {entry.name: (entry.value, entry.source.name, entry.synonyms) for entry in describe_client_metrics({}, None)}
    assert entries == {
        "interval.ms": ("300000", "DEFAULT_CONFIG", ()),
        "match": ("", "DEFAULT_CONFIG", ()),
        "metrics": ("", "DEFAULT_CONFIG", ()),
    }
