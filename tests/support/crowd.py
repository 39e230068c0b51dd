"""Runs thousands of group members in one process, which send frames: one connection and one group protocol each.

For tests and benchmarks of the coordinator. `Crowd.join` brings an empty group to the stable state with the wanted number of members: each
joins (twice where it gets a member id first), the leader assigns, all sync.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.header import RequestHeader, ResponseHeader
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api

SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
CONNECTING_AT_ONCE = 40
"""Fewer than the backlog of a listener, 50: a connection that does not fit into it is tried again after a second, then two, four, eight."""


def assignment_of(member_id: str) -> bytes:
    """The assignment that a leader of the crowd gives to a member: no partitions, and its id as user data."""
    return struct.pack(">hii", 0, 0, len(member_id)) + member_id.encode()


class CrowdMember:
    """One member and its connection. `generation` and `assignment` are those of the last completed rebalance."""

    def __init__(self, group: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout_ms: int, protocol: str) -> None:
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.assignment = b""
        self._reader = reader
        self._writer = writer
        self._timeout_ms = timeout_ms
        self._protocol = protocol
        self._correlation_id = 0

    async def ask(self, request: Message, version: int) -> Any:
        """The response message."""
        assert request.SCHEMA.api_key is not None
        types = api(ApiKey(request.SCHEMA.api_key))
        self._correlation_id += 1
        header = RequestHeader(
            request_api_key=types.key, request_api_version=version, correlation_id=self._correlation_id, client_id="crowd"
        )
        frame = header.encode(types.request_header_version(version)) + request.encode(version)
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        answer = await self._reader.readexactly(length)
        _, offset = ResponseHeader.decode(answer, types.response_header_version(version), 0)
        return types.response.decode(answer, version, offset)[0]

    async def join(self) -> Any:
        """JoinGroup until there is an answer to stay with."""
        while True:
            protocols = [JoinGroupRequestProtocol(name=self._protocol, metadata=SUBSCRIPTION)]
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=self._timeout_ms,
                rebalance_timeout_ms=self._timeout_ms,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=protocols,
            )
            joined = await self.ask(request, 9)
            self.member_id = joined.member_id
            if joined.error_code == 0:
                self.generation = joined.generation_id
                return joined
            if joined.error_code != _MEMBER_ID_REQUIRED:
                return joined

    async def sync(self, joined: Any) -> int:
        """Send SyncGroup; the leader's has an assignment for all. Returns the error code."""
        members = [each.member_id for each in joined.members] if joined.leader == self.member_id else []
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=self._protocol,
            assignments=[SyncGroupRequestAssignment(member_id=each, assignment=assignment_of(each)) for each in members],
        )
        synced = await self.ask(request, 5)
        self.assignment = synced.assignment
        return int(synced.error_code)

    async def settle(self) -> None:
        """Join and sync, again and again while others make that necessary. Raises AssertionError on any other answer."""
        while True:
            joined = await self.join()
            assert joined.error_code == 0, joined.error_code
            error = await self.sync(joined)
            if error == 0:
                return
            assert error == _REBALANCE_IN_PROGRESS, error

    async def heartbeat(self) -> int:
        """The error code."""
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        return int((await self.ask(request, 4)).error_code)

    async def leave(self) -> int:
        """LeaveGroup; the error code of the group or else of the member."""
        left = await self.ask(LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)]), 5)
        return int(left.error_code or left.members[0].error_code)

    def close(self) -> None:
        self._writer.close()


_MEMBER_ID_REQUIRED = 79
_REBALANCE_IN_PROGRESS = 27
_UNKNOWN_MEMBER_ID = 25


async def a_crowd(port: int, group: str, count: int, timeout_ms: int = 60_000, protocol: str = "range") -> list[CrowdMember]:
    """So many connected members that have not joined yet."""
    gate = asyncio.Semaphore(CONNECTING_AT_ONCE)

    async def connect() -> CrowdMember:
        async with gate:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4 * 1024 * 1024)
            member = CrowdMember(group, reader, writer, timeout_ms, protocol)
            # The kernel connects without the broker; it is accepted when it answers.
            await member.ask(ApiVersionsRequest(), 0)
        return member

    return list(await asyncio.gather(*(connect() for _ in range(count))))


async def leave_again(port: int, member: CrowdMember) -> None:
    """Leave by another connection, of a broker that may still be loading the group; it need not know the member any more."""
    while True:
        (messenger,) = await a_crowd(port, member.group, 1)
        messenger.member_id = member.member_id
        error = await messenger.leave()
        messenger.close()
        if error in (0, _UNKNOWN_MEMBER_ID):
            return
        await asyncio.sleep(0.05)


async def settle(members: list[CrowdMember]) -> None:
    """All join at once; returns when all have their assignment of one generation."""
    await asyncio.gather(*(member.settle() for member in members))
    while len({member.generation for member in members}) > 1:
        last = max(member.generation for member in members)
        await asyncio.gather(*(member.settle() for member in members if member.generation < last))


def disperse(members: list[CrowdMember]) -> None:
    """Close all connections."""
    for member in members:
        member.close()
