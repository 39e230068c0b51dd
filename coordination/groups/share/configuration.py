"""Reads the configuration of the members of share groups: keys of the broker, and of single groups within the bounds of the broker."""

from __future__ import annotations

from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.config.keys.groups_next import (
    GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_MAX_SESSION_TIMEOUT_MS,
    GROUP_SHARE_MAX_SIZE,
    GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_MIN_SESSION_TIMEOUT_MS,
    GROUP_SHARE_SESSION_TIMEOUT_MS,
)
from ottla.config.keys.shares import (
    GROUP_SHARE_ASSIGNMENT_INTERVAL_MS,
    GROUP_SHARE_INITIALIZE_RETRY_INTERVAL_MS,
    GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS,
    GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS,
)
from ottla.config.resources import GroupConfigs, within
from ottla.coordination.groups.consumer.assignors import SIMPLE
from ottla.coordination.groups.consumer.settings import ConsumerSettings, GroupTimes

SESSION_TIMEOUT: Final = "share.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "share.assignment.interval.ms"


def share_settings(config: BrokerConfig, of_group: GroupConfigs) -> ConsumerSettings:
    """The settings of all share groups."""

    def times_of(group_id: str) -> GroupTimes:
        of = of_group(group_id)
        return GroupTimes(
            within(
                of.get(SESSION_TIMEOUT),
                config[GROUP_SHARE_SESSION_TIMEOUT_MS],
                config[GROUP_SHARE_MIN_SESSION_TIMEOUT_MS],
                config[GROUP_SHARE_MAX_SESSION_TIMEOUT_MS],
            ),
            within(
                of.get(HEARTBEAT_INTERVAL),
                config[GROUP_SHARE_HEARTBEAT_INTERVAL_MS],
                config[GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS],
                config[GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS],
            ),
            within(
                of.get(ASSIGNMENT_INTERVAL),
                config[GROUP_SHARE_ASSIGNMENT_INTERVAL_MS],
                config[GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS],
                config[GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS],
            ),
        )

    return ConsumerSettings(
        times_of,
        (SIMPLE,),
        config[GROUP_SHARE_MAX_SIZE],
        initialize_retry_ms=config[GROUP_SHARE_INITIALIZE_RETRY_INTERVAL_MS],
        may_upgrade=False,
        may_downgrade=False,
    )
