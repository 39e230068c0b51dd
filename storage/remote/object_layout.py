"""Names the objects of a copy as the plugin of Aiven for Apache Kafka does, so that both read what the other wrote.

`<key.prefix><topic>-<topic id>/<partition>/<start offset, 20 digits>-<segment uuid>` with the suffixes `.log`, `.indexes` and
`.rsm-manifest`. Custom metadata of an entry may name another prefix, or the whole key, of the first two.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.protocol.uuid import to_text
from ottla.storage.disk.file_names import file_name
from ottla.storage.remote.entries import SegmentEntry, TopicIdPartition

LOG: Final = "log"
INDEXES: Final = "indexes"
MANIFEST: Final = "rsm-manifest"

_REMOTE_SIZE: Final = 0
_OBJECT_PREFIX: Final = 1
_OBJECT_KEY: Final = 2
_INDEX_CHECKSUMS: Final = 20308
"""Ottla's own fields, this and the next, are far from those that the plugin may get. It skips fields that it does not know."""
_IS_OF_OTHER_LOG: Final = 20309
_MAX_VARINT_SHIFT: Final = 63


class MalformedCustomMetadata(ValueError):
    """The custom metadata of an entry is not that of this layout."""


class CustomMetadata(NamedTuple):
    """The notes of a writer in its entry: bytes of all objects, and where they lie if not at the reader's prefix.

    `index_checksums` are for `index_checks`. `is_of_other_log`: the log of this copy, and of all others of the partition, is lost.
    """

    remote_size: int | None = None
    object_prefix: str | None = None
    object_key: str | None = None
    index_checksums: bytes | None = None
    is_of_other_log: bool = False


NO_METADATA: Final = CustomMetadata()


def partition_prefix(prefix: str, partition: TopicIdPartition) -> str:
    """Names what all keys of a partition begin with."""
    return f"{prefix}{partition.topic}-{to_text(partition.topic_id)}/{partition.partition}/"


def main_key(entry: SegmentEntry) -> str:
    """Names the objects of a copy without prefix and suffix."""
    return partition_prefix("", entry.id.partition) + file_name(entry.start_offset, f"-{to_text(entry.id.uuid)}")


def object_key(prefix: str, entry: SegmentEntry, suffix: str, custom: CustomMetadata = NO_METADATA) -> str:
    """Names one object of a copy. The manifest always has the reader's prefix."""
    key = main_key(entry)
    if suffix != MANIFEST:
        if custom.object_prefix is not None:
            prefix = custom.object_prefix
        if custom.object_key is not None:
            key = custom.object_key
    return f"{prefix}{key}.{suffix}"


def read_custom_metadata(data: bytes | None) -> CustomMetadata:
    """Reads the tagged fields of an entry's custom metadata. Raises MalformedCustomMetadata."""
    if not data:
        return NO_METADATA
    try:
        count, at = _read_varint(data, 0)
        fields: dict[int, bytes] = {}
        for _ in range(count):
            tag, at = _read_varint(data, at)
            size, at = _read_varint(data, at)
            if at + size > len(data):
                raise MalformedCustomMetadata(f"a field of {size} bytes at {at} of {len(data)}")
            fields[tag] = data[at : at + size]
            at += size
        size_field = fields.get(_REMOTE_SIZE)
        zigzag = _read_varint(size_field, 0)[0] if size_field is not None else 0
        return CustomMetadata(
            None if size_field is None else (zigzag >> 1) ^ -(zigzag & 1),
            _read_string(fields.get(_OBJECT_PREFIX)),
            _read_string(fields.get(_OBJECT_KEY)),
            fields.get(_INDEX_CHECKSUMS),
            _IS_OF_OTHER_LOG in fields,
        )
    except (IndexError, UnicodeDecodeError) as error:
        raise MalformedCustomMetadata(str(error)) from None


def custom_metadata(fields: CustomMetadata) -> bytes | None:
    """Encodes custom metadata; None if it says nothing."""
    parts = []
    if fields.remote_size is not None:
        parts.append((_REMOTE_SIZE, _varint(fields.remote_size << 1 ^ -(fields.remote_size < 0))))
    for tag, text in ((_OBJECT_PREFIX, fields.object_prefix), (_OBJECT_KEY, fields.object_key)):
        if text is not None:
            encoded = text.encode()
            parts.append((tag, _varint(len(encoded) + 1) + encoded))
    if fields.index_checksums is not None:
        parts.append((_INDEX_CHECKSUMS, fields.index_checksums))
    if fields.is_of_other_log:
        parts.append((_IS_OF_OTHER_LOG, b""))
    if not parts:
        return None
    return _varint(len(parts)) + b"".join(_varint(tag) + _varint(len(value)) + value for tag, value in parts)


def is_marked(custom: bytes | None) -> bool:
    """Tells if the metadata say that the copies of the partition are of another log."""
    try:
        return read_custom_metadata(custom).is_of_other_log
    except MalformedCustomMetadata:
        return False


def with_mark(custom: bytes | None, is_of_other_log: bool) -> bytes | None:
    """Sets or removes that mark. Raises MalformedCustomMetadata if the metadata would lose something by it."""
    fields = read_custom_metadata(custom)
    if custom_metadata(fields) != custom:
        raise MalformedCustomMetadata("there are fields of another writer")
    return custom_metadata(fields._replace(is_of_other_log=is_of_other_log))


def _read_string(data: bytes | None) -> str | None:
    if data is None:
        return None
    size, at = _read_varint(data, 0)
    return data[at : at + size - 1].decode() if size else None


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > _MAX_VARINT_SHIFT:
            raise MalformedCustomMetadata("a number of more than 64 bits")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
