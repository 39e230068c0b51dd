"""Produce, the common shape, by hand: one partition without message objects, and one `pack` for its answer.

The broker's Produce handler tries these first; `protocol.messages.produce` is the authority, and a test holds both equal on every
recorded frame. Whatever is not the common shape (several partitions, a transactional id, tagged fields, null records, anything malformed)
is answered with None, and the generated decoder then reads it or raises the right error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from protocol.compiled import compiled
from protocol.messages.produce import ProduceRequest
from protocol.records.batch import NO_TIMESTAMP
from protocol.schema.wire import ProtocolError

FIRST_VERSION: Final = 3
LAST_VERSION: Final = 11
_FIRST_FLEXIBLE: Final = 9

# Templates of responses and heads of requests are kept per topic; a client that invents topics must not fill the memory with them.
_MAX_TEMPLATES: Final = 4096
_MAX_HEADS: Final = 4096
_MAX_LAYOUTS: Final = 1024

MAX_TOGETHER: Final = 16
"""Requests that `read_several` reads at once."""

ProduceHead = tuple[int, int, str, int]
OneBatch = tuple[ProduceHead, memoryview]

_unpack_int16 = struct.Struct(">h").unpack_from
_unpack_int32 = struct.Struct(">i").unpack_from
_pack_length = struct.Struct(">i").pack
_unpack_frame_start = struct.Struct(">iiih").unpack_from
_unpack_three_bytes = struct.Struct("3B").unpack_from
_NO_TAGGED_FIELDS: Final = (0, 0, 0)


class _HeadLayouts(dict[int, Callable[[memoryview, int], tuple[bytes, int, int, int]]]):
    """By the first byte of the topic's name, which is its length: what reads a flexible head, and the three bytes that say how long the
    records behind it are. One call; a slice, its bytes and three more bytes took three times as long."""

    def __missing__(self, length: int) -> Callable[[memoryview, int], tuple[bytes, int, int, int]]:
        self[length] = unpack = cast("Callable[..., tuple[bytes, int, int, int]]", struct.Struct(f"{13 + length}s3B").unpack_from)
        return unpack


_flexible_layouts: Final = _HeadLayouts()
_flexible_heads: dict[bytes, ProduceHead] = {}
_old_heads: dict[bytes, ProduceHead] = {}


def read_one_batch(frame: memoryview, offset: int, version: int) -> OneBatch | None:
    """((acks, timeout_ms, topic, partition), records) of a body with one partition and no transactional id; None for any other.

    What stands before the records is the same in all requests of a client for a partition, so it is decoded once and then looked up by
    its bytes.
    """
    try:
        if version >= _FIRST_FLEXIBLE:
            # Null transactional id, acks, timeout, one topic, its name's length (which counts from 1), its name, one partition, its index.
            length = frame[offset + 8]
            found, size, second, third = _flexible_layouts[length](frame, offset)
            head = _flexible_heads.get(found)
            if head is None:
                return _first_read(frame, offset, version, offset + 13 + length)
            p = offset + length + 14
            if size > 127:
                size += (second << 7) - 128
                p += 1
                if second > 127:
                    size += (third << 14) - 16384
                    p += 1
                    if third > 127:
                        return None
            end = p + size - 1
            if size == 0 or _unpack_three_bytes(frame, end) != _NO_TAGGED_FIELDS:
                return None
            return head, frame[p:end]
        p = offset + 22 + _unpack_int16(frame, offset + 12)[0]
        head = _old_heads.get(bytes(frame[offset:p]))
        if head is None:
            return _first_read(frame, offset, version, p)
        size = _unpack_int32(frame, p)[0]
        p += 4
        if not 0 <= size <= len(frame) - p:
            return None
        return head, frame[p : p + size]
    except (struct.error, IndexError):
        return None


class _FrameLayouts(dict[int, Callable[[memoryview, int], tuple[int, int, int, bytes, int, int, int]]]):
    """By the number of bytes between the correlation id and the records: what reads a frame up to the length of its records."""

    def __missing__(self, length: int) -> Callable[[memoryview, int], tuple[int, int, int, bytes, int, int, int]]:
        if len(self) >= _MAX_LAYOUTS:
            self.clear()
        self[length] = unpack = cast(
            "Callable[..., tuple[int, int, int, bytes, int, int, int]]", struct.Struct(f">iii{length}s3B").unpack_from
        )
        return unpack


_frame_layouts: Final = _FrameLayouts()


def read_several(view: memoryview, position: int, end: int) -> tuple[ProduceHead, list[memoryview], list[int], int] | None:
    """Frames behind one another from `position` on that differ in nothing but correlation id and records, as a client sends them that has
    several requests in flight: their head, their records, their correlation ids, and where the next frame begins.

    Flexible versions only. At most MAX_TOGETHER; None if there are not two. Each is one that `read_one_batch` reads.
    """
    try:
        _, kind, _, client_id_length = _unpack_frame_start(view, position)
        before = 3 if client_id_length < 0 else 3 + client_id_length  # the client id, and no tagged fields of the header
        offset = position + 12 + before
        if not _FIRST_FLEXIBLE <= kind <= LAST_VERSION or view[offset - 1]:
            return None
        length = before + 13 + view[offset + 8]
        read = _frame_layouts[length]
        last = end - length - 16  # where a frame can begin
        common = None
        head: ProduceHead | None = None
        batches: list[memoryview] = []
        correlation_ids: list[int] = []
        while True:
            frame_size, its_kind, correlation_id, found, size, second, third = read(view, position)
            after = position + 4 + frame_size
            if found != common:
                if common is not None:
                    break
                common = found
                head = _flexible_heads.get(found[before:])
                if head is None:
                    return None  # `read_one_batch` makes it known
            p = position + length + 13
            # As in `read_one_batch`, and written out as there: calls per batch are what this saves.
            if size > 127:
                size += (second << 7) - 128
                p += 1
                if second > 127:
                    size += (third << 14) - 16384
                    p += 1
                    if third > 127:
                        break
            behind = p + size - 1
            if its_kind != kind or not size or behind + 3 > after or after > end or _unpack_three_bytes(view, behind) != _NO_TAGGED_FIELDS:
                break
            batches.append(view[p:behind])
            correlation_ids.append(correlation_id)
            position = after
            if position > last or len(batches) == MAX_TOGETHER:
                break
    except (struct.error, IndexError):
        return None
    return None if head is None or len(batches) < 2 else (head, batches, correlation_ids, position)


def _first_read(frame: memoryview, offset: int, version: int, end: int) -> OneBatch | None:
    """What is not in the cache. Its head goes there if it stands between `offset` and `end`, written as everybody writes it."""
    if version >= _FIRST_FLEXIBLE:
        is_one = frame[offset + 7] == 2 and frame[end - 5] == 2
    else:
        is_one = _unpack_int32(frame, offset + 8)[0] == 1 and _unpack_int32(frame, end - 8)[0] == 1
    if not is_one:  # and may be of a hundred thousand
        return None
    try:
        request, _ = ProduceRequest.decode(frame, version, offset)
    except ProtocolError:
        return None
    if request.transactional_id is not None or len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return None
    topic = request.topic_data[0].name
    index = request.topic_data[0].partition_data[0].index
    name = topic.encode()
    if version >= _FIRST_FLEXIBLE:
        if len(name) >= 127:
            return None
        plain = struct.pack(f">xhiBB{len(name)}sBi", request.acks, request.timeout_ms, 2, len(name) + 1, name, 2, index)
        heads = _flexible_heads
    else:
        plain = struct.pack(f">hhiih{len(name)}sii", -1, request.acks, request.timeout_ms, 1, len(name), name, 1, index)
        heads = _old_heads
    if frame[offset:end] != plain:
        return None
    if len(heads) >= _MAX_HEADS:
        heads.clear()
    heads[plain] = request.acks, request.timeout_ms, topic, index
    return read_one_batch(frame, offset, version)


_Template = tuple[Callable[..., bytes], bytes, bytes]

_templates: list[dict[str, _Template]] = [{} for _ in range(LAST_VERSION + 1)]


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
    pack, head, tail = template
    if version >= 5:
        return pack(correlation_id, head, partition, error_code, base_offset, log_append_time_ms, log_start_offset, tail, throttle_time_ms)
    return pack(correlation_id, head, partition, error_code, base_offset, log_append_time_ms, tail, throttle_time_ms)


def encode_produce_responses(
    version: int, correlation_ids: Sequence[int], topic: str, partition: int, base_offsets: Sequence[int], log_start_offset: int
) -> bytes:
    """The same for requests that came together, all appended: every answer behind its length. Versions 9 to 11."""
    template = _templates[version].get(topic)
    if template is None:
        template = _response_template(version, topic)
    return _pack_responses(*template, correlation_ids, partition, base_offsets, log_start_offset)


def _pack_responses(
    pack: Callable[..., bytes],
    head: bytes,
    tail: bytes,
    correlation_ids: Sequence[int],
    partition: int,
    base_offsets: Sequence[int],
    log_start_offset: int,
) -> bytes:
    answers = [
        pack(correlation_id, head, partition, 0, base_offset, NO_TIMESTAMP, log_start_offset, tail, 0)
        for correlation_id, base_offset in zip(correlation_ids, base_offsets, strict=True)
    ]
    return b"".join([_pack_length(len(answer)) + answer for answer in answers])


def _response_template(version: int, topic: str) -> _Template:
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
    template = struct.Struct(f">i{len(head)}sih{offsets}{len(tail)}s{end}").pack, head, tail
    templates = _templates[version]
    if len(templates) >= _MAX_TEMPLATES:
        templates.clear()
    templates[topic] = template
    return template


if not TYPE_CHECKING and (_native := compiled("protocol.native")) is not None:
    read_several = partial(_native.read_several, _flexible_heads)
    _pack_responses = _native.pack_responses
