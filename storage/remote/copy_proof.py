"""Proves that the indexes of a copy are those of its records, which are read once from the first byte to the last.

`record_walk` verifies the records. Here each entry of the offset index has to name a batch, each one of the time index the largest
timestamp so far, and each aborted transaction a marker; and each marker has to have an entry.

The indexes stay bytes, in which a search finds entries: as objects they would take ten times the memory.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.protocol.records.builder import ControlRecordType
from ottla.protocol.records.reader import iter_records
from ottla.storage.disk.leader_epochs import decode_leader_epochs
from ottla.storage.errors import CorruptCheckpoint, CorruptIndex, CorruptSnapshot
from ottla.storage.producers.snapshot import check_snapshot
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.index_checks import check_index
from ottla.storage.remote.ports import IndexKind
from ottla.storage.remote.record_walk import Batches

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TRANSACTION_ENTRY: Final = struct.Struct(">hqqqq")
_CONTROL_KEY: Final = struct.Struct(">hh")
_AT_MOST: Final = 10
"""Faults of one copy that are reported."""


class CopyProof:
    """The proof of one copy. `add` takes its batches in, `faults` judges at the end."""

    def __init__(self, entry: SegmentEntry, indexes: Mapping[IndexKind, bytes]) -> None:
        self._entry = entry
        self._faults: list[str] = []
        for kind, data in indexes.items():
            try:
                check_index(entry, kind, data)
            except CorruptIndex as error:
                self._faults.append(str(error))
        self._check_text(indexes)
        self._positions = _Entries(_OFFSET_ENTRY, indexes[IndexKind.OFFSET], 1)
        self._times = _Entries(_TIME_ENTRY, indexes[IndexKind.TIMESTAMP], 1)
        self._aborted = _Entries(_TRANSACTION_ENTRY, indexes[IndexKind.TRANSACTION], 3)
        self._begun: dict[int, int] = {}
        """Producer -> first offset of its open transaction, as far as this segment tells."""
        self._ended: set[int] = set()
        """Producers with a marker in this segment: their next transactions begin in it."""
        self._largest = -1

    def add(self, batches: Batches) -> None:
        """Takes the next batches in. Blocks for a compressed control batch only, of which there are none."""
        for position, header, data in batches:
            at = self._positions.first_from(position)
            if self._positions.key_of(at) == position:
                offset = self._entry.start_offset + self._positions.take(at)[0]
                if not header.base_offset <= offset:
                    self._fault(f"the offset index has offset {offset} at byte {position}, where offset {header.base_offset} begins")
            self._check_times(header.base_offset, header.last_offset, header.max_timestamp)
            if header.is_control:
                self._end_transactions(header.producer_id, data)
            elif header.is_transactional:
                self._begun.setdefault(header.producer_id, header.base_offset)

    def faults(self) -> list[str]:
        """Returns what is wrong, some of it if that is much."""
        base = self._entry.start_offset
        for offset, position in self._positions.left():
            self._fault(f"the offset index has offset {base + offset} at byte {position}, where no batch begins")
        for timestamp, offset in self._times.left():
            self._fault(f"the time index has timestamp {timestamp} at offset {base + offset}, where no batch is")
        if self._largest != self._entry.max_timestamp_ms and self._largest >= 0:
            self._fault(f"the largest timestamp is {self._largest}, and that of the entry {self._entry.max_timestamp_ms}")
        for _, producer, _, last, _ in self._aborted.left():
            self._fault(f"the transaction index has an abort of producer {producer} at offset {last}, where none is")
        return self._faults[:_AT_MOST]

    def _check_text(self, indexes: Mapping[IndexKind, bytes]) -> None:
        name = "the copy"
        try:
            check_snapshot(indexes[IndexKind.PRODUCER_SNAPSHOT], name)
            epochs = dict(decode_leader_epochs(indexes[IndexKind.LEADER_EPOCH], name))
        except (CorruptCheckpoint, CorruptSnapshot) as error:
            self._faults.append(str(error))
            return
        for epoch, offset in self._entry.leader_epochs.items():
            if epochs.get(epoch, offset + 1) > offset:
                self._fault(f"the leader epochs of the copy do not have epoch {epoch} from offset {offset} on")

    def _check_times(self, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        base = self._entry.start_offset
        at = self._times.first_from(base_offset - base)
        while (offset := self._times.key_of(at)) is not None and offset <= last_offset - base:
            timestamp = self._times.take(at)[0]
            at += 1
            if timestamp != max_timestamp or self._largest >= timestamp:
                self._fault(
                    f"the time index has timestamp {timestamp} at offset {base + offset}, and the largest one is {max_timestamp} there, "
                    f"{self._largest} before"
                )
        self._largest = max(self._largest, max_timestamp)

    def _end_transactions(self, producer: int, data: bytes) -> None:
        for record in iter_records(data):
            if record.key is None or len(record.key) < _CONTROL_KEY.size:
                continue
            kind = _CONTROL_KEY.unpack_from(record.key)[1]
            begun = self._begun.pop(producer, None)
            known = producer in self._ended
            self._ended.add(producer)
            if kind != ControlRecordType.ABORT:
                continue
            first = self._first_of(producer, record.offset)
            if first is None:
                self._fault(f"the transaction index does not have the abort of producer {producer} at offset {record.offset}")
            elif begun is not None and (first > begun or (known and first != begun)):
                self._fault(f"the transaction of producer {producer} began at offset {begun}, and its entry says {first}")

    def _first_of(self, producer: int, last: int) -> int | None:
        """The first offset of an aborted transaction, as its entry says."""
        at = self._aborted.first_from(last)
        if self._aborted.key_of(at) != last or self._aborted.fields(at)[1] != producer:
            return None
        return self._aborted.take(at)[2]

    def _fault(self, text: str) -> None:
        if len(self._faults) < _AT_MOST:
            self._faults.append(text)


class _Entries:
    """The whole entries of an index by a field that increases, and which of them were taken; `check_index` tells of a part of one."""

    def __init__(self, form: struct.Struct, data: bytes, key: int) -> None:
        self._form = form
        self._data = data
        self._key = key
        self._is_taken = bytearray(len(data) // form.size)

    def first_from(self, key: int) -> int:
        """Returns the number of the first entry with at least this key."""
        return bisect_left(range(len(self._is_taken)), key, key=lambda at: self.fields(at)[self._key])

    def key_of(self, at: int) -> int | None:
        """Returns the key of an entry; None behind the last one."""
        return self.fields(at)[self._key] if at < len(self._is_taken) else None

    def fields(self, at: int) -> tuple[int, ...]:
        """Returns an entry."""
        return self._form.unpack_from(self._data, at * self._form.size)

    def take(self, at: int) -> tuple[int, ...]:
        """Returns an entry, which is not left then."""
        self._is_taken[at] = 1
        return self.fields(at)

    def left(self) -> Iterator[tuple[int, ...]]:
        """Returns the entries that were not taken."""
        at = -1
        while (at := self._is_taken.find(0, at + 1)) >= 0:
            yield self.fields(at)
