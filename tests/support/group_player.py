"""Plays a history of group requests against a broker and notes every answer in a form that does not depend on the broker.

Each slot is a client with its own connection, which has at most one unanswered request. Member ids become the slot's name and a number.
Histories have no timers in them, so a request that is not answered soon waits for another client; `more` is for a broker that was only
slow.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import Any, NamedTuple

from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.header import RequestHeader, ResponseHeader
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import Api, api
from tests.support.wire_client import WireClient, a_wire_client

PATIENCE_SECONDS = 0.05
AT_LAST_SECONDS = 5.0
TIMEOUT_MS = 60_000
UUID_LENGTH = 36
PROTOCOLS = (
    (("range", b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"),),
    (("range", b"\x00\x00\x00\x00\x00\x01\x00\x01u\xff\xff\xff\xff"),),
    (("range", b"\x07"), ("sticky", b"\x00")),  # too short for a subscription, which Apache Kafka tolerates; not so other nonsense
    (("sticky", b"\x01"),),
)
SLOTS: dict[str, str | None] = {"a": None, "b": None, "s": "static-s", "u": "static-u"}
"""The slots and the group.instance.id of those that are static members."""


class Step(NamedTuple):
    """One action of a slot; `choice` picks among its variants."""

    slot: str
    what: str
    choice: int


class Slot:
    """A client: its connection, and the facts from its last answers."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port
        self.instance = SLOTS[name]
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.members: list[str] = []
        self.pending: tuple[Api, int] | None = None
        self.socket: socket.socket | None = None

    def reconnect(self) -> None:
        """A new connection; what was asked on the old one is forgotten."""
        self.close()
        self.socket = socket.create_connection(("127.0.0.1", self.port), 10)
        self.pending = None

    def send(self, request: Message, version: int) -> None:
        assert request.SCHEMA.api_key is not None
        if self.socket is None:
            self.reconnect()
        assert self.socket is not None
        types = api(request.SCHEMA.api_key)
        header = RequestHeader(request_api_key=types.key, request_api_version=version, correlation_id=1, client_id=self.name)
        frame = header.encode(types.request_header_version(version)) + request.encode(version)
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        self.pending = types, version

    def receive(self) -> Any:
        """The answer that has begun to come."""
        assert self.socket is not None
        assert self.pending is not None
        types, version = self.pending
        self.pending = None
        (length,) = struct.unpack(">i", self._read(4))
        data = self._read(length)
        _, offset = ResponseHeader.decode(data, types.response_header_version(version), 0)
        return types.response.decode(data, version, offset)[0]

    def _read(self, count: int) -> bytes:
        assert self.socket is not None
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            assert part, "the broker closed the connection"
            data += part
        return data

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None


