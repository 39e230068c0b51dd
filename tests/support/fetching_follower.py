"""Plays a follower that fetches in a session from the leader of a HandlerBench, and keeps the answers."""

from __future__ import annotations

import asyncio

from ottla.broker.handlers.data.delayed_fetch import MOST_TURNS
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from tests.support.handler_bench import Asking, HandlerBench
from tests.support.replicas import TOPIC_ID, Replicas, state


class Follower:
    """Broker 1, which follows all partitions of broker 0 in a fetch session."""

    def __init__(self, partitions: int = 4) -> None:
        self.bench = HandlerBench()
        self.replicas: Replicas = self.bench.replicas
        self.replicas.say(*(state(index=index, isr=[0, 1], replicas=[0, 1]) for index in range(partitions)))
        self.bench.know(**{f"p{index}": 0 for index in range(partitions)})
        self.session_id = 0
        self.session_epoch = 0
        self.leader_epochs = [0] * partitions
        self.last_epochs = [0] * partitions
        self.fetch(dict.fromkeys(range(partitions), 0), max_wait_ms=0)

    def fetch(self, offsets: dict[int, int], max_wait_ms: int = 500, min_bytes: int = 1, start: int = 0) -> Asking:
        """Ask, and name the partitions of which the offset is another than in the last request."""
        asking = self.bench.ask(self.request(offsets, max_wait_ms, min_bytes, start), ApiKey.FETCH, 17)
        if self.session_epoch == 0:
            answer = asking.response
            assert isinstance(answer, FetchResponse)
            self.session_id = answer.session_id
        self.session_epoch += 1
        return asking

    def request(self, offsets: dict[int, int], max_wait_ms: int = 500, min_bytes: int = 1, start: int = 0) -> FetchRequest:
        """The request that the follower would send."""
        named = [
            FetchPartition(
                partition=index,
                current_leader_epoch=self.leader_epochs[index],
                fetch_offset=offset,
                last_fetched_epoch=self.last_epochs[index] if offset else -1,
                log_start_offset=start,
                partition_max_bytes=1 << 20,
            )
            for index, offset in offsets.items()
        ]
        return FetchRequest(
            replica_state=ReplicaState(replica_id=1, replica_epoch=-1),
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=10 << 20,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=named)] if named else [],
        )


def told(asking: Asking) -> list[tuple[int, int, int, int]]:
    """(partition, error, high watermark, bytes) of what the answer names."""
    return [(each.partition_index, each.error_code, each.high_watermark, len(each.records or b"")) for each in asking.fetched]


async def turns(count: int = MOST_TURNS + 1) -> None:
    """Let the loop turn: an answer to a follower leaves when a turn brings nothing more."""
    for _ in range(count):
        await asyncio.sleep(0)
