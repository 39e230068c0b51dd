"""Loads groups and offsets from the records of `__consumer_offsets`.

`GroupLoader` is pure: it reads the bytes of the log in order, then creates the groups. Both steps are generators that pause every few
records, so that the event loop can do other work.

A log has millions of offsets. Hand-written code reads the form in which nearly all of them are written: 0.5 µs each. They are kept as
slices of the log (`committed`), by the part of their key that names group and topic. Values are decoded after the last record, because then
only the latest value of each key is left. A batch with any other record is read again from its start by the general functions. That is
safe: the last record of a key wins. Of groups only the latest record is decoded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, MutableMapping
from struct import Struct
from sys import intern
from typing import Final, NamedTuple, TypeAlias

from ottla.coordination.groups.classic_group import ClassicGroup, GroupSettings, Member
from ottla.coordination.groups.committed import RECORD_OFFSET_SIZE, CommittedOffsets, Stored, checked, is_plain, record_offset_of
from ottla.coordination.groups.consumer import records as consumer_records
from ottla.coordination.groups.consumer.group import AssignedGroup, ConsumerGroup
from ottla.coordination.groups.consumer.records import Record
from ottla.coordination.groups.group import Group, GroupState
from ottla.coordination.groups.offset_records import KEY_VERSION, OffsetKey, read_offset_key, version_of
from ottla.coordination.groups.records import GroupKey, read_group_value, read_key
from ottla.coordination.groups.repeated_commits import FEWEST_RECORDS, RepeatedCommits
from ottla.coordination.groups.share import records as share_records
from ottla.coordination.groups.share.group import ShareGroup
from ottla.coordination.partitions.skipped import report_skipped
from ottla.protocol.conversion.old_logs import readable
from ottla.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL_MASK,
    BatchHeader,
    next_batch_size,
    parse_header,
)
from ottla.protocol.records.builder import ControlRecordType, read_control_type
from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.records.reader import iter_keys_and_values, record_data
from ottla.protocol.records.walk import RecordWalk
from ottla.protocol.schema.wire import ProtocolError

logger = logging.getLogger(__name__)

RECORDS_PER_PAUSE = 64
NO_TIMESTAMP = -1

_HEADER = Struct(">qi4xb4xh34xi")  # base offset, length, magic, attributes, number of records
_INDEX = Struct(">i")
_OFFSET_KEY_VERSIONS = [version.to_bytes(2, "big") for version in range(KEY_VERSION + 1)]
_OUT_OF_THE_ORDINARY = CODEC_MASK | TRANSACTIONAL_MASK | CONTROL_MASK

_KEY_OVERHEAD = 10
"""Bytes of an offset's key beside its strings: the version, their lengths, the partition."""

_Transaction: TypeAlias = dict[bytes, Stored]
"""The latest value of a key in a transaction that is still open."""


class AssignedKind(NamedTuple):
    """A kind of groups whose partitions the broker assigns: how they are made, and how their records are read, in the order of keys."""

    name: str
    make: type[AssignedGroup]
    keys_in_order: tuple[int, ...]
    read: Callable[[int, bytes, bytes], tuple[str, Record]]


KINDS: Final = (
    AssignedKind("consumer", ConsumerGroup, consumer_records.KEYS_IN_ORDER, consumer_records.read),
    AssignedKind("share", ShareGroup, share_records.KEYS_IN_ORDER, share_records.read),
)