class GroupPlayer:
    """One group on one broker. `play` returns what was answered after each step, by slot."""

    def __init__(self, port: int, group: str) -> None:
        self.group = group
        self.control = port
        self.slots = {name: Slot(name, port) for name in SLOTS}
        self._names: dict[str, str] = {}

    def play(self, step: Step) -> list[tuple[str, str]]:
        """(slot, answer) of everything that was answered by then; answers that were waited for come with the step that caused them."""
        slot = self.slots[step.slot]
        if step.what == "reconnect" or slot.pending is not None:
            slot.reconnect()
        if step.what != "reconnect":
            slot.send(*self._request(slot, step))
        return self._answers(slot)

    def describe(self) -> str:
        """The answer to DescribeGroups, as text."""
        with a_wire_client(self.control) as client:
            return self._described(client)

    def _described(self, client: WireClient) -> str:
        (group,) = client.ask(DescribeGroupsRequest(groups=[self.group]), 5).groups
        members = sorted(
            (self._name(each.member_id), each.group_instance_id, each.client_id, each.member_metadata, each.member_assignment)
            for each in group.members
        )
        return f"{group.error_code} {group.group_state} {group.protocol_type} {group.protocol_data} {members}"

    def close(self) -> None:
        for slot in self.slots.values():
            slot.close()

    def _request(self, slot: Slot, step: Step) -> tuple[Message, int]:
        if step.what in ("join", "again"):
            if step.what == "join":
                slot.member_id = ""
            version = (3, 4, 9)[step.choice % 3] if slot.instance is None else (5, 9, 9)[step.choice % 3]
            protocols = PROTOCOLS[step.choice // 3 % len(PROTOCOLS)]
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=TIMEOUT_MS,
                rebalance_timeout_ms=TIMEOUT_MS,
                member_id=slot.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
            )
            if version >= 5:
                request.group_instance_id = slot.instance
            return request, version
        if step.what == "sync":
            parts = [SyncGroupRequestAssignment(member_id=each, assignment=b"part") for each in slot.members] if slot.is_leader else []
            sync = SyncGroupRequest(
                group_id=self.group,
                generation_id=slot.generation - (step.choice % 8 == 0),
                member_id=slot.member_id,
                group_instance_id=slot.instance,
                assignments=parts,
            )
            return sync, 3
        if step.what == "heartbeat":
            beat = HeartbeatRequest(
                group_id=self.group, generation_id=slot.generation, member_id=slot.member_id, group_instance_id=slot.instance
            )
            return beat, 4
        if step.what == "leave":
            member_id = "" if slot.instance is not None and step.choice % 2 else slot.member_id
            return LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=member_id, group_instance_id=slot.instance)]), 3
        assert step.what == "commit"
        is_simple = step.choice % 3 == 0
        topics = [
            OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=step.choice)])
        ]
        commit = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=-1 if is_simple else slot.generation,
            member_id="" if is_simple else slot.member_id,
            group_instance_id=None if is_simple else slot.instance,
            topics=topics,
        )
        return commit, 7

    def more(self, slots: set[str]) -> list[tuple[str, str]]:
        """Late answers to these slots, as far as they come within seconds."""
        found: list[tuple[str, str]] = []
        deadline = time.monotonic() + AT_LAST_SECONDS
        while slots - {name for name, _ in found} and time.monotonic() < deadline:
            found += self._collect(PATIENCE_SECONDS)
        return found

    def _answers(self, asked: Slot) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            patience = deadline - time.monotonic() if asked.pending is not None else PATIENCE_SECONDS / 4
            answers = self._collect(max(0.0, patience))
            if not answers:
                return sorted(found)
            found += answers

    def _collect(self, seconds: float) -> list[tuple[str, str]]:
        """The answers that come next, unless none comes in time."""
        waiting = {slot.socket: slot for slot in self.slots.values() if slot.pending is not None}
        readable = select.select(list(waiting), [], [], seconds)[0] if waiting else []
        return [(waiting[each].name, self._note(waiting[each], waiting[each].receive())) for each in readable]

    def _note(self, slot: Slot, response: Any) -> str:
        """The answer as text, after the slot took in what it says."""
        kind = type(response).__name__
        if kind == "JoinGroupResponse":
            if response.member_id:
                self._names.setdefault(response.member_id, f"{slot.name}{sum(each.startswith(slot.name) for each in self._names.values())}")
            slot.member_id = response.member_id
            if response.error_code == 0:
                slot.generation = response.generation_id
                slot.is_leader = response.leader == response.member_id
                slot.members = [each.member_id for each in response.members]
            members = sorted((self._name(each.member_id), each.group_instance_id, each.metadata) for each in response.members)
            return (
                f"join {response.error_code} {response.generation_id} {response.protocol_type} {response.protocol_name} "
                f"leader={self._name(response.leader)} skip={response.skip_assignment} {self._name(response.member_id)} {members}"
            )
        if kind == "SyncGroupResponse":
            return f"sync {response.error_code} {response.assignment!r}"
        if kind == "LeaveGroupResponse":
            return f"leave {response.error_code} {[each.error_code for each in response.members]}"
        if kind == "OffsetCommitResponse":
            return f"commit {[each.error_code for topic in response.topics for each in topic.partitions]}"
        return f"heartbeat {response.error_code}"

    def _name(self, member_id: str) -> str:
        # A member id that was not in an answer yet begins with the client id or group.instance.id, and ends with a UUID.
        return self._names.get(member_id, member_id[:-UUID_LENGTH])
