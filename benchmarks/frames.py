"""Request frames as bytes, length included, and the places in their responses where an error code stands.

Written by hand for the few (api, version) pairs the load generator sends, all flexible versions: Produce 11, Fetch 17, CreateTopics 7,
DeleteTopics 6, Metadata 12, ApiVersions 3. The correlation id is 0; whoever sends a frame patches bytes 8 to 12.
"""

import struct
from collections.abc import Mapping, Sequence
from uuid import UUID

from benchmarks.batches import uvarint

PRODUCE, FETCH, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 3, 18, 19, 20
VERSIONS = {PRODUCE: 11, FETCH: 17, METADATA: 12, API_VERSIONS: 3, CREATE_TOPICS: 7, DELETE_TOPICS: 6}
CLIENT_ID = b"loadgen"
_NO_TAGS = b"\0"
# Where error codes stand, counted from the correlation id: header (5), then the fields before the code.
FETCH_ERROR_OFFSETS = (5 + 4, 5 + 4 + 2 + 4 + 1 + 16 + 1 + 4)


def frame(api_key: int, body: bytes) -> bytes:
    """A whole request: length, header version 2, body."""
    header = struct.pack(">hhih", api_key, VERSIONS[api_key], 0, len(CLIENT_ID)) + CLIENT_ID + _NO_TAGS
    return struct.pack(">i", len(header) + len(body)) + header + body


def compact_string(text: str | None) -> bytes:
    """A compact nullable string."""
    if text is None:
        return b"\0"
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


def produce(topic: str, partition: int, batch: bytes, acks: int = -1) -> bytes:
    """One batch to one partition."""
    records = uvarint(len(batch) + 1) + batch
    partitions = uvarint(2) + struct.pack(">i", partition) + records + _NO_TAGS
    topics = uvarint(2) + compact_string(topic) + partitions + _NO_TAGS
    return frame(PRODUCE, compact_string(None) + struct.pack(">hi", acks, 30_000) + topics + _NO_TAGS)


def produce_error_offset(topic: str) -> int:
    """Where the partition's error code stands in the answer to `produce`."""
    return 5 + 1 + len(compact_string(topic)) + 1 + 4


def fetch(topic_id: UUID, partition: int, offset: int, max_bytes: int) -> bytes:
    """At most `max_bytes` of one partition, outside any session, answered at once if there is a byte."""
    head = struct.pack(">iiibii", 500, 1, max(max_bytes, 1), 0, 0, -1)
    part = struct.pack(">iiqiqi", partition, -1, offset, -1, -1, max_bytes) + _NO_TAGS
    topics = uvarint(2) + topic_id.bytes + uvarint(2) + part + _NO_TAGS
    return frame(FETCH, head + topics + uvarint(1) + compact_string("") + _NO_TAGS)


def create_topic(topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> bytes:
    """Replicas placed by the broker."""
    pairs = b"".join(compact_string(key) + compact_string(value) + _NO_TAGS for key, value in configs.items())
    no_assignments = uvarint(1)
    counts = struct.pack(">ih", partitions, replication_factor)
    one = compact_string(topic) + counts + no_assignments + uvarint(len(configs) + 1) + pairs + _NO_TAGS
    return frame(CREATE_TOPICS, uvarint(2) + one + struct.pack(">ib", 30_000, 0) + _NO_TAGS)


def delete_topic(topic: str) -> bytes:
    return frame(DELETE_TOPICS, uvarint(2) + compact_string(topic) + bytes(16) + _NO_TAGS + struct.pack(">i", 30_000) + _NO_TAGS)


def metadata(topics: Sequence[str]) -> bytes:
    """About these topics, without creating them."""
    named = b"".join(bytes(16) + compact_string(topic) + _NO_TAGS for topic in topics)
    return frame(METADATA, uvarint(len(topics) + 1) + named + b"\0\0" + _NO_TAGS)


def api_versions() -> bytes:
    return frame(API_VERSIONS, compact_string("loadgen") + compact_string("1") + _NO_TAGS)
