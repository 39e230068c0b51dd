"""Runs thousands of members of groups of the new protocol in one process, which send frames: one connection for each.

For tests and benchmarks of the coordinator. A member behaves as a client. It gives up partitions at once. When its partitions have changed,
it sends the next heartbeat without delay, with all of them; otherwise after the time that the last answer told.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.header import RequestHeader, ResponseHeader
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api

Owned: TypeAlias = frozenset[tuple[bytes, int]]
VERSION: Final = 1
CONNECTING_AT_ONCE: Final = 40
"""Fewer than the backlog of a listener, 50."""
_NOT_YET: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_AGAIN_MS: Final = 50
_FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})

_NOTHING: Final[Owned] = frozenset()


class Connection:
    """Sends one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, request: Message, version: int) -> Any:
        """The response."""
        assert request.SCHEMA.api_key is not None
        types = api(ApiKey(request.SCHEMA.api_key))
        header = RequestHeader(request_api_key=types.key, request_api_version=version, correlation_id=1, client_id="crowd")
        frame = header.encode(types.request_header_version(version)) + request.encode(version)
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        answer = await self._reader.readexactly(length)
        _, offset = ResponseHeader.decode(answer, types.response_header_version(version), 0)
        return types.response.decode(answer, version, offset)[0]

    def close(self) -> None:
        self._writer.close()


class CrowdConsumer:
    """One member. `on_change` is called when its epoch or its partitions have changed."""

    def __init__(self, group: str, member_id: str, topic: str, connection: Connection, on_change: Callable[[CrowdConsumer], None]) -> None:
        self.group = group
        self.member_id = member_id
        self.epoch = 0
        self.owned = _NOTHING
        self.interval_ms = 0
        """The time to its next heartbeat, as the coordinator told it; 0 for none."""
        self.beats = 0
        self.lock = asyncio.Lock()
        """Held while a heartbeat is in flight."""
        self.refusal = ErrorCode.NONE
        """The error that ended its membership."""
        self._told: Owned | None = None
        self._topic = topic
        self._connection = connection
        self._on_change = on_change

    def request(self) -> ConsumerGroupHeartbeatRequest:
        """Its next heartbeat, which says what has changed."""
        beat = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=self.epoch)
        if not self.epoch:
            beat.rebalance_timeout_ms, beat.subscribed_topic_names = 60_000, [self._topic]
        if self.owned != self._told:
            by_topic: dict[bytes, list[int]] = {}
            for topic_id, index in self.owned:
                by_topic.setdefault(topic_id, []).append(index)
            beat.topic_partitions = [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in by_topic.items()
            ]
        return beat

    async def beat(self) -> None:
        """Send a heartbeat, and do as the answer says."""
        said = self.owned
        async with self.lock:
            answer: ConsumerGroupHeartbeatResponse = await self._connection.ask(self.request(), VERSION)
        self.beats += 1
        error = answer.error_code
        if error in _NOT_YET:
            self._told, self.interval_ms = None, _AGAIN_MS
            return
        if error in _FENCED:
            self.epoch, self.owned, self._told, self.interval_ms = 0, _NOTHING, None, 0
            self._on_change(self)
            return
        if error:
            self.refusal = ErrorCode.of(error)
            return
        before = self.epoch, self.owned
        self._told, self.epoch, self.interval_ms = said, answer.member_epoch, answer.heartbeat_interval_ms
        if answer.assignment is not None:
            self.owned = frozenset((each.topic_id, index) for each in answer.assignment.topic_partitions for index in each.partitions)
        if self.owned != said:
            self.interval_ms = 0
        if (self.epoch, self.owned) != before:
            self._on_change(self)

    async def live(self) -> None:
        """Send heartbeats until it is refused."""
        while not self.refusal:
            await self.beat()
            if not self.refusal:
                await asyncio.sleep(self.interval_ms / 1000)

    async def leave(self) -> None:
        """Leave the group; no heartbeat may be in flight."""
        goodbye = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=-1)
        answer = await self._connection.ask(goodbye, VERSION)
        while answer.error_code in _NOT_YET:
            await asyncio.sleep(_AGAIN_MS / 1000)
            answer = await self._connection.ask(goodbye, VERSION)
        assert not answer.error_code, ErrorCode.of(answer.error_code).name
        self.owned = _NOTHING
        self._on_change(self)

    def close(self) -> None:
        self._connection.close()


class ConsumerCrowd:
    """The members of a group that shares the partitions of one topic, and how long partitions had no owner."""

    def __init__(self, partitions: int) -> None:
        self.members: list[CrowdConsumer] = []
        self.unowned_s = 0.0
        """The times without an owner of all partitions together, since the last `begin_count`."""
        self._partitions = partitions
        self._lives: dict[CrowdConsumer, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._owned: dict[CrowdConsumer, int] = {}
        self._clock = asyncio.get_running_loop().time
        self._counted_s = self._clock()

    @classmethod
    async def of(cls, port: int, group: str, topic: str, partitions: int, count: int) -> ConsumerCrowd:
        """So many connected members, which have not joined yet."""
        crowd = cls(partitions)
        gate = asyncio.Semaphore(CONNECTING_AT_ONCE)

        async def connect(number: int) -> CrowdConsumer:
            async with gate:
                connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
                # The kernel connects without the broker; it is accepted when it answers.
                await connection.ask(ApiVersionsRequest(), 0)
            return CrowdConsumer(group, f"{group}-{number:016}", topic, connection, crowd._on_change)

        crowd.members = list(await asyncio.gather(*map(connect, range(count))))
        return crowd

    def _on_change(self, member: CrowdConsumer) -> None:
        self._count()
        self._owned[member] = len(member.owned)
        self._changed.set()

    def _count(self) -> None:
        now = self._clock()
        self.unowned_s += (self._partitions - sum(self._owned.values())) * (now - self._counted_s)
        self._counted_s = now

    def begin_count(self) -> None:
        """Count the times without an owner from now on."""
        self._counted_s, self.unowned_s = self._clock(), 0.0

    def live(self) -> None:
        """All members join, and live from now on."""
        for member in self.members:
            self._lives[member] = asyncio.ensure_future(member.live())

    @property
    def is_stable(self) -> bool:
        """Whether all members are in one epoch and share all partitions equally."""
        epochs = {member.epoch for member in self.members}
        shares = [len(member.owned) for member in self.members]
        return len(epochs) == 1 and 0 not in epochs and sum(shares) == self._partitions and max(shares) - min(shares) <= 1

    async def until_stable(self, seconds: float) -> None:
        """Raises TimeoutError, and what a member has raised."""
        async with asyncio.timeout(seconds):
            while not self.is_stable:
                self._changed.clear()
                for life in self._lives.values():
                    if life.done():
                        life.result()
                await self._changed.wait()
        self._count()

    async def lose_one(self) -> None:
        """A member leaves between two of its heartbeats."""
        member = self.members.pop()
        life = self._lives.pop(member)
        async with member.lock:
            life.cancel()
            await member.leave()
        member.close()

    def disperse(self) -> None:
        """End all without a word."""
        for life in self._lives.values():
            life.cancel()
        for member in self.members:
            member.close()
