"""Prints the files of a partition in the format of Apache Kafka's DumpLogSegments, for tools that parse its output.

Called by `ottla dump-log`. One `Dump` holds the options and collects the inconsistencies of all files; like the
original it prints them at the end, to standard error.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from ottla.cli.dump.decoders import BYTES_DECODERS, Decoder, NotDecodable, plain_decoder
from ottla.cli.dump.index_bytes import (
    IndexEntry,
    TimeEntry,
    base_offset_of,
    beside,
    offset_entries,
    time_entries,
    transaction_entries,
    used_offset_entries,
)
from ottla.cli.dump.segment_bytes import WholeBatch, whole_batches
from ottla.protocol.conversion.old_logs import checksums_of, offsets_and_timestamps_at, records_at
from ottla.protocol.records.batch import NO_SEQUENCE, NO_TIMESTAMP, BatchHeader, TimestampType, crc_is_valid, increment_sequence
from ottla.protocol.records.builder import ControlRecordType, control_record_type, parse_end_transaction_marker
from ottla.protocol.records.compression import CompressionCodec
from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.records.reader import Record, join_header_keys
from ottla.storage.errors import StorageError
from ottla.storage.producers.snapshot import decode_snapshot
from ottla.storage.segment.transaction_index import CURRENT_VERSION

MAX_INT32 = 2**31 - 1
Print = Callable[[str], None]
_TIMESTAMP_TYPES = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}
_STRINGS = plain_decoder(BYTES_DECODERS["StringDecoder"], BYTES_DECODERS["StringDecoder"])


class CannotDump(Exception):
    """A file that cannot be decoded from some point on; the message has the point and the reason."""


class DumpOptions(NamedTuple):
    """The options of the same names."""

    deep_iteration: bool = False
    print_data_log: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    skip_record_metadata: bool = False
    max_message_size: int = 5 * 1024 * 1024
    max_bytes: int = MAX_INT32
    decoder: Decoder = _STRINGS


@dataclass
class Disagreements:
    """Inconsistencies between indexes and logs, by file."""

    index_mismatches: dict[Path, list[tuple[int, int]]] = field(default_factory=dict)
    time_mismatches: dict[Path, list[tuple[int, int]]] = field(default_factory=dict)
    time_disorder: dict[Path, list[tuple[int, int]]] = field(default_factory=dict)
    offsets_not_found: list[tuple[int, int]] = field(default_factory=list)
    gaps: dict[Path, list[tuple[int, int]]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """All inconsistencies, in the original's format and order."""
        found: list[str] = []
        for path, pairs in self.index_mismatches.items():
            found.append(f"Mismatches in :{path.absolute()}")
            found += [f"  Index offset: {index}, log offset: {log}" for index, log in reversed(pairs)]
        for path, pairs in self.time_mismatches.items():
            found.append(f"Found timestamp mismatch in :{path.absolute()}")
            found += [f"  Index timestamp: {index}, log timestamp: {log}" for index, log in pairs]
        for path, pairs in self.time_disorder.items():
            found.append(f"Found out of order timestamp in :{path.absolute()}")
            found += [f"  Index timestamp: {now}, Previously indexed timestamp: {before}" for now, before in pairs]
        if self.offsets_not_found:
            found.append("The following indexed offsets are not found in the log.")
            found += [f"Indexed offset: {index}, found log offset: {log}" for index, log in self.offsets_not_found]
        for path, pairs in self.gaps.items():
            found.append(f"Non-consecutive offsets in {path.absolute()}")
            found += [f"  {first} is followed by {second}" for first, second in reversed(pairs)]
        return found