class GroupLoader:
    """See the module. `offsets` counts the offsets that were found, `skipped` the records that cannot be read and are left out."""

    __slots__ = ("_deleted", "_names", "_offsets", "_open", "_others", "_repeated", "_settings", "name", "offsets", "skipped")

    def __init__(self, name: str, settings: GroupSettings) -> None:
        self.name = name
        self._settings = settings
        self.skipped = 0
        self.offsets = 0
        self._offsets: dict[bytes, dict[int, Stored]] = {}
        """By a key without its last four bytes, which are the partition: the offsets of one group in one topic. All such keys are valid."""
        self._names: dict[tuple[str, str], dict[int, Stored]] = {}
        """The same by group and topic."""
        self._others: dict[bytes, Stored] = {}
        """The latest values of groups, and of keys that no broker writes, after the offset of their batch."""
        self._open: dict[int, _Transaction] = {}
        self._deleted: dict[bytes, bytes] = {}
        """By key, the place of a tombstone that was read while a transaction was open. It deletes the offsets before it in transactions,
        too."""
        self._repeated = RepeatedCommits()

    def feed(self, data: bytes) -> Iterator[None]:
        """Read whole batches, the next ones in the log."""
        end = len(data)
        position = yield from self._plain_batches(data, 0)
        while (size := next_batch_size(data, position, end)) is not None:
            yield from self._any_batch(data, position)
            position = yield from self._plain_batches(data, position + size)

    def _plain_batches(self, data: bytes, position: int) -> Generator[None, None, int]:
        """Read batches of offset commits up to the first batch of another kind, and return its position."""
        end = len(data)
        pause_after = RECORDS_PER_PAUSE
        offsets_of = self._offsets.get
        index_at = _INDEX.unpack_from
        start = position
        try:
            while end - start >= HEADER_SIZE:
                _, length, magic, attributes, count = _HEADER.unpack_from(data, start)
                position = start + length + LOG_OVERHEAD
                if magic != CURRENT_MAGIC or count < 0 or attributes & _OUT_OF_THE_ORDINARY or not start + HEADER_SIZE <= position <= end:
                    return start
                at = start + HEADER_SIZE
                place = data[start : start + 8]
                if count >= FEWEST_RECORDS and self._repeated.take(data[at:position], place, count, self._offsets):
                    yield
                    start = position
                    continue
                walk = RecordWalk(data[at:position], count)
                while walk.advance():
                    key, value = walk.key(), walk.value()
                    if key is None or value is None:
                        return start
                    offsets = offsets_of(key[: -_INDEX.size]) or self._offsets_of(key)
                    if offsets is None:
                        return start
                    offsets[index_at(key, len(key) - _INDEX.size)[0]] = place + value
                    pause_after -= 1
                    if not pause_after:
                        yield
                        pause_after = RECORDS_PER_PAUSE
                start = position
        except RecordFormatError:
            pass
        return start

    def _offsets_of(self, key: bytes) -> dict[int, Stored] | None:
        """The offsets to which the key of an offset belongs; None for any other key, or one that cannot be read."""
        offsets = self._offsets.get(key[: -_INDEX.size])
        if offsets is not None or key[:2] not in _OFFSET_KEY_VERSIONS:
            return offsets
        try:
            found = read_offset_key(key)
        except ProtocolError:
            return None
        if len(key) != len(found.group_id.encode()) + len(found.partition.topic.encode()) + _KEY_OVERHEAD:
            return None  # there are bytes after the partition
        offsets = self._offsets[key[: -_INDEX.size]] = self._offsets_in(found)
        return offsets

    def _offsets_in(self, key: OffsetKey) -> dict[int, Stored]:
        return self._names.setdefault((key.group_id, intern(key.partition.topic)), {})

    # -- every case ----------------------------------------------------------------------------------------------------------

    def _any_batch(self, data: bytes, position: int) -> Iterator[None]:
        yield from self._repeated.flush()
        header = parse_header(data, position)
        try:
            if header.is_control:
                kind = read_control_type(data, position, header)
                if kind is not None:
                    self._end_transaction(header.producer_id, is_commit=kind is ControlRecordType.COMMIT)
                return
            batch, at, header = readable(data, position, header)
            yield from self._any_records(record_data(batch, at, header), header)
        except RecordFormatError as error:
            self._skip(f"the batch at offset {header.base_offset}", error)

    def _any_records(self, data: bytes, header: BatchHeader) -> Iterator[None]:
        transaction = self._open.setdefault(header.producer_id, {}) if header.is_transactional else None
        place = record_offset_of(header.base_offset)
        for number, (key, value) in enumerate(iter_keys_and_values(data, header), 1):
            if key is None:
                self._skip("a record", "it has no key")
            elif transaction is None:
                self._put(key, place, value)
            else:
                name = _in_last_version(key)
                if value is None:
                    transaction.pop(name, None)
                else:
                    transaction[name] = place + value
            if number % RECORDS_PER_PAUSE == 0:
                yield
        yield

    def _put(self, key: bytes, place: bytes, value: bytes | None) -> None:
        if value is None and self._open:
            self._deleted[_in_last_version(key)] = place
        offsets = self._offsets_of(key)
        if offsets is None:
            if value is None:
                self._others.pop(key, None)
            else:
                self._others[key] = place + value
        elif value is None:
            offsets.pop(_INDEX.unpack(key[-_INDEX.size :])[0], None)
        else:
            offsets[_INDEX.unpack(key[-_INDEX.size :])[0]] = place + value

    def _end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        transaction = self._open.pop(producer_id, {})
        deleted = self._deleted
        if not self._open:
            self._deleted = {}
        if not is_commit:
            return
        for key, stored in transaction.items():
            place = stored[:RECORD_OFFSET_SIZE]
            if key in deleted and deleted[key] > place:
                continue
            offsets = self._offsets_of(key)
            known = None if offsets is None else offsets.get(_INDEX.unpack(key[-_INDEX.size :])[0])
            if known is None or known[:RECORD_OFFSET_SIZE] < place:
                self._put(key, place, stored[RECORD_OFFSET_SIZE:])

    # -- what was found ------------------------------------------------------------------------------------------------------

    def states(self, now_ms: int, into: MutableMapping[str, Group]) -> Iterator[None]:
        """Put the groups into `into`, by their ids."""
        settings = self._settings
        yield from self._repeated.flush()
        newer: dict[int, list[tuple[bytes, Stored]]] = {version: [] for kind in KINDS for version in kind.keys_in_order}
        for key, stored in self._others.items():
            try:
                found = read_key(key)
                if isinstance(found, GroupKey):
                    into[found.group_id] = _group(found.group_id, stored[RECORD_OFFSET_SIZE:], settings, now_ms)
                elif found is not None:
                    self._offsets_in(found).setdefault(found.partition.partition, stored)
                elif (version := version_of(key)) in newer:
                    newer[version].append((key, stored))
            except ProtocolError as error:
                self._skip("a record", error)
            yield
        for kind in KINDS:
            for version in kind.keys_in_order:
                yield from self._assigned_groups(kind, version, newer[version], into)
        for (group_id, topic), offsets in self._names.items():
            yield from self._check(group_id, offsets)
            if offsets:
                self.offsets += len(offsets)
                _group_in(into, group_id, settings, now_ms).offsets.committed.adopt(topic, offsets)
        for producer_id, transaction in self._open.items():
            for key, stored in transaction.items():
                try:
                    found = read_key(key)
                    if isinstance(found, OffsetKey) and self._deleted.get(key, b"") <= stored[:RECORD_OFFSET_SIZE]:
                        value = (stored if is_plain(stored) else checked(stored))[RECORD_OFFSET_SIZE:]
                        group = _group_in(into, found.group_id, settings, now_ms)
                        of_producer = group.offsets.transactional.setdefault(producer_id, CommittedOffsets())
                        of_producer.put(found.partition, stored[:RECORD_OFFSET_SIZE], value)
                except ProtocolError as error:
                    self._skip("an offset in a transaction", error)
                yield

    def _assigned_groups(
        self, kind: AssignedKind, version: int, some: Iterable[tuple[bytes, Stored]], into: MutableMapping[str, Group]
    ) -> Iterator[None]:
        """Apply the records under one key to the groups of one kind."""
        for key, stored in some:
            try:
                group_id, record = kind.read(version, key, stored[RECORD_OFFSET_SIZE:])
                group = into.get(group_id)
                if version == kind.keys_in_order[0] and group is None:
                    group = into[group_id] = kind.make(group_id)
                if isinstance(group, kind.make):
                    group.apply(record)
                else:
                    self._skip(f"a record of group {group_id}", f"there is no {kind.name} group of this name")
            except ProtocolError as error:
                self._skip("a record", error)
            yield

    def found(self, states: int) -> str:
        """The number of groups and offsets, for the log."""
        return f"{states} groups with {self.offsets} offsets"

    def _check(self, group_id: str, offsets: dict[int, Stored]) -> Iterator[None]:
        """Removes the values that cannot be read, and converts the others to a version that is written here."""
        changed: dict[int, Stored | None] = {}
        for number, (index, stored) in enumerate(offsets.items()):
            if not is_plain(stored):
                try:
                    changed[index] = checked(stored)
                except ProtocolError as error:
                    self._skip(f"an offset of group {group_id}", error)
                    changed[index] = None
            if number % RECORDS_PER_PAUSE == 0:
                yield
        for index, known in changed.items():
            if known is None:
                del offsets[index]
            else:
                offsets[index] = known

    def _skip(self, what: str, why: object) -> None:
        self.skipped += 1
        report_skipped(logger, self.name, self.skipped, what, why)


