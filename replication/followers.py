"""What the replica manager tells those who fetch from leaders. `fetcher_pool` implements it; a broker that is alone needs nobody."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from replication.partition import Partition
from storage.topic_partition import TopicPartition


class Followers(Protocol):
    """Keeps the replicas that follow here at the end of their leaders' logs. Called on the event loop, never from within a fetch."""

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Fetch these from `leader_id` in `leader_epoch` from now on, wherever they were fetched from before."""

    def unfollow(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Fetch these no longer: nothing is appended to them after this returns."""


class NoFollowers:
    """There are no other brokers."""

    def follow(self, partitions: Iterable[Partition]) -> None:
        """See Followers."""

    def unfollow(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """See Followers."""
