"""Makes a broker do now what it would do some day, for its test: roll segments, compact logs, end sessions and locks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.storage.cleaner.choice import is_compacted
from ottla.storage.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from ottla.broker.server import Broker


class AtWill:
    """The commands. They raise ValueError when the broker does not have the topic, group or member."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def roll(self, topic: str) -> None:
        """Begin a segment in each log of the topic whose active segment has records. May raise OSError."""
        for log in self._logs(topic):
            if log.segments.active.size:
                log.roll()
                log.rolls.finish()

    async def compact(self, topic: str) -> None:
        """Roll the topic's logs, and clean them up to their ends. May raise OSError."""
        cleaner = self._broker.log_manager.cleaner
        logs = self._logs(topic)
        if not all(is_compacted(log) for log in logs):
            raise ValueError(f"topic {topic} is not compacted: its cleanup.policy has no compact")
        self.roll(topic)
        for log in logs:
            is_clean = asyncio.Event()
            cleaner.demand(log.topic_partition, is_clean.set)
            await is_clean.wait()

    def expire(self, group: str, member: str) -> None:
        """End the session of a member of a group, as its timeout would."""
        if not self._broker.services.coordinators.groups.expire_member(group, member):
            raise ValueError(f"this broker coordinates no group {group} with a member {member}")

    def end_locks(self, group: str) -> None:
        """End the locks of a share group, as their time would: its records are available again, or archived."""
        if not self._broker.services.coordinators.share_leader.led.end_locks(group):
            raise ValueError(f"this broker has no locked records of a share group {group}")

    def _logs(self, topic: str) -> Sequence[PartitionLog]:
        found = [log for log in self._broker.log_manager.all_logs() if log.topic_partition.topic == topic]
        if not found:
            raise ValueError(f"this broker has no partition of topic {topic}")
        return found
