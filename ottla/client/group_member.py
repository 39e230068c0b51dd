"""Implements a member of a classic consumer group: joins, assigns, sends heartbeats, commits, leaves.

Everything runs on one thread, so heartbeats are sent between polls. A member that does not call `tend` within the
session timeout is removed from the group, and joins again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.client.assignor import (
    PROTOCOL_TYPE,
    RANGE,
    Subscriber,
    assign_ranges,
    decode_assignment,
    decode_topics,
    encode_assignment,
    encode_subscription,
)
from ottla.client.cluster import Cluster
from ottla.client.connection import AnyResponse, Connection
from ottla.client.errors import ClientError, ConnectionLost, Refused, check
from ottla.client.group_offsets.committed import Membership, commit_offsets
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition

_HEARTBEATS_PER_SESSION: Final = 15
_REBALANCE_SECONDS: Final = 60.0
_JOIN_AGAIN: Final = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class GroupMember:
    """One member: `join` first, `tend` often, `commit` processed offsets, `leave` at the end."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Sequence[str],
        *,
        session_timeout_ms: int = 45_000,
        instance_id: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._topics = sorted(topics)
        self._session_timeout_ms = session_timeout_ms
        self._instance_id = instance_id
        self._clock = clock
        self._connection: Connection | None = None
        self._member_id = ""
        self._generation = -1
        self._next_heartbeat = 0.0

    @property
    def membership(self) -> Membership:
        """The membership that commits carry."""
        return Membership(self._generation, self._member_id, self._instance_id)

    def join(self) -> list[TopicPartition]:
        """Join the group and wait for the assignment. Raises Refused, ConnectionLost."""
        deadline = self._clock() + _REBALANCE_SECONDS + self._cluster.timeout_seconds
        while True:
            self._coordinator()  # waits no longer than the timeout; a rebalance may take longer
            try:
                assigned = self._join_once()
            except (Refused, ConnectionLost) as error:
                if isinstance(error, ConnectionLost):
                    self._disconnect()
                elif error.code not in (*_JOIN_AGAIN, ErrorCode.MEMBER_ID_REQUIRED):
                    raise
                elif error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                elif error.code is ErrorCode.NOT_COORDINATOR:
                    self._disconnect()
                if self._clock() > deadline:
                    raise
                if not (isinstance(error, Refused) and error.code is ErrorCode.MEMBER_ID_REQUIRED):
                    time.sleep(0.05)
            else:
                self._plan_heartbeat()
                return assigned

    def _join_once(self) -> list[TopicPartition]:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=int(_REBALANCE_SECONDS * 1000),
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=RANGE, metadata=encode_subscription(self._topics))],
        )
        joined = self._ask(request, JoinGroupResponse, wait_seconds=_REBALANCE_SECONDS)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
        check(f"group {self._group}", joined.error_code)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            members = [Subscriber(member.member_id, decode_topics(member.metadata), member.group_instance_id) for member in joined.members]
            assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(partitions))
                for member_id, partitions in assign_ranges(members, self._partition_counts(members)).items()
            ]
        synced = self._ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=joined.protocol_name,
                assignments=assignments,
            ),
            SyncGroupResponse,
            wait_seconds=_REBALANCE_SECONDS,
        )
        check(f"group {self._group}", synced.error_code)
        return decode_assignment(synced.assignment)

    def _partition_counts(self, members: Sequence[Subscriber]) -> dict[str, int]:
        topics = sorted({topic for member in members for topic in member.topics})
        described = self._cluster.refresh(topics)
        return {topic.name: len(topic.partitions) for topic in described.topics if topic.name is not None}

    def tend(self) -> bool:
        """Send a heartbeat when it is due. False when the group rebalances: commit, then `join` again. Raises Refused."""
        if self._clock() < self._next_heartbeat:
            return True
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self._generation, member_id=self._member_id, group_instance_id=self._instance_id
        )
        try:
            answer = self._ask(request, HeartbeatResponse)
        except ConnectionLost:
            self._disconnect()
            return False
        self._plan_heartbeat()
        if answer.error_code in _JOIN_AGAIN:
            if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            elif answer.error_code == ErrorCode.NOT_COORDINATOR:
                self._disconnect()
            return False
        check(f"group {self._group}", answer.error_code)
        return True

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit as this member. False when the group has reassigned the partitions meanwhile. Raises ClientError."""
        try:
            commit_offsets(self._cluster, self._group, offsets, self.membership)
        except Refused as error:
            if error.code in _JOIN_AGAIN:
                return False
            raise
        return True

    def leave(self) -> None:
        """Leave the group, which reassigns the partitions at once; a static member stays until its session ends."""
        if self._member_id and self._instance_id is None:
            identity = MemberIdentity(member_id=self._member_id, reason="the command ended")
            try:
                connection = self._coordinator()
                # Versions below 3 have a single member.
                self._ask(
                    LeaveGroupRequest(group_id=self._group, members=[identity])
                    if connection.version_of(ApiKey.LEAVE_GROUP) >= 3
                    else LeaveGroupRequest(group_id=self._group, member_id=self._member_id),
                    LeaveGroupResponse,
                )
            except ClientError:
                pass  # the session ends by itself
        self._disconnect()

    def _plan_heartbeat(self) -> None:
        self._next_heartbeat = self._clock() + self._session_timeout_ms / 1000 / _HEARTBEATS_PER_SESSION

    def _ask(self, request: Message, response: type[AnyResponse], *, wait_seconds: float = 0.0) -> AnyResponse:
        seconds = wait_seconds + self._cluster.timeout_seconds
        try:
            return self._cluster.ask_on(self._coordinator(), request, response, timeout_seconds=seconds)
        except KeyboardInterrupt:
            self._disconnect()  # the answer is still to come, as that to a join; the request to leave needs another connection
            raise

    def _coordinator(self) -> Connection:
        if self._connection is None:
            # A separate connection, because a join makes the broker wait.
            with self._cluster.until(time.monotonic() + self._cluster.timeout_seconds):
                self._connection = self._cluster.until_done(lambda: self._cluster.new_connection(self._cluster.coordinator(self._group)))
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
