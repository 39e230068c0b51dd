"""Reads and writes the manifest of a copied segment, in the JSON of Aiven's plugin, and the object with its indexes.

A copy has a manifest when it is complete: the manifest is written last. It says how the records were cut into chunks and transformed, and
where each index begins in the object of the indexes.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.protocol.uuid import to_text
from ottla.storage.remote.chunk_index import ChunkIndex, MalformedChunks, chunk_index, number
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.ports import IndexKind

MAX_MANIFEST_BYTES: Final = 8 * 1024 * 1024
"""Largest manifest that is read, bytes."""

NAME_OF: Final = {
    IndexKind.OFFSET: "offset",
    IndexKind.TIMESTAMP: "timestamp",
    IndexKind.PRODUCER_SNAPSHOT: "producerSnapshot",
    IndexKind.LEADER_EPOCH: "leaderEpoch",
    IndexKind.TRANSACTION: "transaction",
}
"""The indexes in the order in which they follow one another in their object."""

Ranges = Mapping[IndexKind, tuple[int, int]]
"""Where each index begins in the object of the indexes, and its size; without those that the segment does not have."""


class MalformedManifest(ValueError):
    """The manifest is not one of version 1, or contradicts itself."""


@dataclass(frozen=True, slots=True)
class Encryption:
    """The data key of a segment, encrypted with the key of that name, and the additional authenticated data of its chunks."""

    key_id: str
    encrypted_key: bytes
    aad: bytes


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a manifest without its copy of the entry, which readers have from elsewhere."""

    chunks: ChunkIndex
    indexes: Ranges
    is_compressed: bool
    encryption: Encryption | None = None


def read_manifest(data: bytes) -> Manifest:
    """Reads a manifest. Raises MalformedManifest."""
    try:
        fields = json.loads(data)
        if not isinstance(fields, dict) or fields.get("version") != "1":
            raise MalformedManifest(f"its version is {fields.get('version')!r}" if isinstance(fields, dict) else "it is no object")
        chunks = chunk_index(_object(fields, "chunkIndex"))
        named = _object(fields, "segmentIndexes")
        indexes = {
            kind: (number(_object(named, name), "position"), number(_object(named, name), "size"))
            for kind, name in NAME_OF.items()
            if named.get(name) is not None
        }
        is_compressed = fields.get("compression")
        if not isinstance(is_compressed, bool):
            raise MalformedManifest(f"compression is {is_compressed!r}")
        for kind, (position, size) in indexes.items():
            if position < 0 or size < 0:
                raise MalformedManifest(f"{NAME_OF[kind]} is at {position} and has {size} bytes")
        encryption = _read_encryption(_object(fields, "encryption")) if fields.get("encryption") is not None else None
    except (MalformedChunks, ValueError, RecursionError) as error:
        raise error if isinstance(error, MalformedManifest) else MalformedManifest(str(error)) from None
    return Manifest(chunks, indexes, is_compressed, encryption)


def write_manifest(manifest: Manifest, entry: SegmentEntry) -> bytes:
    """Writes a manifest for the entry, without spaces and with the fields in the plugin's order."""
    fields: dict[str, Any] = {
        "version": "1",
        "chunkIndex": manifest.chunks.fields(),
        "segmentIndexes": {
            name: {"position": manifest.indexes[kind][0], "size": manifest.indexes[kind][1]} if kind in manifest.indexes else None
            for kind, name in NAME_OF.items()
        },
        "compression": manifest.is_compressed,
    }
    encryption = manifest.encryption
    if encryption is not None:
        key = base64.b64encode(encryption.encrypted_key).decode("ascii")
        fields["encryption"] = {"dataKey": f"{encryption.key_id}:{key}", "aad": base64.b64encode(encryption.aad).decode("ascii")}
    topic_id, topic, partition = entry.id.partition
    fields["remoteLogSegmentMetadata"] = {
        "remoteLogSegmentId": {
            "topicIdPartition": {"topicId": to_text(topic_id), "topicPartition": {"topic": topic, "partition": partition}},
            "id": to_text(entry.id.uuid),
        },
        "startOffset": entry.start_offset,
        "endOffset": entry.end_offset,
        "maxTimestampMs": entry.max_timestamp_ms,
        "brokerId": entry.broker_id,
        "eventTimestampMs": entry.event_timestamp_ms,
        "segmentLeaderEpochs": {str(epoch): offset for epoch, offset in entry.leader_epochs.items()},
    }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def size_of_indexes(ranges: Ranges) -> int:
    """Returns the bytes of the object of the indexes. Raises MalformedManifest unless the indexes follow one another."""
    at = 0
    for kind, name in NAME_OF.items():
        if kind in ranges:
            position, size = ranges[kind]
            if position != at:
                raise MalformedManifest(f"{name} is at {position}, and the index before it ends at {at}")
            at += size
    return at


def _object(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = fields.get(name)
    if not isinstance(found, dict):
        raise MalformedManifest(f"{name} is {found!r}")
    return found


def _read_encryption(fields: Mapping[str, Any]) -> Encryption:
    key, aad = fields.get("dataKey"), fields.get("aad")
    if not isinstance(key, str) or not isinstance(aad, str) or ":" not in key:
        raise MalformedManifest("encryption without dataKey and aad")
    key_id, _, text = key.partition(":")
    try:
        return Encryption(key_id, base64.b64decode(text, validate=True), base64.b64decode(aad, validate=True))
    except binascii.Error as error:
        raise MalformedManifest(f"encryption: {error}") from None
