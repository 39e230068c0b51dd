"""Declares the calls by which the replica manager controls fetching from leaders. `fetcher_pool` implements them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from ottla.pauses import pause
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.leader.partition import Partition

TOGETHER = 20
"""Partitions passed to fetchers between two pauses: 5 µs each."""


class Followers(Protocol):
    """Keeps followed replicas up to date with their leaders. Called on the event loop, never from within a fetch."""

    def follow(self, partitions: Iterable[Partition], *, more_to_come: bool = False) -> None:
        """Fetch the partitions from `leader_id` in `leader_epoch` from now on, wherever they were fetched from before.

        With `more_to_come`, no new request is sent until a call without it.
        """

    def unfollow(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching the partitions: nothing is appended to them after the return."""


class NoFollowers:
    """For a broker without other brokers."""

    def follow(self, partitions: Iterable[Partition], *, more_to_come: bool = False) -> None:
        """See Followers."""

    def unfollow(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """See Followers."""


async def follow_all(to_follow: dict[TopicPartition, Partition], followers: Followers) -> None:
    """Have the partitions fetched, with pauses. Callers may remove partitions from `to_follow` meanwhile."""
    is_unfinished = False
    try:
        while len(to_follow) > TOGETHER:
            is_unfinished = True
            followers.follow([to_follow.pop(each) for each in list(islice(to_follow, TOGETHER))], more_to_come=True)
            await pause()
    finally:  # after a cancellation the fetchers must not continue to wait for more
        if to_follow or is_unfinished:
            rest = list(to_follow.values())
            to_follow.clear()
            followers.follow(rest)
