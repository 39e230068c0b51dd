"""Finds where share groups are in partitions, and how many records they still have before them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.coordination.shares.state.coordinator import StateResult
from ottla.coordination.shares.state.stored_state import NO_OFFSET, SharePartitionKey
from ottla.coordination.shares.state_access import AskBroker, StateAccess
from ottla.coordination.shares.state_questions import SummarizeState
from ottla.pauses import pause
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.schema.wire import UnsupportedField, UnsupportedVersion
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.cluster import MetadataCache

logger = logging.getLogger(__name__)

LATEST: Final = -1
LIST_OFFSETS_VERSION: Final = 7
NO_LAG: Final = -1


class Position(NamedTuple):
    """Where a share group is in a partition. `start_offset` is -1 before the first member has fetched, `lag` if it is not known."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    start_offset: int = NO_OFFSET
    leader_epoch: int = 0
    lag: int = NO_LAG


class Positions:
    """See the module."""

    __slots__ = ("_access", "_ask", "_cluster")

    def __init__(self, access: StateAccess, ask: AskBroker, cluster: MetadataCache) -> None:
        self._access = access
        self._ask = ask
        self._cluster = cluster

    async def find(self, keys: Mapping[TopicPartition, SharePartitionKey]) -> dict[TopicPartition, Position]:
        """The positions in these partitions."""
        asked: dict[TopicPartition, asyncio.Future[StateResult]] = {}
        for place, key in keys.items():  # all at once, so that they share requests
            asked[place] = self._state(key)
            await pause()
        states = {place: await asked.pop(place) for place in keys}
        started = [place for place, state in states.items() if not state.error and state.start_offset != NO_OFFSET]
        ends = await self._ends(started)
        return {place: _position(state, ends.get(place)) for place, state in states.items()}

    def _state(self, key: SharePartitionKey) -> asyncio.Future[StateResult]:
        found: asyncio.Future[StateResult] = asyncio.get_running_loop().create_future()

        def on_result(result: StateResult) -> None:
            if not found.done():  # the client may be gone
                found.set_result(result)

        self._access.ask(SummarizeState(key), on_result)
        return found

    async def _ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offsets, as a consumer sees them; without those that their leaders do not tell."""
        by_leader: dict[int, dict[str, list[int]]] = {}
        for name, index in places:
            leader_id, _ = self._cluster.leader_of(name, index)
            by_leader.setdefault(leader_id, {}).setdefault(name, []).append(index)
        ends: dict[TopicPartition, int] = {}
        asking = [self._ends_at(leader_id, topics) for leader_id, topics in by_leader.items() if leader_id in self._cluster.brokers]
        for found in await asyncio.gather(*asking):  # in tasks, which the time limits of requests need
            ends |= found
        return ends

    async def _ends_at(self, leader_id: int, topics: Mapping[str, list[int]]) -> dict[TopicPartition, int]:
        asked = [
            ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes])
            for name, indexes in topics.items()
        ]
        request = ListOffsetsRequest(replica_id=-1, topics=asked)
        try:
            response = await self._ask(leader_id, ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request)
        except (OSError, UnsupportedVersion, UnsupportedField) as error:
            logger.info("broker %d does not tell the ends of partitions: %s", leader_id, error)
            return {}
        return {
            TopicPartition(topic.name, each.partition_index): each.offset
            for topic in response.topics
            for each in topic.partitions
            if not each.error_code
        }


def _position(state: StateResult, end: int | None) -> Position:
    if state.error:
        return Position(state.error, state.message)
    if state.start_offset == NO_OFFSET:
        return Position()
    lag = NO_LAG if end is None or state.complete_count < 0 else end - state.start_offset - state.complete_count
    return Position(start_offset=state.start_offset, leader_epoch=state.leader_epoch, lag=lag)
