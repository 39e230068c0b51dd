"""Groups of a simulated cluster: one that commits offsets from outside, and one whose members come, go, and vanish.

What a coordinator has said holds for ever, whoever coordinates the group next: a generation has one assignment, no partition is two
members' in it, and who belongs to an older one commits nothing more.
"""

from __future__ import annotations

import asyncio
from typing import cast

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.simulation.clients import BACKOFF_S, GROUP, CoordinatorClient
from tests.simulation.cluster import SimulatedCluster

PARTITIONS = 5
"""That the members share; nothing is read from them."""
SESSION_TIMEOUT_MS = 6000
REBALANCE_TIMEOUT_MS = 1000
"""Below the time that a client waits for an answer."""
HEARTBEATS_PER_S = 3.0
COMMITS_PER_S = 3.0


class GroupClient(CoordinatorClient):
    """Finds the coordinator of its group."""

    def __init__(self, cluster: SimulatedCluster, topic: str, group: str, seed: int) -> None:
        super().__init__(cluster, topic, GROUP, group, seed)
        self.group = group
        self.stopping = False


class Committer(GroupClient):
    """Commits ever greater offsets of one group. What was acknowledged is never taken back."""

    def __init__(self, cluster: SimulatedCluster, topic: str, group: str, seed: int) -> None:
        super().__init__(cluster, topic, group, seed)
        self.committed = -1
        self.attempted = -1

    async def run(self) -> None:
        """Until `stopping`."""
        while not self.stopping:
            await asyncio.sleep(self.random.expovariate(COMMITS_PER_S))
            await (self.check(at_least=-1) if self.random.random() < 0.3 else self._commit())

    async def check(self, at_least: int | None = None) -> bool:
        """Whether the offset could be read; it must be one that was tried, and none before the last acknowledged one, or `at_least`.

        While things go wrong the answer may come from a coordinator that does not know yet that it is none, here as with Apache Kafka: a
        read of an offset asks nobody else.
        """
        known = self.committed if at_least is None else at_least
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group, topics=None)])
        answer = cast("OffsetFetchResponse | None", await self.ask_coordinator(ApiKey.OFFSET_FETCH, 9, request))
        if answer is None or answer.groups[0].error_code != ErrorCode.NONE:
            self.forget_coordinator()
            return False
        found = [partition.committed_offset for topic in answer.groups[0].topics for partition in topic.partitions]
        offset = found[0] if found else -1
        assert known <= offset <= self.attempted, f"group {self.group} has offset {offset}; {known} was acknowledged"
        return True

    async def _commit(self) -> None:
        self.attempted += 1
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=self.attempted, committed_metadata="")
        request = OffsetCommitRequest(group_id=self.group, topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])])
        answer = cast("OffsetCommitResponse | None", await self.ask_coordinator(ApiKey.OFFSET_COMMIT, 9, request))
        if answer is not None and answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
            self.committed = self.attempted
        else:
            self.forget_coordinator()


class Assignments:
    """What became known of one group's generations. A contradiction is an AssertionError."""

    def __init__(self) -> None:
        self.newest = -1
        self.rebalances = 0
        self._owners: dict[int, dict[int, str]] = {}
        self._given: dict[tuple[int, str], bytes] = {}

    def given(self, generation: int, member_id: str, partitions: bytes) -> None:
        """A member was told what is its own."""
        before = self._given.setdefault((generation, member_id), partitions)
        assert before == partitions, f"{member_id} was given {list(before)} in generation {generation}, and then {list(partitions)}"
        owners = self._owners.setdefault(generation, {})
        for partition in partitions:
            owner = owners.setdefault(partition, member_id)
            assert owner == member_id, f"partition {partition} is {owner}'s in generation {generation}, and {member_id}'s"
        if generation > self.newest:
            self.newest = generation
            self.rebalances += 1


class Member(GroupClient):
    """Joins, is assigned partitions, commits; now and then it leaves, or vanishes without a word, and comes again as somebody new."""

    def __init__(self, cluster: SimulatedCluster, topic: str, group: str, known: Assignments, seed: int) -> None:
        super().__init__(cluster, topic, group, seed)
        self.settling = False
        """It stays where it is from now on."""
        self.generation = -1
        self.owned: bytes | None = None
        self._known = known
        self._member_id = ""

    async def run(self) -> None:
        """Until `stopping`."""
        while not self.stopping:
            if self.owned is None:
                if not await self._join():
                    self.forget_coordinator()
                    await asyncio.sleep(BACKOFF_S)
                continue
            await asyncio.sleep(self.random.expovariate(HEARTBEATS_PER_S))
            chance = 1.0 if self.settling else self.random.random()
            if chance < 0.02:
                self._begin_anew()  # its session ends without it
            elif chance < 0.05:
                identity = MemberIdentity(member_id=self._member_id)
                await self.ask_coordinator(ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(group_id=self.group, members=[identity]))
                self._begin_anew()
            else:
                await (self._commit() if chance < 0.4 else self._heartbeat())

    def _begin_anew(self) -> None:
        self._member_id, self.owned = "", None

    async def _join(self) -> bool:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="simulated", metadata=b"")],
        )
        joined = cast("JoinGroupResponse | None", await self.ask_coordinator(ApiKey.JOIN_GROUP, 9, request))
        if joined is None:
            return False
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return True
        if joined.error_code:
            self._on_error(joined.error_code)
            return False
        self._member_id, self.generation = joined.member_id, joined.generation_id
        return await self._sync([member.member_id for member in joined.members] if joined.leader == joined.member_id else [])

    async def _sync(self, members: list[str]) -> bool:
        """`members` are all of the group where this one leads it."""
        shares = {member: bytes(range(at, PARTITIONS, len(members))) for at, member in enumerate(self.random.sample(members, len(members)))}
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name="simulated",
            assignments=[SyncGroupRequestAssignment(member_id=member, assignment=share) for member, share in shares.items()],
        )
        synced = cast("SyncGroupResponse | None", await self.ask_coordinator(ApiKey.SYNC_GROUP, 5, request))
        if synced is None:
            return False
        if synced.error_code:
            self._on_error(synced.error_code)
            return False
        self.owned = bytes(synced.assignment)
        self._known.given(self.generation, self._member_id, self.owned)
        return True

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self._member_id)
        answer = cast("HeartbeatResponse | None", await self.ask_coordinator(ApiKey.HEARTBEAT, 4, request))
        if answer is not None and answer.error_code:
            self._on_error(answer.error_code)

    async def _commit(self) -> None:
        newest = self._known.newest
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=self.generation, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        answer = cast("OffsetCommitResponse | None", await self.ask_coordinator(ApiKey.OFFSET_COMMIT, 9, request))
        if answer is None:
            return
        code = answer.topics[0].partitions[0].error_code
        if code:
            self._on_error(code)
        else:
            assert newest <= self.generation, (
                f"{self._member_id} of generation {self.generation} committed to group {self.group}, which had been in generation {newest}"
            )

    def _on_error(self, code: int) -> None:
        if code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self.owned = None
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._begin_anew()
        else:
            assert code != ErrorCode.UNKNOWN_SERVER_ERROR, f"group {self.group} at broker {self.coordinator}"
            self.forget_coordinator()


def is_settled(members: list[Member]) -> bool:
    """Whether all are in one generation and have every partition among them."""
    shares = [member.owned for member in members]
    if None in shares or len({member.generation for member in members}) > 1:
        return False
    return sorted(partition for share in shares if share is not None for partition in share) == list(range(PARTITIONS))
