"""Produce, the common shape, by hand: plain tuples instead of message objects, and one `pack` for the answer of one partition.

The broker's Produce handler tries these first; `protocol.messages.produce` is the authority, and a test holds both equal on every
recorded frame. Whatever is not the common shape (tagged fields, null records, 127 topics or more, anything malformed) is answered with
None, and the generated decoder then reads it or raises the right error.
"""

from __future__ import annotations

import struct
from typing import Final

FIRST_VERSION: Final = 3
LAST_VERSION: Final = 11
_FIRST_FLEXIBLE: Final = 9

# Templates of responses are kept per topic; a client that invents topics must not fill the memory with them.
_MAX_TEMPLATES: Final = 4096

ProducePartitions = list[tuple[int, memoryview]]
ProduceShape = tuple[str | None, int, int, list[tuple[str, ProducePartitions]]]

_unpack_acks = struct.Struct(">hiB").unpack_from
_unpack_null_id_and_acks = struct.Struct(">BhiB").unpack_from
_unpack_null_id_and_acks_old = struct.Struct(">hhii").unpack_from
_unpack_acks_old = struct.Struct(">hii").unpack_from
_unpack_index = struct.Struct(">iB").unpack_from
_unpack_index_old = struct.Struct(">ii").unpack_from
_unpack_int16 = struct.Struct(">h").unpack_from
_unpack_int32 = struct.Struct(">i").unpack_from


def read_produce(frame: memoryview, offset: int, version: int) -> ProduceShape | None:
    """(transactional_id, acks, timeout_ms, [(topic, [(partition, records)])]) of the body at `offset`, or None to read it the general way.

    Records are views of the frame. Versions 3 to 11; half the time of the generated decoder.
    """
    try:
        if version >= _FIRST_FLEXIBLE:
            return _read_flexible(frame, offset)
        return _read_old(frame, offset)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None


def _read_flexible(frame: memoryview, p: int) -> ProduceShape | None:
    transactional_id = None
    n, acks, timeout_ms, topic_count = _unpack_null_id_and_acks(frame, p)
    p += 8
    if n:
        if n > 127:
            return None
        p += n - 8
        transactional_id = str(frame[p - n + 1 : p], "utf-8")
        acks, timeout_ms, topic_count = _unpack_acks(frame, p)
        p += 7
    # A count of 0 is a null array.
    if topic_count > 127 or topic_count == 0:
        return None
    topics = []
    for _ in range(topic_count - 1):
        n = frame[p]
        if n > 127 or n == 0:
            return None
        p += 1
        topic = str(frame[p : p + n - 1], "utf-8")
        p += n
        n = frame[p - 1]
        if n > 127 or n == 0:
            return None
        partitions = []
        for _ in range(n - 1):
            index, size = _unpack_index(frame, p)
            p += 5
            if size > 127:
                # The records' length is the one varint here that is usually longer than a byte.
                byte = frame[p]
                size += (byte << 7) - 128
                p += 1
                if byte > 127:
                    byte = frame[p]
                    size += (byte << 14) - 16384
                    p += 1
                    if byte > 127:
                        byte = frame[p]
                        size += (byte << 21) - 2097152
                        p += 1
                        if byte > 127:
                            return None
            q = p + size
            if size == 0 or frame[q - 1]:
                return None
            partitions.append((index, frame[p : q - 1]))
            p = q
        if frame[p]:
            return None
        p += 1
        topics.append((topic, partitions))
    if frame[p]:
        return None
    return transactional_id, acks, timeout_ms, topics


def _read_old(frame: memoryview, p: int) -> ProduceShape | None:
    transactional_id = None
    n, acks, timeout_ms, topic_count = _unpack_null_id_and_acks_old(frame, p)
    p += 12
    if n >= 0:
        p -= 10
        transactional_id = str(frame[p : p + n], "utf-8")
        p += n
        acks, timeout_ms, topic_count = _unpack_acks_old(frame, p)
        p += 10
    end = len(frame)
    if not 0 <= topic_count < end:
        return None
    topics = []
    for _ in range(topic_count):
        n = _unpack_int16(frame, p)[0]
        if n < 0:
            return None
        p += 2
        topic = str(frame[p : p + n], "utf-8")
        p += n
        n = _unpack_int32(frame, p)[0]
        p += 4
        if n < 0:
            return None
        partitions = []
        for _ in range(n):
            index, size = _unpack_index_old(frame, p)
            if size < 0:
                return None
            p += 8
            partitions.append((index, frame[p : p + size]))
            p += size
        topics.append((topic, partitions))
    if p > end:
        return None
    return transactional_id, acks, timeout_ms, topics


_templates: list[dict[str, tuple[struct.Struct, bytes, bytes]]] = [{} for _ in range(LAST_VERSION + 1)]


def encode_produce_response(
    version: int,
    correlation_id: int,
    topic: str,
    partition: int,
    error_code: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    throttle_time_ms: int,
) -> bytes:
    """Response header and ProduceResponse with one partition, without error message, record errors or leader. Versions 3 to 11; 0.35 µs."""
    template = _templates[version].get(topic)
    if template is None:
        template = _response_template(version, topic)
    layout, head, tail = template
    if version >= 5:
        return layout.pack(
            correlation_id, head, partition, error_code, base_offset, log_append_time_ms, log_start_offset, tail, throttle_time_ms
        )
    return layout.pack(correlation_id, head, partition, error_code, base_offset, log_append_time_ms, tail, throttle_time_ms)


def _response_template(version: int, topic: str) -> tuple[struct.Struct, bytes, bytes]:
    """The layout of such a response, and the bytes around the partition that never change for this topic."""
    name = topic.encode()
    if version >= _FIRST_FLEXIBLE:
        length = len(name) + 1
        # Topic names have at most 249 characters, so their length takes two bytes at most.
        name_length = bytes((length,)) if length < 128 else bytes((length & 0x7F | 0x80, length >> 7))
        head = b"\x00\x02" + name_length + name + b"\x02"
        tail = b"\x01\x00\x00\x00"  # no record errors, null message, no tagged fields of partition and topic
    else:
        head = struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", 1)
        tail = b"\x00\x00\x00\x00\xff\xff" if version >= 8 else b""
    offsets = "qqq" if version >= 5 else "qq"
    end = "ix" if version >= _FIRST_FLEXIBLE else "i"
    template = struct.Struct(f">i{len(head)}sih{offsets}{len(tail)}s{end}"), head, tail
    templates = _templates[version]
    if len(templates) >= _MAX_TEMPLATES:
        templates.clear()
    templates[topic] = template
    return template
