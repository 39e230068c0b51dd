"""Encodes and decodes the records of groups in `__consumer_offsets`, in the versions that Apache Kafka 3.9 writes.

The version of a key gives its kind: 0 and 1 are committed offsets (`offset_records`), 2 is a group. The value of a group is its metadata in
version 3, or in an older one that older brokers of the cluster can read (`group_value_version`). Newer keys come from brokers with the new
group protocol, and are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.schema.metadata_version import is_at_least
from ottla.coordination.groups.offset_records import KEY_VERSION, OffsetKey, read_offset_key, version_of
from ottla.protocol.messages.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from ottla.protocol.schema.wire import MAX_STRING_BYTES

if TYPE_CHECKING:
    from ottla.coordination.groups.classic_group import ClassicGroup, Member


GROUP_KEY_VERSION = 2
GROUP_VALUE_VERSION = 3
FIRST_VALUE_WITH_STATIC_MEMBERS = 3

_VERSION = Struct(">h")
_LENGTH = Struct(">h")
_INDEX = Struct(">i").pack
_TIMESTAMP = Struct(">q")
_TIMEOUTS = Struct(">iii").pack  # a member's rebalance and session timeout, and the length of its subscription
_NULL = _LENGTH.pack(-1)


class GroupKey(NamedTuple):
    """The key of a group's metadata."""

    group_id: str


def group_key(group_id: str) -> bytes:
    """The key of a group's metadata."""
    return _VERSION.pack(GROUP_KEY_VERSION) + GroupMetadataKey(group=group_id).encode(GROUP_KEY_VERSION)


def group_value(group: ClassicGroup, assignment: Mapping[str, bytes]) -> bytes:
    """The group as it is now, with an assignment for each member. Packed by hand too: of members there may be thousands."""
    if group.settings.group_value_version < GROUP_VALUE_VERSION:
        return _older_value(group, assignment, group.settings.group_value_version)
    protocol = group.protocol_name
    state_timestamp_ms = group.state_timestamp_ms
    parts = [
        _VERSION.pack(GROUP_VALUE_VERSION),
        _string(group.protocol_type or ""),
        _INDEX(group.generation_id),
        _nullable_string(protocol),
        _nullable_string(group.leader_id),
        _TIMESTAMP.pack(-1 if state_timestamp_ms is None else state_timestamp_ms),
        _INDEX(len(group.members)),
    ]
    lengths: dict[int, bytes] = {}  # there are few, and packing each anew would take a third of the time
    for member_id, member in group.members.items():
        part = member.record_part
        if part is None or part[0] != protocol:
            part = member.record_part = member_part(member, protocol)
        assigned = assignment[member_id]
        length = len(assigned)
        parts += (part[1], part[2], lengths.get(length) or lengths.setdefault(length, _INDEX(length)), assigned)
    return b"".join(parts)


def _older_value(group: ClassicGroup, assignment: Mapping[str, bytes], version: int) -> bytes:
    """The same in a version before 3, which has no place for all of it."""
    protocol = group.protocol_name
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=protocol,
        leader=group.leader_id,
        current_state_timestamp=-1 if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol),
                assignment=assignment[member_id],
            )
            for member_id, member in group.members.items()
        ],
    )
    return _VERSION.pack(version) + value.encode(version)


def member_part(member: Member, protocol: str | None) -> tuple[str | None, bytes, bytes]:
    """The content of `Member.record_part`: a protocol, the record's fields of the member before the subscription, and the subscription."""
    subscription = member.metadata(protocol)
    part = (
        _string(member.member_id),
        _nullable_string(member.group_instance_id),
        _string(member.client_id),
        _string(member.client_host),
        _TIMEOUTS(member.rebalance_timeout_ms, member.session_timeout_ms, len(subscription)),
    )
    return protocol, b"".join(part), subscription


def is_too_long(name: str) -> bool:
    """Whether neither records nor answers could be written with this name of a request.

    It may be made of two, and each byte of the request that was not UTF-8 has become three.
    """
    return len(name) > MAX_STRING_BYTES // 4 and len(name.encode()) > MAX_STRING_BYTES


def _string(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def _nullable_string(text: str | None) -> bytes:
    return _NULL if text is None else _string(text)


def read_key(key: bytes) -> OffsetKey | GroupKey | None:
    """The group or the offset that a key names; None for a key of a later version. Raises ProtocolError."""
    version = version_of(key)
    if 0 <= version <= KEY_VERSION:
        return read_offset_key(key)
    if version == GROUP_KEY_VERSION:
        group, _ = GroupMetadataKey.decode(key, version, _VERSION.size)
        return GroupKey(group.group)
    return None


def read_group_value(value: bytes) -> tuple[int, GroupMetadataValue]:
    """(version, a group's metadata). Raises ProtocolError."""
    version = version_of(value)
    message, _ = GroupMetadataValue.decode(value, version, _VERSION.size)
    return version, message


_GROUP_VALUES: Final = ((3, "2.3-IV0"), (2, "2.1-IV0"), (1, "0.10.1-IV0"), (0, "0.8.0"))
_OFFSET_VALUES: Final = ((3, "2.1-IV1"), (2, "2.1-IV0"), (1, "0.8.0"))


def group_value_version(inter_broker_protocol_version: str) -> int:
    """The version in which groups are written."""
    return _chosen(_GROUP_VALUES, inter_broker_protocol_version)


def offset_value_version(inter_broker_protocol_version: str) -> int:
    """The version in which committed offsets are written, unless a client gave a retention time."""
    return _chosen(_OFFSET_VALUES, inter_broker_protocol_version)


def _chosen(table: tuple[tuple[int, str], ...], inter_broker_protocol_version: str) -> int:
    return next(version for version, since in table if is_at_least(inter_broker_protocol_version, since))
