"""Reads and writes the file that keeps a partition's producers over a restart: `<offset>.snapshot`, in Kafka's binary format.

    version int16 (1), crc uint32 (CRC-32C of all that follows), count int32, then per producer
    producer_id int64, epoch int16, last_sequence int32, last_offset int64, offset_delta int32, timestamp int64, coordinator_epoch int32,
    current_txn_first_offset int64 (-1 without an open transaction)

Only the last of a producer's five batches is kept. Called by `state_manager`, which writes small snapshots at once. A snapshot of many
producers is a `SnapshotWrite`, which a thread writes piece by piece. The head is written last, so a snapshot cut short by a crash has no
valid version.
"""

import struct
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from ottla.protocol.records.batch import NO_SEQUENCE, NO_TIMESTAMP
from ottla.protocol.records.checksum import crc32c
from ottla.storage.disk.filesystem import File
from ottla.storage.errors import CorruptSnapshot
from ottla.storage.producers.state import NONE, ProducerStateEntry

VERSION = 1
_HEAD = struct.Struct(">hIi")
_CRC_END = 6
_ENTRY = struct.Struct(">qhiqiqiq")


_COUNT = struct.Struct(">i")
_NO_BATCH = (NO_SEQUENCE, NONE, 0, NO_TIMESTAMP)

PRODUCERS_PER_STEP = 500
"""Producers per piece: 0.4 ms, during which the thread holds the interpreter."""


def encode_snapshot(entries: Collection[ProducerStateEntry]) -> bytes:
    """The bytes of the file, with the entries in the given order."""
    body = _encode_entries(entries)
    count = _COUNT.pack(len(entries))
    return _HEAD.pack(VERSION, crc32c(body, crc32c(count)), len(entries)) + body


def _encode_entries(entries: Iterable[ProducerStateEntry]) -> bytes:
    pack = _ENTRY.pack
    parts = []
    for entry in entries:
        batches = entry.batches
        last_sequence, last_offset, offset_delta, _ = batches[-1] if batches else _NO_BATCH
        parts.append(
            pack(
                entry.producer_id,
                entry.producer_epoch,
                last_sequence,
                last_offset,
                offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
        )
    return b"".join(parts)


class SnapshotWrite:
    """A snapshot that is being written. `entries` must not change until it `is_done`.

    Any thread may call `step` and `run`, even several threads at once. Both may raise OSError, and do so again in all later calls. After
    any other error, for example a lack of memory, the next call begins again with the first piece.
    """

    __slots__ = ("_checksum", "_count", "_entries", "_error", "_file", "_lock", "_position", "_rest", "is_done")

    def __init__(self, file: File, entries: Mapping[int, ProducerStateEntry]) -> None:
        self._file = file
        self._count = len(entries)
        self._entries = entries
        self._lock = threading.Lock()
        self._error: OSError | None = None
        self.is_done = False
        self._begin()

    def step(self) -> None:
        """Writes the next piece, if any is left."""
        with self._lock:
            self._step()

    def run(self) -> None:
        """Writes all remaining pieces."""
        with self._lock:
            while not self.is_done:
                self._step()

    def _begin(self) -> None:
        self._rest = iter(self._entries.values())
        self._checksum = crc32c(_COUNT.pack(self._count))
        self._position = 0

    def _step(self) -> None:
        if self._error is not None:
            raise self._error  # a piece is missing
        if self.is_done:
            return
        try:
            self._write_piece(self._file)
        except OSError as error:
            self._error = error
            raise
        except Exception:
            self._begin()  # a piece is missing
            raise

    def _write_piece(self, file: File) -> None:
        if self._position == 0:
            file.truncate(0)  # the file may be an old one
            self._position = _HEAD.size
        body = _encode_entries(islice(self._rest, PRODUCERS_PER_STEP))
        if body:
            file.pwrite(body, self._position)
            self._position += len(body)
            self._checksum = crc32c(body, self._checksum)
        else:
            file.pwrite(_HEAD.pack(VERSION, self._checksum, self._count), 0)
            file.close()
            self.is_done = True


def decode_snapshot(data: bytes, path: str) -> list[ProducerStateEntry]:
    """The entries in the order of the file. Raises CorruptSnapshot with `path`."""
    return list(map(_entry, check_snapshot(data, path)))


def first_open_offset(data: bytes, path: str) -> int | None:
    """Returns the first offset of the transactions that are open in a snapshot, None without any. Raises CorruptSnapshot with `path`."""
    begun = (fields[-1] for fields in check_snapshot(data, path))
    return min((offset for offset in begun if offset >= 0), default=None)


def check_snapshot(data: bytes, path: str) -> Iterator[tuple[int, ...]]:
    """Returns the fields of the entries, one after the other. Raises CorruptSnapshot with `path` at once if the file is damaged."""
    if len(data) < _HEAD.size:
        raise CorruptSnapshot(path, f"{len(data)} bytes are too few for a producer snapshot")
    version, checksum, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(path, f"version {version} is not known, only {VERSION}")
    computed = crc32c(memoryview(data)[_CRC_END:])
    if checksum != computed:
        raise CorruptSnapshot(path, f"its CRC is {computed:#010x}, not {checksum:#010x} as it says")
    if count < 0 or _HEAD.size + _ENTRY.size * count > len(data):
        raise CorruptSnapshot(path, f"{count} producers do not fit its {len(data)} bytes")
    return _ENTRY.iter_unpack(memoryview(data)[_HEAD.size : _HEAD.size + _ENTRY.size * count])


def _entry(fields: tuple[int, ...]) -> ProducerStateEntry:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, txn_first_offset = fields
    entry = ProducerStateEntry(producer_id, epoch, coordinator_epoch, timestamp, max(txn_first_offset, -1))
    if last_offset >= 0:
        entry.batches.append((last_sequence, last_offset, offset_delta, timestamp))
    return entry
