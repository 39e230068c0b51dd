"""Holds the configuration of share groups: the keys of the broker, and those of single groups, within the bounds of the broker."""

from __future__ import annotations

from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.config.keys.groups_next import (
    GROUP_SHARE_DELIVERY_COUNT_LIMIT,
    GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
    GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
    GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
    GROUP_SHARE_RECORD_LOCK_DURATION_MS,
)
from ottla.config.keys.shares import (
    GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT,
    GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,
    GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT,
    GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
)
from ottla.config.resources import GroupConfigs, no_group_config, within
from ottla.config.share_offset_reset import LATEST
from ottla.coordination.shares.partition import ShareRules

RECORD_LOCK_DURATION: Final = "share.record.lock.duration.ms"
DELIVERY_COUNT_LIMIT: Final = "share.delivery.count.limit"
PARTITION_MAX_RECORD_LOCKS: Final = "share.partition.max.record.locks"
RENEW_ACKNOWLEDGE: Final = "share.renew.acknowledge.enable"
ISOLATION_LEVEL: Final = "share.isolation.level"
AUTO_OFFSET_RESET: Final = "share.auto.offset.reset"

READ_COMMITTED: Final = "read_committed"


class ShareSettings:
    """See the module."""

    __slots__ = ("_config", "_of_group")

    def __init__(self, config: BrokerConfig, of_group: GroupConfigs = no_group_config) -> None:
        self._config = config
        self._of_group = of_group

    def rules_of(self, group_id: str) -> ShareRules:
        """The rules for the share partitions of a group."""
        config = self._config
        of = self._of_group(group_id)
        return ShareRules(
            within(
                of.get(RECORD_LOCK_DURATION),
                config[GROUP_SHARE_RECORD_LOCK_DURATION_MS],
                config[GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS],
                config[GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS],
            ),
            within(
                of.get(DELIVERY_COUNT_LIMIT),
                config[GROUP_SHARE_DELIVERY_COUNT_LIMIT],
                config[GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT],
                config[GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT],
            ),
            within(
                of.get(PARTITION_MAX_RECORD_LOCKS),
                config[GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS],
                config[GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS],
                config[GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS],
            ),
            of.get(RENEW_ACKNOWLEDGE, "true") == "true",
        )

    def reads_committed(self, group_id: str) -> bool:
        """Whether the group gets no records of open and aborted transactions."""
        return self._of_group(group_id).get(ISOLATION_LEVEL) == READ_COMMITTED

    def offset_reset(self, group_id: str) -> str:
        """Where a share partition of the group begins: `latest`, `earliest`, or `by_duration:` and an ISO 8601 duration."""
        return self._of_group(group_id).get(AUTO_OFFSET_RESET, LATEST)
