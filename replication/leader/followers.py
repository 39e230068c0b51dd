"""What the replica manager tells those who fetch from leaders. `fetcher_pool` implements it; a broker that is alone needs nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from replication.leader.partition import Partition
from storage.disk.topic_partition import TopicPartition

FOLLOWED_PER_TURN = 300
"""Partitions that are handed to fetchers in a turn of the event loop: 5 µs each."""


class Followers(Protocol):
    """Keeps the replicas that follow here at the end of their leaders' logs. Called on the event loop, never from within a fetch."""

    def follow(self, partitions: Iterable[Partition], *, more_to_come: bool = False) -> None:
        """Fetch these from `leader_id` in `leader_epoch` from now on, wherever they were fetched from before.

        Nothing is asked anew while there is `more_to_come`, until a call without.
        """

    def unfollow(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Fetch these no longer: nothing is appended to them after this returns."""


class NoFollowers:
    """There are no other brokers."""

    def follow(self, partitions: Iterable[Partition], *, more_to_come: bool = False) -> None:
        """See Followers."""

    def unfollow(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """See Followers."""


async def hand_over(to_follow: dict[TopicPartition, Partition], followers: Followers) -> None:
    """Let all of these be fetched, some in each turn of the loop; who must not be any more is taken out of `to_follow` meanwhile."""
    is_unfinished = False
    try:
        while len(to_follow) > FOLLOWED_PER_TURN:
            is_unfinished = True
            followers.follow([to_follow.pop(each) for each in list(islice(to_follow, FOLLOWED_PER_TURN))], more_to_come=True)
            await asyncio.sleep(0)
    finally:  # who is cancelled must not leave all fetchers waiting for more
        if to_follow or is_unfinished:
            rest = list(to_follow.values())
            to_follow.clear()
            followers.follow(rest)
