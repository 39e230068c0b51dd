"""Logs for tests of the cleaner: written batch by batch by producers of every kind, and what a reader may find in them."""

from collections.abc import Iterable, Sequence
from typing import Any

from ottla.protocol.records.batch import CONTROL_MASK, BatchHeader, iter_batches
from ottla.protocol.records.builder import ControlRecordType, EndTransactionMarker, build_end_transaction_marker, control_record_type
from ottla.protocol.records.reader import Record, iter_records
from ottla.storage.log.context import LogContext
from ottla.storage.log.lookups import aborted_transactions
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.recovery import open_log
from tests.support.batches import FIRST_TIMESTAMP, a_batch
from tests.support.logs import LOG_DIR, T0, a_config, a_context, follow, read_all

KeyAndValue = tuple[bytes | None, bytes | None]


class Writer:
    """Appends to a log as a follower does, keeping count of the sequence numbers."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self._sequences: dict[int, int] = {}

    def write(
        self, records: Sequence[KeyAndValue], *, producer_id: int = -1, transactional: bool = False, codec: str = "none", **how: Any
    ) -> list[int]:
        """One batch; returns the offsets."""
        first = self.log.log_end_offset
        offsets = list(range(first, first + len(records)))
        sequence = self._sequences.get(producer_id, 0)
        if producer_id >= 0:
            how.setdefault("base_sequence", sequence)
            self._sequences[producer_id] = sequence + len(records)
        made = [Record(offset, FIRST_TIMESTAMP + offset, key, value) for offset, (key, value) in zip(offsets, records, strict=True)]
        self.append(a_batch(made, codec, first, producer_id=producer_id, transactional=transactional, leader_epoch=0, **how))
        return offsets

    def end(self, producer_id: int, *, commit: bool) -> None:
        """The marker of the producer's transaction."""
        marker = EndTransactionMarker(ControlRecordType.COMMIT if commit else ControlRecordType.ABORT, 0)
        offset = self.log.log_end_offset
        self.append(
            build_end_transaction_marker(
                marker,
                timestamp=FIRST_TIMESTAMP + offset,
                producer_id=producer_id,
                producer_epoch=0,
                base_offset=offset,
                partition_leader_epoch=0,
            )
        )

    def append(self, batch: bytearray) -> None:
        """A batch that is ready; it is replicated at once."""
        follow(self.log, batch, 0)
        self.log.update_high_watermark(self.log.log_end_offset)

    def roll(self) -> None:
        """Begins a segment, unless one has just begun."""
        if self.log.segments.active.size:
            self.log.roll()


def a_writer(context: LogContext | None = None, **config: str | int) -> Writer:
    """A compacted log, empty, and what writes to it."""
    settings: dict[str, str | int] = {"cleanup_policy": "compact", "segment_bytes": 1000, "segment_index_bytes": 1200, **config}
    log = open_log(context or a_context(), T0, LOG_DIR, a_config(**settings))
    return Writer(log)


def batches_of(log: PartitionLog) -> list[tuple[BatchHeader, list[Record]]]:
    """All batches of the log with their records."""
    data = read_all(log, log.segments.first.base_offset) if log.log_end_offset else b""
    return [(header, list(iter_records(data, position, header))) for position, header in iter_batches(data)]


def records_of(log: PartitionLog) -> list[Record]:
    """All records but markers, those of aborted transactions too."""
    return [record for header, records in batches_of(log) if not header.attributes & CONTROL_MASK for record in records]


def values_of(log: PartitionLog) -> dict[bytes | None, bytes | None]:
    """The last value of each key for a consumer that reads the whole log, aborted records included."""
    return {record.key: record.value for record in records_of(log)}


def committed_of(log: PartitionLog) -> list[Record]:
    """The records of a read-committed consumer, which gets the aborted transactions as from a fetch."""
    start, end = log.segments.first.base_offset, log.last_stable_offset
    to_come = sorted(aborted_transactions(log, start, end), key=lambda each: each.first_offset)
    aborted: set[int] = set()
    seen: list[Record] = []
    for header, records in batches_of(log):
        if header.base_offset >= end:
            break
        while to_come and to_come[0].first_offset <= header.last_offset:
            aborted.add(to_come.pop(0).producer_id)
        if header.attributes & CONTROL_MASK:
            if any(control_record_type(record.key) is ControlRecordType.ABORT for record in records):
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            seen += records
    return seen


def latest_of(records: Iterable[Record]) -> dict[bytes, Record]:
    """The latest record of each key."""
    return {record.key: record for record in records if record.key is not None}