class Dump:
    """Prints one file after the other."""

    def __init__(self, options: DumpOptions, write: Print) -> None:
        self.options = options
        self.disagreements = Disagreements()
        self._write = write
        self._by_suffix: dict[str, Callable[[Path], None]] = {
            ".log": self._log,
            ".index": self._offset_index,
            ".timeindex": self._time_index,
            ".txnindex": self._transaction_index,
            ".snapshot": self._producer_snapshot,
        }

    def knows(self, path: Path) -> bool:
        """Whether the kind of file can be dumped."""
        return path.suffix in self._by_suffix

    def file(self, path: Path) -> None:
        """Print one file. Raises CannotDump, OSError."""
        self._write(f"Dumping {path}")
        try:
            self._by_suffix[path.suffix](path)
        except (RecordFormatError, NotDecodable) as error:
            raise CannotDump(f"{path}: {error}") from None
        except ValueError as error:
            raise CannotDump(f"{path}: its name does not begin with an offset ({error})") from None

    # ---- the log

    def _log(self, path: Path) -> None:
        options = self.options
        self._write(f"Log starting offset: {base_offset_of(path)}")
        last_offset = -1
        valid_bytes = 0
        with path.open("rb") as file:
            end = min(file.seek(0, 2), options.max_bytes)
            for batch in whole_batches(file, 0, end):
                self._write(batch_line(batch))
                if options.deep_iteration:
                    checksums = checksums_of(batch.buffer, batch.at, batch.header) if batch.header.is_message else repeat(None)
                    records = records_at(batch.buffer, batch.at, batch.header, read_headers=join_header_keys)
                    for record, checksum in zip(records, checksums, strict=False):
                        if last_offset not in (-1, record.offset - 1):
                            self.disagreements.gaps.setdefault(path, []).append((last_offset, record.offset))
                        last_offset = record.offset
                        self._write(self._record_line(batch.header, record, checksum))
                valid_bytes = batch.position + batch.header.size
        if valid_bytes < end and options.max_bytes == MAX_INT32:
            self._write(f"Found {end - valid_bytes} invalid bytes at the end of {path.name}")

    def _record_line(self, header: BatchHeader, record: Record, checksum: tuple[int, bool] | None) -> str:
        parts = []
        if not self.options.skip_record_metadata:
            sequence = NO_SEQUENCE
            if header.base_sequence != NO_SEQUENCE:
                sequence = increment_sequence(header.base_sequence, record.offset - header.base_offset)
            keys = ",".join(key.decode("utf-8", "replace") for key, _ in record.headers)
            parts.append(
                f"offset: {record.offset} {_timestamp_type(header)}: {record.timestamp} keySize: {_size(record.key)} "
                f"valueSize: {_size(record.value)} "
                + (
                    f"sequence: {sequence} headerKeys: [{keys}]"
                    if checksum is None
                    else f"isValid: {_bool(checksum[1])} crc: {checksum[0]}}}"  # the brace is the original's
                )
            )
            if header.is_control:
                parts.append(_control_text(record))
        if self.options.print_data_log and not header.is_control:
            key, payload = self.options.decoder(record)
            if key is not None:
                parts.append(f"key: {key}")
            if payload is not None:
                parts.append(f"payload: {payload}")
        return "| " + " ".join(parts) if parts else ""

    # ---- indexes

    def _offset_index(self, path: Path) -> None:
        base = base_offset_of(path)
        data = path.read_bytes()
        entries = offset_entries(data, base)
        log = beside(path, ".log")
        if not entries:
            self._write(f"{path} is empty.")
            return
        if self.options.index_sanity_check:
            if len(data) % 8:
                raise CannotDump(f"Index file {path} is corrupt, found {len(data)} bytes which is neither positive nor a multiple of 8")
            if entries[-1].offset < base:
                raise CannotDump(
                    f"Corrupt index found, index file {path} has non-zero size but the last offset is {entries[-1].offset} which is less "
                    f"than the base offset {base}"
                )
            self._write(f"{path} passed sanity check.")
            return
        with log.open("rb") as file:
            size = file.seek(0, 2)
            for number, entry in enumerate(entries):
                if entry.offset == base and number:
                    return
                batch = next(whole_batches(file, entry.position, min(size, entry.position + self.options.max_message_size)), None)
                if batch is None:
                    raise CannotDump(f"{path}: its entry of offset {entry.offset} points to byte {entry.position}, where no batch begins")
                if batch.header.last_offset != entry.offset:
                    self.disagreements.index_mismatches.setdefault(path, []).append((entry.offset, batch.header.last_offset))
                if not self.options.verify_index_only:
                    self._write(f"offset: {entry.offset} position: {entry.position}")

    def _time_index(self, path: Path) -> None:
        base = base_offset_of(path)
        data = path.read_bytes()
        entries = time_entries(data, base)
        if self.options.index_sanity_check:
            _check_time_index(path, data, entries, base)
            self._write(f"{path} passed sanity check.")
            return
        offset_index = beside(path, ".index")
        positions = used_offset_entries(offset_index.read_bytes(), base) if offset_index.exists() else []
        previous = NO_TIMESTAMP
        with beside(path, ".log").open("rb") as file:
            size = file.seek(0, 2)
            for number, entry in enumerate(entries):
                if entry.offset == base and number:
                    return
                batches = whole_batches(file, _position_before(positions, entry.offset), size)
                batch = next((batch for batch in batches if batch.header.last_offset >= entry.offset), None)
                if batch is None or batch.header.last_offset != entry.offset:
                    self.disagreements.offsets_not_found.append((entry.offset, -1 if batch is None else batch.header.last_offset))
                else:
                    records = offsets_and_timestamps_at(batch.buffer, batch.at, batch.header)
                    latest = max((timestamp for _, timestamp in records), default=NO_TIMESTAMP)
                    if latest != entry.timestamp:
                        self.disagreements.time_mismatches.setdefault(path, []).append((entry.timestamp, latest))
                    if previous >= entry.timestamp:
                        self.disagreements.time_disorder.setdefault(path, []).append((entry.timestamp, previous))
                if not self.options.verify_index_only:
                    self._write(f"timestamp: {entry.timestamp} offset: {entry.offset}")
                previous = entry.timestamp

    def _transaction_index(self, path: Path) -> None:
        for version, producer_id, first_offset, last_offset, last_stable_offset in transaction_entries(path.read_bytes()):
            if version > CURRENT_VERSION:
                raise CannotDump(f"{path}: unknown version {version}")
            self._write(
                f"version: {version} producerId: {producer_id} firstOffset: {first_offset} lastOffset: {last_offset} "
                f"lastStableOffset: {last_stable_offset}"
            )

    def _producer_snapshot(self, path: Path) -> None:
        try:
            entries = decode_snapshot(path.read_bytes(), str(path))
        except StorageError as error:
            raise CannotDump(str(error)) from None
        for entry in entries:
            line = (
                f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} coordinatorEpoch: {entry.coordinator_epoch} "
                f"currentTxnFirstOffset: {_optional(entry.current_txn_first_offset)} lastTimestamp: {entry.last_timestamp} "
            )
            for last_sequence, last_offset, delta, timestamp in entry.batches:
                first_sequence = increment_sequence(last_sequence, -delta)
                line += (
                    f"firstSequence: {first_sequence} lastSequence: {last_sequence} lastOffset: {last_offset} offsetDelta: {delta} "
                    f"timestamp: {timestamp}"
                )
            self._write(line)