def _in_last_version(key: bytes) -> bytes:
    """The same key for an offset, whichever version it was written in."""
    return _OFFSET_KEY_VERSIONS[-1] + key[2:] if key[:2] == _OFFSET_KEY_VERSIONS[0] else key


def _group_in(groups: MutableMapping[str, Group], group_id: str, settings: GroupSettings, now_ms: int) -> Group:
    group = groups.get(group_id)
    if group is None:
        group = groups[group_id] = ClassicGroup(group_id, settings, now_ms)
    return group


def _group(group_id: str, value: bytes, settings: GroupSettings, now_ms: int) -> ClassicGroup:
    """A group from its metadata record: Stable with members, Empty without. Raises ProtocolError."""
    version, stored = read_group_value(value)
    if stored.members and stored.protocol is None:
        raise ProtocolError(f"group {group_id} has members and no protocol")
    group = ClassicGroup(group_id, settings, now_ms, GroupState.STABLE if stored.members else GroupState.EMPTY)
    group.generation_id = stored.generation
    group.leader_id = stored.leader
    protocol_type = stored.protocol_type or None
    for each in stored.members:
        rebalance_timeout_ms = each.session_timeout if version == 0 else each.rebalance_timeout
        protocols = ((stored.protocol or "", each.subscription),)
        if each.member_id in group.members or each.group_instance_id in group.static_members:
            raise ProtocolError(f"group {group_id} has member {each.member_id} twice")
        member = Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            rebalance_timeout_ms,
            each.session_timeout,
            protocols,
            each.assignment,
        )
        member.has_all_protocols = False
        group.add(member, stored.protocol_type, None)
    if group.members and group.leader_id not in group.members:
        group.leader_id = next(iter(group.members))
    group.protocol_type = protocol_type
    group.protocol_name = stored.protocol
    group.state_timestamp_ms = None if stored.current_state_timestamp == NO_TIMESTAMP else stored.current_state_timestamp
    group.remember_subscriptions()
    return group
