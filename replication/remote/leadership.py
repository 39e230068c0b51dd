"""Fences the work of a leader: nothing may be published or deleted after this broker has learned of a newer leader epoch."""

from __future__ import annotations

from ottla.replication.leader.partition import Partition
from ottla.storage.log.partition_log import PartitionLog


class Deposed(Exception):
    """The broker no longer leads the partition in the epoch in which the work began."""


class Leadership:
    """One leader epoch of a partition on this broker. `has_log_start`: the log starts where the metadata say, see `positions`."""

    __slots__ = ("has_log_start", "leader_epoch", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.has_log_start = False

    def check(self) -> PartitionLog:
        """The partition's log. To be called after every wait. Raises Deposed."""
        partition = self.partition
        if not partition.is_leader or partition.leader_epoch != self.leader_epoch:
            raise Deposed
        return partition.log
