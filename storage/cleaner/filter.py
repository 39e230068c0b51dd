"""Decides for each batch of a cleaning: keep it unchanged, rewrite it without some records, keep only its header, or
drop it.

Used by `run`, one for each cleaning of a log. The rules are those of Apache Kafka's Cleaner and of
MemoryRecords.filterTo:

- A record is kept if it is the latest of its key. A record without a key is dropped. Records beyond the map are kept.
- A tombstone, and a marker of a transaction without remaining records, are kept until the delete horizon of their batch
  (KIP-534): `delete.retention.ms` after the cleaner first met them.
- Records of aborted transactions are dropped.
- The last batch of a producer is kept, if necessary as an empty header, so that its sequence number and epoch are not
  lost.
- The last batch of the cleaned part is kept in the same way, so that the end of the log does not change.
"""

from collections.abc import Mapping

from ottla.protocol.records.batch import CONTROL_MASK, BatchHeader, Buffer
from ottla.protocol.records.builder import empty_batch
from ottla.protocol.records.reader import record_data
from ottla.storage.cleaner.job import CleaningStats
from ottla.storage.cleaner.offset_map import TOMBSTONE, OffsetMap
from ottla.storage.cleaner.records import KeptRecord, keep, keep_by_position, rewrite
from ottla.storage.cleaner.transactions import CleanedTransactions

_TOMBSTONE = bytes([TOMBSTONE])


class BatchFilter:
    """Called for every batch in the order of the log."""

    __slots__ = ("_delete_retention_ms", "_end_offset", "_last_of_producers", "_map", "_now_ms", "_stats", "transactions")

    def __init__(
        self,
        offset_map: OffsetMap,
        last_of_producers: Mapping[int, tuple[int, int]],
        *,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
        stats: CleaningStats,
    ) -> None:
        """`last_of_producers` has the last data offset (-1 if none) and the epoch of each active producer; `end_offset`
        is the end of the cleanable part of the log."""
        self._map = offset_map
        self._last_of_producers = last_of_producers
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._stats = stats
        self.transactions = CleanedTransactions()

    def filter(self, buffer: Buffer, position: int, header: BatchHeader) -> bytearray | bool:
        """True to keep the batch unchanged, False to drop it, or its replacement. Raises RecordFormatError, OSError."""
        horizon_ms = header.delete_horizon_ms
        is_control = header.attributes & CONTROL_MASK
        if is_control:
            is_done_with = self.transactions.on_control(buffer, position, header)
            discard = is_done_with and horizon_ms is not None and horizon_ms <= self._now_ms
        else:
            discard = self.transactions.on_data(header)
        if discard:
            return self._emptied(header)
        self._stats.messages_read += header.record_count
        if not is_control:
            kept = self._filter_data(buffer, position, header, horizon_ms)
        elif not header.record_count:
            kept = False
        elif is_done_with and horizon_ms is None:
            data = record_data(buffer, position, header)
            kept = self._rewrite(data, header, keep(data, header, ()), self._now_ms + self._delete_retention_ms)
        else:
            kept = True
            self._stats.messages_written += header.record_count
        return self._emptied(header) if kept is False else kept

    def _filter_data(self, buffer: Buffer, position: int, header: BatchHeader, horizon_ms: int | None) -> bytearray | bool:
        drop_tombstones = horizon_ms is not None and horizon_ms <= self._now_ms
        count = header.record_count
        live = self._map.live_in(header.base_offset, header.last_offset)
        if live is not None:
            kept_count = len(live) - live.count(0)
            if not kept_count:
                return False
            has_tombstone = TOMBSTONE in live
            if kept_count == count and not (has_tombstone and (drop_tombstones or horizon_ms is None)):
                self._stats.messages_written += count
                return True
            data = record_data(buffer, position, header)
            if drop_tombstones:
                live = live.replace(_TOMBSTONE, b"\0")
                has_tombstone = False
            if len(live) == count and header.base_offset not in self._map.irregular:
                kept = keep_by_position(data, live)
            else:
                kept = keep(data, header, {header.base_offset + delta for delta, kind in enumerate(live) if not kind})
        else:
            data = record_data(buffer, position, header)
            dropped, without_key, has_tombstone = self._map.superseded(data, header, drop_tombstones=drop_tombstones)
            self._stats.invalid_messages_read += without_key
            if not dropped and not (has_tombstone and horizon_ms is None):
                self._stats.messages_written += count
                return count > 0
            if len(dropped) == count:
                return False
            kept = keep(data, header, dropped)
        if has_tombstone and horizon_ms is None:
            horizon_ms = self._now_ms + self._delete_retention_ms
        return self._rewrite(data, header, kept, horizon_ms)

    def _rewrite(self, data: bytes, header: BatchHeader, kept: list[KeptRecord], horizon_ms: int | None) -> bytearray | bool:
        if not kept:
            return False
        self._stats.messages_written += len(kept)
        return rewrite(data, header, kept, horizon_ms)

    def _emptied(self, header: BatchHeader) -> bytearray | bool:
        """The result for a batch without remaining records: False, or its header if that has to be kept."""
        if header.next_offset != self._end_offset and not self._is_last_of_producer(header):
            return False
        return empty_batch(
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            timestamp=header.max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            timestamp_type=header.timestamp_type,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            partition_leader_epoch=header.partition_leader_epoch,
        )

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id < 0:
            return False
        last = self._last_of_producers.get(header.producer_id)
        if last is None:
            return False
        last_data_offset, producer_epoch = last
        if last_data_offset >= 0:
            return header.last_offset == last_data_offset
        return header.is_control and header.producer_epoch == producer_epoch