def batch_line(batch: WholeBatch) -> str:
    """The line of one batch."""
    header = batch.header
    codec = header.compression_codec
    horizon = "OptionalLong.empty" if header.delete_horizon_ms is None else f"OptionalLong[{header.delete_horizon_ms}]"
    start = (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_bool(header.is_transactional)} isControl: {_bool(header.is_control)} deleteHorizonMs: {horizon}"
    )
    if header.is_message:
        start = f"offset: {header.last_offset}"
    return (
        f"{start} position: {batch.position} {_timestamp_type(header)}: {header.max_timestamp} size: {header.size} "
        f"magic: {header.magic} compresscodec: {CompressionCodec(codec).label if codec <= CompressionCodec.ZSTD else codec} "
        f"crc: {header.crc} isvalid: {_bool(crc_is_valid(batch.buffer, batch.at))}"
    )


def _timestamp_type(header: BatchHeader) -> str:
    return _TIMESTAMP_TYPES[header.timestamp_type] if header.magic else "NoTimestampType"


def _control_text(record: Record) -> str:
    kind = control_record_type(record.key)
    if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        marker = parse_end_transaction_marker(record)
        return f"endTxnMarker: {marker.type.name} coordinatorEpoch: {marker.coordinator_epoch}"
    return f"controlType: {kind.name}({int.from_bytes((record.key or b'')[2:4], 'big', signed=True)})"


def _check_time_index(path: Path, data: bytes, entries: list[TimeEntry], base: int) -> None:
    if entries and entries[-1].timestamp < entries[0].timestamp:
        raise CannotDump(
            f"Corrupt time index found, time index file ({path}) has non-zero size but the last timestamp is {entries[-1].timestamp} which "
            f"is less than the first timestamp {entries[0].timestamp}"
        )
    if entries and entries[-1].offset < base:
        raise CannotDump(
            f"Corrupt time index found, time index file ({path}) has non-zero size but the last offset is {entries[-1].offset} which is "
            f"less than the first offset {base}"
        )
    if len(data) % 12:
        raise CannotDump(f"Time index file {path} is corrupt, found {len(data)} bytes which is neither positive nor a multiple of 12")


def _position_before(entries: list[IndexEntry], offset: int) -> int:
    position = 0
    for entry in entries:
        if entry.offset > offset:
            break
        position = entry.position
    return position


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int) -> str:
    return f"OptionalLong[{value}]" if value >= 0 else "OptionalLong.empty"
