"""Provides a partition that notes when a fetch visits it."""

from typing import ClassVar

from ottla.replication.leader.partition import Partition
from ottla.storage.log.partition_log import PartitionLog


class LookedAt(Partition):
    """`indexes`: those of the partitions that were looked at, as often as they were."""

    indexes: ClassVar[list[int]] = []

    def check_leader(self, asked_epoch: int = -1, or_follower: bool = False) -> PartitionLog:
        self.indexes.append(self.topic_partition.partition)
        return super().check_leader(asked_epoch, or_follower)
