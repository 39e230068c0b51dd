"""Serves JoinGroup (api 11), versions 0-9.

A rebalance timeout of its own from 1 (KIP-62), a member id to join again with from 4 (KIP-394), static members from 5 (KIP-345), protocol
type from 7 (KIP-559), the reason from 8 (KIP-800), skipping the assignment from 9 (KIP-814).

The answer is sent when the rebalance is complete.
"""

from __future__ import annotations

from struct import Struct
from typing import Final
from weakref import WeakValueDictionary

from ottla.broker.network.gather import UNCOPIED_BYTES
from ottla.broker.network.request_channel import Answer, Parts
from ottla.broker.request.context import DelayedAnswer, RequestContext
from ottla.coordination.groups.classic_group import MemberMetadata, Protocols
from ottla.coordination.groups.effects import JoinResult
from ottla.coordination.groups.rebalance import Join, reason_of
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.wire import uvarint

FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_WITH_REQUIRED_MEMBER_ID = 4
FIRST_VERSION_WITH_STATIC_MEMBERS = 5
FIRST_FLEXIBLE_VERSION = 6
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT = 9

MAX_PROTOCOLS: Final = 1000
"""Most protocols of a member. Clients have up to five. The group keeps them, and a rebalance compares those of all members in one turn of
the loop. The request copies a thousand in 0.1 ms."""

_SHORT = Struct(">h")
_LENGTH = Struct(">i")
_SHORT_LENGTHS = [uvarint(length) for length in range(0x80)]
_NULL = b"\0"
_NO_TAGGED_FIELDS = b"\0"
_NO_MEMBERS = b"\1" + _NO_TAGGED_FIELDS
"""The last bytes of a flexible response without members."""


class SharedMembers(bytearray):
    """The members in the answer to a leader. Connections that have not sent them yet refer to the same object."""

    __slots__ = ("__weakref__",)

    def consists_of(self, parts: list[bytes], size: int) -> bool:
        """Whether these are the `parts`, of `size` bytes in all. Nothing is copied."""
        if len(self) != size:
            return False
        at = 0
        for part in parts:
            if not self.startswith(part, at):
                return False
            at += len(part)
        return True


_UNSENT: Final[WeakValueDictionary[tuple[str, int], SharedMembers]] = WeakValueDictionary()
"""By the leader's member id and the form of the members, the last ones as long as a connection refers to them. A leader may ask again and
again over connections that read nothing. A copy for each would take 16 MiB of memory for 150 bytes that it sends."""


def handle_join_group(request: JoinGroupRequest, context: RequestContext) -> Message | Answer:
    """Become a member, or join a rebalance."""
    version = context.api_version
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        return _response(JoinResult("", ErrorCode.GROUP_AUTHORIZATION_FAILED), version)
    if len(request.protocols) > MAX_PROTOCOLS:
        return _response(JoinResult(request.member_id, ErrorCode.INVALID_REQUEST), version)
    protocols = _protocols(request.protocols)
    answer = DelayedAnswer(context)
    has_rebalance_timeout = version >= FIRST_VERSION_WITH_REBALANCE_TIMEOUT
    join = Join(
        waiter=lambda result: _answer(answer, result, context),
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client.java_host}",
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=protocols,
        reason=reason_of(request.reason),
        requires_known_member_id=version >= FIRST_VERSION_WITH_REQUIRED_MEMBER_ID and request.group_instance_id is None,
        supports_skipping_assignment=version >= FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT,
    )
    context.broker.coordinators.groups.join(request.group_id, join)
    return answer.answer()


def _protocols(protocols: list[JoinGroupRequestProtocol]) -> Protocols:
    """In the client's order. One that is named twice counts once, or the votes would not add up."""
    found: dict[str, bytes] = {}
    for protocol in protocols:
        found.setdefault(protocol.name, protocol.metadata)
    return tuple(found.items())


def _answer(answer: DelayedAnswer, result: JoinResult, context: RequestContext) -> None:
    version = context.api_version
    response = _response(result, version)
    if not result.members:
        answer.complete(response)
        return
    encoded = context.encode(response)
    if isinstance(encoded, bytes):
        answer.complete_encoded(with_members(encoded, result.member_id, result.members, version))
    else:
        answer.complete_encoded(encoded)


def with_members(response: bytes, leader_id: str, members: list[MemberMetadata], version: int) -> Parts:
    """An encoded response without members, with members. Large ones are a part of their own, which the answers to a leader share."""
    form = (version >= FIRST_VERSION_WITH_STATIC_MEMBERS) + (version >= FIRST_FLEXIBLE_VERSION)
    head = response[: -len(_NO_MEMBERS) if version >= FIRST_FLEXIBLE_VERSION else -_LENGTH.size]
    parts = _encoded(members, version)
    size = sum(map(len, parts))
    if size < UNCOPIED_BYTES:
        return [head, b"".join(parts)]
    shared = _UNSENT.get((leader_id, form))
    if shared is None or not shared.consists_of(parts, size):
        shared = _UNSENT[leader_id, form] = SharedMembers()
        for part in parts:  # `join` would make a second copy for this type: 16 MiB take 8 ms, because the system clears their pages
            shared += part
    return [head, shared]


def _encoded(members: list[MemberMetadata], version: int) -> list[bytes]:
    """The members in parts. By hand, 0.5 µs each: a leader may get thousands, and others wait."""
    parts: list[bytes] = []
    if version < FIRST_FLEXIBLE_VERSION:
        parts.append(_LENGTH.pack(len(members)))
        for member_id, instance_id, metadata in members:
            name = member_id.encode()
            parts += (_SHORT.pack(len(name)), name)
            if version >= FIRST_VERSION_WITH_STATIC_MEMBERS:
                instance = b"" if instance_id is None else instance_id.encode()
                parts += (_SHORT.pack(-1 if instance_id is None else len(instance)), instance)
            parts += (_LENGTH.pack(len(metadata)), metadata)
        return parts
    known = _SHORT_LENGTHS
    count = len(members) + 1
    parts.append(known[count] if count < 0x80 else uvarint(count))
    for member_id, instance_id, metadata in members:
        name = member_id.encode()
        size = len(name) + 1
        parts += (known[size] if size < 0x80 else uvarint(size), name)
        if instance_id is None:
            parts.append(_NULL)
        else:
            instance = instance_id.encode()
            parts += (uvarint(len(instance) + 1), instance)
        size = len(metadata) + 1
        parts += (known[size] if size < 0x80 else uvarint(size), metadata, _NO_TAGGED_FIELDS)
    parts.append(_NO_TAGGED_FIELDS)
    return parts


def _response(result: JoinResult, version: int) -> JoinGroupResponse:
    """Without the members."""
    # An empty name is no name, as in Apache Kafka.
    protocol_name = result.protocol_name or (None if version >= FIRST_VERSION_WITH_NULL_PROTOCOL else "")
    response = JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader_id or "",
        member_id=result.member_id,
    )
    if result.skip_assignment:
        response.skip_assignment = True
    return response
