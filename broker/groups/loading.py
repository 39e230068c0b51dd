"""Reading groups and offsets back out of the records of `__consumer_offsets`.

Pure: `GroupLoader` takes the bytes of the log in order, then makes the groups. Of every key only the latest value is decoded, which makes
loading a log that was not compacted yet cheap. Both halves are generators that pause every few records, so that the event loop can do
other things.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TypeAlias

from broker.groups.group import Group, GroupSettings, GroupState, Member
from broker.groups.offsets import CommittedOffset
from broker.groups.records import GroupKey, OffsetKey, read_group_value, read_key, read_offset_value
from protocol.record_builder import ControlRecordType, control_record_type
from protocol.record_errors import RecordFormatError
from protocol.record_reader import iter_keys_and_values, iter_records, record_data
from protocol.records import iter_batches
from protocol.wire import ProtocolError

logger = logging.getLogger(__name__)

RECORDS_PER_PAUSE = 64
NO_TIMESTAMP = -1


_Stored: TypeAlias = tuple[int, bytes]
"""Where the batch of a key's latest value begins, and the value. A plain tuple: a log may have millions of records."""


class GroupLoader:
    """See the module. `skipped` counts records that cannot be read; they are left out, and the rest is served."""

    __slots__ = ("_latest", "_open", "name", "skipped")

    def __init__(self, name: str) -> None:
        self.name = name
        self.skipped = 0
        self._latest: dict[bytes, _Stored] = {}
        self._open: dict[int, dict[bytes, _Stored]] = {}

    def feed(self, data: bytes) -> Iterator[None]:
        """Take in whole batches, the next in the log."""
        count = 0
        for position, header in iter_batches(data):
            try:
                if header.is_control:
                    for record in iter_records(data, position, header):
                        self._end_transaction(header.producer_id, is_commit=control_record_type(record.key) is ControlRecordType.COMMIT)
                        break
                    continue
                target = self._open.setdefault(header.producer_id, {}) if header.is_transactional else self._latest
                base_offset = header.base_offset
                for key, value in iter_keys_and_values(record_data(data, position, header), header):
                    if key is None:
                        self.skipped += 1
                    elif value is None:
                        target.pop(key, None)
                    else:
                        target[key] = (base_offset, value)
                    count += 1
                    if count % RECORDS_PER_PAUSE == 0:
                        yield
            except RecordFormatError as error:
                self.skipped += 1
                logger.error("%s: the batch at offset %d cannot be read (%s); left out", self.name, header.base_offset, error)
            yield

    def _end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        committed = self._open.pop(producer_id, {})
        if not is_commit:
            return
        for key, stored in committed.items():
            known = self._latest.get(key)
            if known is None or known[0] < stored[0]:
                self._latest[key] = stored

    def groups(self, settings: GroupSettings, now_ms: int, into: dict[str, Group]) -> Iterator[None]:
        """Put the groups that were found into `into`."""
        offsets: list[tuple[OffsetKey, int | None, _Stored]] = []
        count = 0
        for key, stored in self._latest.items():
            self._sort(key, stored, None, settings, now_ms, into, offsets)
            count += 1
            if count % RECORDS_PER_PAUSE == 0:
                yield
        for producer_id, of_producer in self._open.items():
            for key, stored in of_producer.items():
                self._sort(key, stored, producer_id, settings, now_ms, into, offsets)
        for (group_id, partition), owner, stored in offsets:
            count += 1
            if count % RECORDS_PER_PAUSE == 0:
                yield
            try:
                commit = CommittedOffset(stored[0], read_offset_value(stored[1]))
            except ProtocolError as error:
                self._skip(f"an offset of group {group_id}", error)
                continue
            group = into.get(group_id)
            if group is None:
                group = into[group_id] = Group(group_id, settings, now_ms)
            if owner is None:
                group.offsets.committed[partition] = commit
            else:
                group.offsets.transactional.setdefault(owner, {})[partition] = commit

    def _sort(
        self,
        key: bytes,
        stored: _Stored,
        producer_id: int | None,
        settings: GroupSettings,
        now_ms: int,
        into: dict[str, Group],
        offsets: list[tuple[OffsetKey, int | None, _Stored]],
    ) -> None:
        try:
            found = read_key(key)
            if isinstance(found, OffsetKey):
                offsets.append((found, producer_id, stored))
            elif isinstance(found, GroupKey):
                into[found.group_id] = _group(found.group_id, stored[1], settings, now_ms)
        except ProtocolError as error:
            self._skip("a record", error)

    def _skip(self, what: str, error: ProtocolError) -> None:
        self.skipped += 1
        logger.error("%s: %s cannot be read (%s); left out", self.name, what, error)


def _group(group_id: str, value: bytes, settings: GroupSettings, now_ms: int) -> Group:
    """A group as its metadata record has it: Stable with members, Empty without. Raises ProtocolError."""
    version, stored = read_group_value(value)
    if stored.members and stored.protocol is None:
        raise ProtocolError(f"group {group_id} has members and no protocol")
    group = Group(group_id, settings, now_ms, GroupState.STABLE if stored.members else GroupState.EMPTY)
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
        group.add(member, stored.protocol_type, None)
    if group.members and group.leader_id not in group.members:
        group.leader_id = next(iter(group.members))
    group.protocol_type = protocol_type
    group.protocol_name = stored.protocol
    group.state_timestamp_ms = None if stored.current_state_timestamp == NO_TIMESTAMP else stored.current_state_timestamp
    group.remember_subscriptions()
    return group
