"""The file that keeps a partition's producers over a restart: `<offset>.snapshot`, in Kafka's binary format.

    version int16 (1), crc uint32 (CRC-32C of all that follows), count int32, then per producer
    producer_id int64, epoch int16, last_sequence int32, last_offset int64, offset_delta int32, timestamp int64, coordinator_epoch int32,
    current_txn_first_offset int64 (-1 without an open transaction)

Of the five batches of a producer only the last is kept. Called by `producer_state_manager`; no I/O here.
"""

import struct
from collections.abc import Collection

import crc32c

from storage.errors import CorruptSnapshot
from storage.producer_state import ProducerStateEntry

VERSION = 1
_HEAD = struct.Struct(">hIi")
_CRC_END = 6
_ENTRY = struct.Struct(">qhiqiqiq")


def encode_snapshot(entries: Collection[ProducerStateEntry]) -> bytes:
    """The file's bytes, with the entries in the given order."""
    data = bytearray(_HEAD.size + _ENTRY.size * len(entries))
    position = _HEAD.size
    for entry in entries:
        _ENTRY.pack_into(
            data,
            position,
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        position += _ENTRY.size
    _HEAD.pack_into(data, 0, VERSION, 0, len(entries))
    checksum = crc32c.crc32c(memoryview(data)[_CRC_END:])
    _HEAD.pack_into(data, 0, VERSION, checksum, len(entries))
    return bytes(data)


def decode_snapshot(data: bytes, path: str) -> list[ProducerStateEntry]:
    """The entries in the order of the file. Raises CorruptSnapshot, which names `path`."""
    if len(data) < _HEAD.size:
        raise CorruptSnapshot(path, f"{len(data)} bytes are too few for a producer snapshot")
    version, checksum, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(path, f"version {version} is not known, only {VERSION}")
    computed = crc32c.crc32c(memoryview(data)[_CRC_END:])
    if checksum != computed:
        raise CorruptSnapshot(path, f"its CRC is {computed:#010x}, not {checksum:#010x} as it says")
    if count < 0 or _HEAD.size + _ENTRY.size * count > len(data):
        raise CorruptSnapshot(path, f"{count} producers do not fit its {len(data)} bytes")
    return [_entry(fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size : _HEAD.size + _ENTRY.size * count])]


def _entry(fields: tuple[int, ...]) -> ProducerStateEntry:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, txn_first_offset = fields
    entry = ProducerStateEntry(producer_id, epoch, coordinator_epoch, timestamp, max(txn_first_offset, -1))
    if last_offset >= 0:
        entry.batches.append((last_sequence, last_offset, offset_delta, timestamp))
    return entry
