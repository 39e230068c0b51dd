"""Holds the entries of the segments of one partition, by uuid and by leader epoch: RemoteLogMetadataCache of Apache Kafka.

All brokers of a cluster apply the same records in the same order, so this module follows Apache Kafka's steps exactly, also where they are
odd. An epoch has the finished copies by offset. Its unreferenced copies are those that are not finished, being deleted, or superseded.

In two cases this cache knows more. A copy with the same start as an earlier one and a lower end replaces it. Apache Kafka lists the earlier
one for no epoch then; here it is an unreferenced one. And a copy behind which shorter ones begin still has the offsets behind those.

An entry of the usual form costs 170 to 200 bytes, mostly for its packed form and for the uuid, which are one object each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, overload

from ottla.large_table import LargeTable
from ottla.storage.remote.entries import Accepts, SegmentEntry, SegmentState, TopicIdPartition, any_copy
from ottla.storage.remote.metadata.packed_entries import STATE_AT, changed, end_in, epochs_of, offset_in, start_of, unpack
from ottla.storage.remote.object_layout import is_marked

_STARTED: Final = int(SegmentState.COPY_SEGMENT_STARTED)
_FINISHED: Final = int(SegmentState.COPY_SEGMENT_FINISHED)
_DELETING: Final = int(SegmentState.DELETE_SEGMENT_STARTED)
_DELETED: Final = int(SegmentState.DELETE_SEGMENT_FINISHED)
_BEFORE_ALL: Final = -(2**63) - 1
"""Less than any offset that a record may name."""

_MOST_BEHIND: Final = 64
"""Copies that may begin behind the one that has an offset, and end before that offset. Segments of one log differ by less."""

_ALLOWED: Final = frozenset(
    (
        (_STARTED, _FINISHED),
        (_STARTED, _DELETING),
        (_FINISHED, _FINISHED),
        (_FINISHED, _DELETING),
        (_DELETING, _DELETING),
        (_DELETING, _DELETED),
    )
)
"""The changes by updates: (state, new state). Only a record of a segment has the state COPY_SEGMENT_STARTED."""


class RecordRefused(Exception):
    """A record does not fit the state of its segment, and changes nothing. All brokers refuse it."""


class EpochSegments:
    """The segments of a leader epoch. `keys` are those of finished copies, by offset."""

    __slots__ = ("highest_offset", "keys", "unreferenced")

    def __init__(self) -> None:
        self.keys: list[int] = []
        self.unreferenced: set[int] = set()
        self.highest_offset: int | None = None


class SegmentEntries(Sequence[SegmentEntry]):
    """The entries of a partition at one moment, which are unpacked when they are read."""

    __slots__ = ("_found", "_partition")

    def __init__(self, partition: TopicIdPartition, found: list[tuple[int, bytes]]) -> None:
        self._partition = partition
        self._found = found

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, index: int) -> SegmentEntry: ...

    @overload
    def __getitem__(self, index: slice) -> SegmentEntries: ...

    def __getitem__(self, index: int | slice) -> SegmentEntry | SegmentEntries:
        if isinstance(index, slice):
            return SegmentEntries(self._partition, self._found[index])
        return unpack(self._partition, *self._found[index])

    def __iter__(self) -> Iterator[SegmentEntry]:
        for key, packed in self._found:
            yield unpack(self._partition, key, packed)


class SegmentCache:
    """See the module. Keys are uuids as numbers. `packed`, `epochs` and `marked_key` are for snapshots."""

    __slots__ = ("epochs", "marked_key", "packed", "partition")

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self.packed: LargeTable[int, bytes] = LargeTable()
        self.epochs: dict[int, EpochSegments] = {}
        self.marked_key: int | None = None
        """The copy in whose metadata a leader has noted that the copies are not those of its log."""

    def __len__(self) -> int:
        return len(self.packed)

    # -- changes -----------------------------------------------------------------------------------------------------------

    def add(self, key: int, packed: bytes) -> None:
        """Takes in the entry of a copy that begins. Raises RecordRefused."""
        state = packed[STATE_AT]
        if state != _STARTED:
            raise RecordRefused(f"the record of a new segment has the state {SegmentState(state).name}")
        known = self.packed.get(key)
        if known is not None and known[STATE_AT] != _STARTED:
            raise RecordRefused(f"a segment in state {SegmentState(known[STATE_AT]).name} is added again")
        self.packed[key] = packed
        for epoch, _ in epochs_of(packed):
            segments = self.epochs.get(epoch) or self._epoch(epoch)
            segments.unreferenced.add(key)

    def change(self, key: int, state: int, broker_id: int, event_timestamp_ms: int, custom: bytes | None) -> None:
        """Takes in the new state of a copy. Raises RecordRefused."""
        known = self.packed.get(key)
        if known is None:
            raise RecordRefused(f"the segment that shall be in state {SegmentState(state).name} is not known")
        if (known[STATE_AT], state) not in _ALLOWED:
            raise RecordRefused(f"a segment in state {SegmentState(known[STATE_AT]).name} does not become {SegmentState(state).name}")
        packed = changed(known, state, broker_id, event_timestamp_ms, custom)
        if state == _FINISHED:
            if known[STATE_AT] == _FINISHED:
                self._take_mark(key, custom)
            self._finish(key, packed)
        elif state == _DELETING:
            self._begin_deletion(key, packed)
        else:
            for epoch, _ in epochs_of(packed):
                self._epoch(epoch).unreferenced.discard(key)
            del self.packed[key]
            return
        self.packed[key] = packed

    def _take_mark(self, key: int, custom: bytes | None) -> None:
        """The mark comes by an update of a finished copy, and goes by another one."""
        if is_marked(custom):
            self.marked_key = key
        elif self.marked_key == key:
            self.marked_key = None

    def _finish(self, key: int, packed: bytes) -> None:
        epochs = epochs_of(packed)
        for epoch, offset in epochs:
            segments = self.epochs.get(epoch) or self._epoch(epoch)
            end = end_in(packed, epochs, epoch)
            keys, highest = segments.keys, segments.highest_offset
            last = self._offset(keys[-1], epoch) if keys else _BEFORE_ALL
            if highest is None or highest <= end:
                segments.highest_offset = end
                while last >= offset:
                    segments.unreferenced.add(keys.pop())
                    last = self._offset(keys[-1], epoch) if keys else _BEFORE_ALL
            if last < offset:
                keys.append(key)
            else:
                at = self._position(keys, epoch, offset)
                if self._offset(keys[at], epoch) == offset:
                    segments.unreferenced.add(keys[at])
                    keys[at] = key
                else:
                    keys.insert(at, key)
            segments.unreferenced.discard(key)

    def _begin_deletion(self, key: int, packed: bytes) -> None:
        for epoch, offset in epochs_of(packed):
            segments = self._epoch(epoch)
            at = self._position(segments.keys, epoch, offset)
            if at < len(segments.keys) and segments.keys[at] == key:
                del segments.keys[at]
            segments.unreferenced.add(key)

    def _epoch(self, epoch: int) -> EpochSegments:
        segments = self.epochs.get(epoch)
        if segments is None:
            segments = self.epochs[epoch] = EpochSegments()
        return segments

    def _position(self, keys: list[int], epoch: int, offset: int) -> int:
        """The first of the copies that begin in the epoch at the offset or later."""
        return bisect_left(keys, offset, key=lambda each: self._offset(each, epoch))

    def _offset(self, key: int, epoch: int) -> int:
        return offset_in(self.packed[key], epoch)

    # -- questions ---------------------------------------------------------------------------------------------------------

    def find(self, epoch: int, offset: int, accepts: Accepts = any_copy) -> SegmentEntry | None:
        """Finds a finished copy that has the offset in that epoch, and is accepted. Of those, one that begins next to the offset.

        A leader knows by `accepts` the copies of its log. One of a lost history hides none of them.
        """
        segments = self.epochs.get(epoch)
        if segments is None:
            return None
        at = bisect_right(segments.keys, offset, key=lambda each: self._offset(each, epoch))
        for key in reversed(segments.keys[max(at - _MOST_BEHIND, 0) : at]):
            packed = self.packed[key]
            if offset <= end_in(packed, epochs_of(packed), epoch):
                entry = unpack(self.partition, key, packed)
                if accepts(entry):
                    return entry
        for key in segments.unreferenced:
            packed = self.packed.get(key)
            if packed is not None and packed[STATE_AT] == _FINISHED and _has(packed, epoch, offset):
                entry = unpack(self.partition, key, packed)
                if accepts(entry):
                    return entry
        return None

    def get(self, uuid: bytes) -> SegmentEntry | None:
        """Returns the entry of a copy."""
        key = int.from_bytes(uuid, "big")
        packed = self.packed.get(key)
        return None if packed is None else unpack(self.partition, key, packed)

    def marked(self) -> SegmentEntry | None:
        """Returns the finished copy with the mark."""
        packed = None if self.marked_key is None else self.packed.get(self.marked_key)
        if self.marked_key is None or packed is None or packed[STATE_AT] != _FINISHED:
            return None
        return unpack(self.partition, self.marked_key, packed)

    def highest_offset(self, epoch: int) -> int | None:
        """Returns the largest offset that finished copies have had in the epoch, deleted ones included."""
        segments = self.epochs.get(epoch)
        return None if segments is None else segments.highest_offset

    def entries(self, epoch: int) -> SegmentEntries:
        """Returns the entries of an epoch by start offset, unreferenced ones included."""
        segments = self.epochs.get(epoch)
        if segments is None:
            return SegmentEntries(self.partition, [])
        packed = self.packed
        found = [(key, packed[key]) for key in segments.keys]
        if segments.unreferenced:
            # One that was added twice with other epochs stays in those of the first time.
            found += [(key, packed[key]) for key in segments.unreferenced if key in packed]
            found.sort(key=lambda each: start_of(each[1]))
        return SegmentEntries(self.partition, found)

    def unfinished(self, epoch: int) -> SegmentEntries:
        """Returns the entries of an epoch that are not those of finished copies, by start offset. Looks at no other ones."""
        segments = self.epochs.get(epoch)
        known = [] if segments is None else [(key, self.packed.get(key)) for key in segments.unreferenced]
        found = [(key, packed) for key, packed in known if packed is not None and packed[STATE_AT] != _FINISHED]
        found.sort(key=lambda each: start_of(each[1]))
        return SegmentEntries(self.partition, found)

    def all_entries(self) -> SegmentEntries:
        """Returns all entries, in no order."""
        return SegmentEntries(self.partition, list(self.packed.keys_and_values()))


def _has(packed: bytes, epoch: int, offset: int) -> bool:
    epochs = epochs_of(packed)
    first = dict(epochs).get(epoch)
    return first is not None and first <= offset <= end_in(packed, epochs, epoch)
