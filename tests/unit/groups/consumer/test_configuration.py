"""The configuration of consumer groups: assignors by name or class, and groups with times of their own."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.resources import no_group_config
from ottla.coordination.groups.consumer.configuration import consumer_settings
from ottla.coordination.groups.consumer.heartbeats import interval_ms
from ottla.coordination.groups.consumer.settings import GroupTimes


def test_the_defaults_are_those_of_apache_kafka() -> None:
    settings = consumer_settings(BrokerConfig({}), no_group_config)
    assert settings.times_of("g") == GroupTimes(45_000, 5_000, 1_000, is_interval_default=True)
    assert (settings.assignors, settings.max_size, settings.regex_refresh_interval_ms) == (("uniform", "range"), 2**31 - 1, 600_000)
    assert settings.may_upgrade
    assert settings.may_downgrade


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [("disabled", False, False), ("UPGRADE", True, False), ("Downgrade", False, True), ("bidirectional", True, True)],
)
def test_the_policy_says_which_way_groups_may_go(policy: str, up: bool, down: bool) -> None:
    settings = consumer_settings(BrokerConfig({"group.consumer.migration.policy": policy}), no_group_config)
    assert (settings.may_upgrade, settings.may_downgrade) == (up, down)


def test_a_group_of_a_cluster_on_zookeeper_keeps_its_protocol() -> None:
    settings = consumer_settings(BrokerConfig({"zookeeper.connect": "z:2181"}), no_group_config)
    assert (settings.may_upgrade, settings.may_downgrade) == (False, False)


def test_the_values_of_a_group_are_kept_within_the_bounds_of_the_broker() -> None:
    of_group = {
        "short": {"consumer.session.timeout.ms": "1", "consumer.heartbeat.interval.ms": "1", "consumer.assignment.interval.ms": "0"},
        "long": {
            "consumer.session.timeout.ms": "60000",
            "consumer.heartbeat.interval.ms": "99000",
            "consumer.assignment.interval.ms": "99000",
        },
    }
    settings = consumer_settings(BrokerConfig({}), lambda group_id: of_group.get(group_id, {}))
    assert settings.times_of("short") == GroupTimes(45_000, 5_000, 0)
    assert settings.times_of("long") == GroupTimes(60_000, 15_000, 15_000)


def test_assignors_are_named_or_are_kafkas_classes() -> None:
    named = BrokerConfig({"group.consumer.assignors": "range"})
    assert consumer_settings(named, no_group_config).assignors == ("range",)
    for unknown in ("com.example.Mine", "uniform,sticky"):
        with pytest.raises(ConfigError, match="the assignors are uniform, range"):
            consumer_settings(BrokerConfig({"group.consumer.assignors": unknown}), no_group_config)


@pytest.mark.parametrize(("members", "interval"), [(0, 500), (10, 500), (500, 500), (1_000, 1_000), (5_000, 5_000), (100_000, 5_000)])
def test_few_members_are_asked_for_heartbeats_more_often(members: int, interval: int) -> None:
    settings = consumer_settings(BrokerConfig({}), no_group_config)
    assert interval_ms(settings.times_of("g"), settings, members) == interval


def test_an_interval_that_is_configured_is_not_shortened() -> None:
    of_group = consumer_settings(BrokerConfig({}), lambda group_id: {"consumer.heartbeat.interval.ms": "5000"})
    of_broker = consumer_settings(BrokerConfig({"group.consumer.heartbeat.interval.ms": "6000"}), no_group_config)
    never = consumer_settings(BrokerConfig({"ottla.group.consumer.heartbeats.per.second": "0"}), no_group_config)
    assert [interval_ms(each.times_of("g"), each, 1) for each in (of_group, of_broker, never)] == [5_000, 6_000, 5_000]
