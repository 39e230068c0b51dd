"""Reads the configuration of consumer groups: the keys of the broker, and those of single groups, within the bounds of the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.keys.groups import GROUP_MAX_SIZE
from ottla.config.keys.groups_4 import (
    GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS,
)
from ottla.config.keys.groups_next import (
    GROUP_CONSUMER_ASSIGNORS,
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MAX_SIZE,
    GROUP_CONSUMER_MIGRATION_POLICY,
    GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
)
from ottla.config.keys.own import OTTLA_GROUP_CONSUMER_HEARTBEATS_PER_SECOND
from ottla.config.resources import GroupConfigs, within
from ottla.coordination.groups.consumer.assignors import ASSIGNORS
from ottla.coordination.groups.consumer.settings import ConsumerSettings, GroupTimes

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"

_CLASS_OF: Final = "org.apache.kafka.coordinator.group.assignor."
ASSIGNORS_OF_CLASSES: Final = {f"{_CLASS_OF}UniformAssignor": "uniform", f"{_CLASS_OF}RangeAssignor": "range"}
"""The names of Kafka's classes, which may stand in group.consumer.assignors."""


def consumer_settings(config: BrokerConfig, of_group: GroupConfigs) -> ConsumerSettings:
    """The settings of all groups. Raises ConfigError for an assignor that this broker does not have."""
    assignors = tuple([ASSIGNORS_OF_CLASSES.get(name, name) for name in config[GROUP_CONSUMER_ASSIGNORS]])
    unknown = [name for name in assignors if name not in ASSIGNORS]
    if unknown or not assignors:
        raise ConfigError(f"{GROUP_CONSUMER_ASSIGNORS.name}: {', '.join(unknown) or 'empty'}; the assignors are {', '.join(ASSIGNORS)}")
    policy = config[GROUP_CONSUMER_MIGRATION_POLICY].lower()

    of_broker = _times(config, {})  # none of these keys can change while the broker runs

    def times_of(group_id: str) -> GroupTimes:
        of = of_group(group_id)
        return _times(config, of) if of else of_broker

    return ConsumerSettings(
        times_of,
        assignors,
        config[GROUP_CONSUMER_MAX_SIZE],
        config[GROUP_MAX_SIZE],
        config[GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS],
        config[OTTLA_GROUP_CONSUMER_HEARTBEATS_PER_SECOND],
        may_upgrade=policy in ("upgrade", "bidirectional"),
        may_downgrade=policy in ("downgrade", "bidirectional"),
    )


def _times(config: BrokerConfig, of: Mapping[str, str]) -> GroupTimes:
    return GroupTimes(
        within(
            of.get(SESSION_TIMEOUT),
            config[GROUP_CONSUMER_SESSION_TIMEOUT_MS],
            config[GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS],
            config[GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS],
        ),
        within(
            of.get(HEARTBEAT_INTERVAL),
            config[GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS],
            config[GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS],
            config[GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS],
        ),
        within(
            of.get(ASSIGNMENT_INTERVAL),
            config[GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS],
            config[GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS],
            config[GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS],
        ),
        HEARTBEAT_INTERVAL not in of and config[GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS] == GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS.default,
    )
