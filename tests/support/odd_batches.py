"""Builds batches that no client sends, each with a right checksum: wrong records, wrong headers, damaged compressed bytes."""

import random
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import crc32c
import lz4.block
import lz4.frame
import snappy
import zstandard

from ottla.protocol.records.builder import encode_varint, encode_varlong
from ottla.protocol.records.compression import CODEC_BY_NAME, compress

TIME = 1_789_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names of the codecs; the index is the number in the attributes."""


def a_body(count: int = 10, **fields: Any) -> bytes:
    """The records of a batch, with such fields in each."""
    return b"".join(an_odd_record(index, **fields) for index in range(count))


def an_odd_record(
    index: int = 0,
    *,
    delta: bytes | None = None,
    elapsed: bytes = b"\0",
    attributes: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    key_size: int | None = None,
    value_size: int | None = None,
    headers: bytes = b"\0",
    longer: int = 0,
    size: bytes | None = None,
) -> bytes:
    """One record. `key_size` and `value_size` replace the right ones, `longer` is added to the length, and `size` replaces it."""
    inside = bytes([attributes]) + elapsed + (encode_varint(index) if delta is None else delta)
    for content, told in ((key, key_size), (value, value_size)):
        right = -1 if content is None else len(content)
        inside += encode_varint(right if told is None else told) + (content or b"")
    inside += headers
    return (encode_varint(len(inside) + longer) if size is None else size) + inside


def framed(
    body: bytes,
    codec: int = 0,
    *,
    count: int = 10,
    last_delta: int | None = None,
    attributes: int = 0,
    base_offset: int = 0,
    base_timestamp: int = TIME,
    max_timestamp: int = TIME,
    producer: tuple[int, int, int] = (-1, -1, -1),
    leader_epoch: int = -1,
    magic: int = 2,
    length: int | None = None,
) -> bytes:
    """A batch with this body, which is compressed already. The checksum is right."""
    covered = struct.pack(
        ">hiqqqhii",
        struct.unpack(">h", struct.pack(">H", attributes | codec))[0],
        count - 1 if last_delta is None else last_delta,
        base_timestamp,
        max_timestamp,
        *producer,
        count,
    )
    covered += body
    return (
        struct.pack(">qiib", base_offset, 9 + len(covered) if length is None else length, leader_epoch, magic)
        + struct.pack(">I", crc32c.crc32c(covered))
        + covered
    )


def with_checksum(batch: bytes | bytearray) -> bytes:
    """The batch with its length and its checksum set right."""
    fresh = bytearray(batch)
    struct.pack_into(">i", fresh, 8, len(fresh) - 12)
    struct.pack_into(">I", fresh, 17, crc32c.crc32c(bytes(fresh[21:])))
    return bytes(fresh)


BODIES: dict[str, tuple[int, Callable[[], bytes]]] = {
    "good": (10, a_body),
    "no bytes": (10, lambda: b""),
    "one byte": (10, lambda: b"\x10"),
    "a length without its end": (10, lambda: b"\x80\x80"),
    "one record": (1, lambda: a_body(1)),
    "nine of ten": (10, lambda: a_body(9)),
    "nine of ten and zeros": (10, lambda: a_body(9) + bytes(40)),
    "eleven of ten": (10, lambda: a_body(11)),
    "a byte behind": (10, lambda: a_body() + b"\0"),
    "garbage behind": (10, lambda: a_body() + b"garbage!" * 4),
    "null keys": (10, lambda: a_body(key=None)),
    "one null key": (10, lambda: a_body(9) + an_odd_record(9, key=None)),
    "null values": (10, lambda: a_body(value=None)),
    "empty keys and values": (10, lambda: a_body(key=b"", value=b"")),
    "key of length -2": (10, lambda: a_body(9) + an_odd_record(9, key=b"", key_size=-2)),
    "value of length -2": (10, lambda: a_body(9) + an_odd_record(9, value=b"", value_size=-2)),
    "value of length -2^31": (10, lambda: a_body(9) + an_odd_record(9, value=b"", value_size=-(2**31))),
    "key beyond the record": (10, lambda: an_odd_record(0, key_size=6) + b"".join(an_odd_record(i) for i in range(1, 10))),
    "key of 1 GiB": (10, lambda: a_body(9) + an_odd_record(9, key_size=2**30)),
    "value beyond the record": (10, lambda: an_odd_record(0, value_size=3) + b"".join(an_odd_record(i) for i in range(1, 10))),
    "value of 1 GiB": (10, lambda: a_body(9) + an_odd_record(9, value_size=2**30)),
    "value too short": (10, lambda: a_body(9) + an_odd_record(9, value=b"vvvv", value_size=2)),
    "length one too small": (10, lambda: a_body(9) + an_odd_record(9, longer=-1)),
    "length one too large": (10, lambda: a_body(9) + an_odd_record(9, longer=1)),
    "length one too large, and filled": (10, lambda: an_odd_record(0, longer=1) + b"\0" + b"".join(an_odd_record(i) for i in range(1, 10))),
    "first length one too small": (10, lambda: an_odd_record(0, longer=-1) + b"".join(an_odd_record(i) for i in range(1, 10))),
    "first length one too large": (10, lambda: an_odd_record(0, longer=1) + b"".join(an_odd_record(i) for i in range(1, 10))),
    "length 0": (10, lambda: a_body(9) + an_odd_record(9, size=b"\0")),
    "length -1": (10, lambda: a_body(9) + an_odd_record(9, size=b"\1")),
    "length -100": (10, lambda: a_body(9) + an_odd_record(9, size=encode_varint(-100))),
    "length 2^31-1": (10, lambda: a_body(9) + an_odd_record(9, size=encode_varint(2**31 - 1))),
    "length of six bytes": (10, lambda: a_body(9) + an_odd_record(9, size=b"\x90\x80\x80\x80\x80\x00")),
    "endless length": (10, lambda: a_body(9) + b"\xff" * 20),
    "length of five bytes": (10, lambda: a_body(9) + an_odd_record(9, size=b"\x90\x80\x80\x80\x00")),
    "length with lost bits": (10, lambda: a_body(9) + an_odd_record(9, size=b"\x90\x80\x80\x80\x70")),
    "timestamp of ten bytes": (10, lambda: a_body(elapsed=b"\x80" * 9 + b"\x01")),
    "timestamp of ten bytes with lost bits": (10, lambda: a_body(elapsed=b"\x80" * 9 + b"\x7e")),
    "timestamp of eleven bytes": (10, lambda: a_body(9) + an_odd_record(9, elapsed=b"\x80" * 10 + b"\x01")),
    "timestamp of three bytes for 0": (10, lambda: a_body(elapsed=b"\x80\x80\x00")),
    "timestamps below 0": (10, lambda: a_body(elapsed=encode_varlong(-TIME - 5))),
    "timestamps of -1": (10, lambda: a_body(elapsed=encode_varlong(-TIME - 1))),
    "timestamps of -2^63": (10, lambda: a_body(elapsed=encode_varlong(-(2**63) - TIME))),
    "timestamps of 2^63-1": (10, lambda: a_body(elapsed=encode_varlong(2**63 - 1 - TIME))),
    "one timestamp later": (10, lambda: a_body(9) + an_odd_record(9, elapsed=encode_varlong(5000))),
    "one timestamp earlier": (10, lambda: a_body(9) + an_odd_record(9, elapsed=encode_varlong(-5000))),
    "offset delta of six bytes": (10, lambda: a_body(9) + an_odd_record(9, delta=b"\x92\x80\x80\x80\x80\x00")),
    "offset delta of five bytes": (10, lambda: a_body(9) + an_odd_record(9, delta=b"\x92\x80\x80\x80\x00")),
    "offset deltas 0": (10, lambda: a_body(delta=b"\0")),
    "offset deltas from 1": (10, lambda: b"".join(an_odd_record(i + 1) for i in range(10))),
    "offset deltas backwards": (10, lambda: b"".join(an_odd_record(9 - i) for i in range(10))),
    "offset deltas negative": (10, lambda: b"".join(an_odd_record(i - 5) for i in range(10))),
    "offset deltas huge": (10, lambda: b"".join(an_odd_record(i * 10**6) for i in range(10))),
    "last offset delta wrong": (10, lambda: a_body(9) + an_odd_record(99)),
    "attributes 255": (10, lambda: a_body(attributes=255)),
    "headers": (10, lambda: a_body(headers=b"\x04\x02a\x02b\x02c\x01")),
    "header with an empty key": (10, lambda: a_body(headers=b"\x02\x00\x00")),
    "header key null": (10, lambda: a_body(9) + an_odd_record(9, headers=b"\x02\x01\x00")),
    "header key of length -2": (10, lambda: a_body(9) + an_odd_record(9, headers=b"\x02\x03\x00")),
    "header value of length -2": (10, lambda: a_body(9) + an_odd_record(9, headers=b"\x02\x02a\x03")),
    "header key beyond the record": (10, lambda: a_body(9) + an_odd_record(9, headers=b"\x02\x20a\x00")),
    "header value beyond the record": (10, lambda: a_body(9) + an_odd_record(9, headers=b"\x02\x02a\x20")),
    "header value of 1 GiB": (10, lambda: a_body(9) + an_odd_record(9, headers=b"\x02\x02a" + encode_varint(2**30))),
    "header key that is no text": (10, lambda: a_body(headers=b"\x02\x04\xff\xfe\x00")),
    "header count negative": (10, lambda: a_body(9) + an_odd_record(9, headers=b"\x05")),
    "header count 1 GiB": (10, lambda: a_body(9) + an_odd_record(9, headers=encode_varint(2**30))),
    "header count of six bytes": (10, lambda: a_body(9) + an_odd_record(9, headers=b"\x80" * 5 + b"\x00")),
    "header count 1 of none": (10, lambda: a_body(9) + an_odd_record(9, headers=b"\x02")),
    "no header count": (10, lambda: a_body(9) + an_odd_record(9, headers=b"")),
    "one header of two": (10, lambda: an_odd_record(0, headers=b"\x04\x02a\x02b") + b"".join(an_odd_record(i) for i in range(1, 10))),
    "large records": (10, lambda: a_body(value=bytes(3000))),
    "large records, the last one malformed": (10, lambda: a_body(9, value=bytes(3000)) + an_odd_record(9, key_size=-2, key=b"")),
}
"""Wrong records and some good ones: number of records in the header, and the bytes before compression."""

HEADERS: dict[str, dict[str, Any]] = {
    "count 0": {"count": 0, "last_delta": -1},
    "count -1": {"count": -1, "last_delta": -2},
    "count 0 of ten offsets": {"count": 0, "last_delta": 9},
    "count 9": {"count": 9},
    "count 11": {"count": 11},
    "count 100": {"count": 100},
    "count 2^31-1": {"count": 2**31 - 1},
    "last delta 8": {"last_delta": 8},
    "last delta 10": {"last_delta": 10},
    "last delta 1000": {"last_delta": 1000},
    "last delta -1": {"last_delta": -1},
    "last delta -2^31": {"last_delta": -(2**31)},
    "largest timestamp 0": {"max_timestamp": 0},
    "largest timestamp -1": {"max_timestamp": -1},
    "largest timestamp -2": {"max_timestamp": -2},
    "largest timestamp 2^63-1": {"max_timestamp": 2**63 - 1},
    "largest timestamp later": {"max_timestamp": TIME + 86_400_000},
    "no timestamps": {"base_timestamp": -1, "max_timestamp": -1},
    "negative timestamps": {"base_timestamp": -10, "max_timestamp": -10},
    "base timestamp 2^63-1": {"base_timestamp": 2**63 - 1, "max_timestamp": 2**63 - 1},
    "base timestamp -2^63": {"base_timestamp": -(2**63), "max_timestamp": -(2**63)},
    "log append time": {"attributes": 8},
    "log append time without a time": {"attributes": 8, "max_timestamp": -1},
    "transactional without a producer": {"attributes": 16},
    "control": {"attributes": 32},
    "control of a transaction": {"attributes": 48},
    "delete horizon": {"attributes": 64},
    "unknown attributes": {"attributes": 0x7F80},
    "all unknown attributes": {"attributes": 0xFF80},
    "base offset 12345": {"base_offset": 12345},
    "base offset -1": {"base_offset": -1},
    "leader epoch 5": {"leader_epoch": 5},
    "leader epoch -7": {"leader_epoch": -7},
    "a producer without sequence": {"producer": (4711, 0, -1)},
    "a producer with sequence -2": {"producer": (4711, 0, -2)},
    "a producer without epoch": {"producer": (4712, -1, 0)},
    "a producer": {"producer": (4713, 0, 0)},
    "a producer of epoch 7": {"producer": (4714, 7, 0)},
    "a producer with sequence 5": {"producer": (4715, 0, 5)},
    "a producer -2": {"producer": (-2, 0, 0)},
    "a sequence without producer": {"producer": (-1, -1, 3)},
    "length too small by one": {"length": -1},
    "magic 1": {"magic": 1},
    "magic 3": {"magic": 3},
    "magic -1": {"magic": -1},
}
"""Wrong headers and some good ones, for ten good records of every codec."""


def xxh32(data: bytes) -> int:
    """The checksum of lz4 frames, with seed 0."""
    primes = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    mask = 0xFFFFFFFF

    def rolled(value: int, bits: int) -> int:
        return (value << bits | (value & mask) >> (32 - bits)) & mask

    at = 0
    if len(data) >= 16:
        lanes = [(primes[0] + primes[1]) & mask, primes[1], 0, -primes[0] & mask]
        while at + 16 <= len(data):
            for lane, (word,) in enumerate(struct.iter_unpack("<I", data[at : at + 16])):
                lanes[lane] = rolled((lanes[lane] + word * primes[1]) & mask, 13) * primes[0] & mask
            at += 16
        found = sum(rolled(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
    else:
        found = primes[4]
    found = (found + len(data)) & mask
    while at + 4 <= len(data):
        found = rolled((found + struct.unpack_from("<I", data, at)[0] * primes[2]) & mask, 17) * primes[3] & mask
        at += 4
    for byte in data[at:]:
        found = rolled((found + byte * primes[4]) & mask, 11) * primes[0] & mask
    found = (found ^ found >> 15) * primes[1] & mask
    found = (found ^ found >> 13) * primes[2] & mask
    return found ^ found >> 16


def lz4_frame(*blocks: bytes, flags: int = 0x60, descriptor: int = 0x40, more: bytes = b"", end: bytes = bytes(4), check: int = 0) -> bytes:
    """A frame of these blocks, compressed one by one. `check` is added to the checksum of the descriptor."""
    told = bytes([flags, descriptor]) + more
    made = b"\x04\x22\x4d\x18" + told + bytes([((xxh32(told) >> 8) + check) & 0xFF])
    for block in blocks:
        packed = lz4.block.compress(block, store_size=False)
        made += struct.pack("<I", len(packed)) + packed
        if flags & 0x10:
            made += struct.pack("<I", xxh32(packed))
    return made + end


def _raw_deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(data) + deflater.flush()


def gzip_member(data: bytes, *, flags: int = 0, more: bytes = b"", crc: int = 0, size: int = 0, method: int = 8) -> bytes:
    """A gzip member; `crc` and `size` are added to those of its trailer."""
    head = b"\x1f\x8b" + bytes([method, flags]) + bytes(6) + more
    return head + _raw_deflate(data) + struct.pack("<II", (zlib.crc32(data) + crc) & 0xFFFFFFFF, len(data) + size)


def _fhcrc(data: bytes, wrong: int) -> bytes:
    head = b"\x1f\x8b\x08\x02" + bytes(6)
    return head + struct.pack("<H", (zlib.crc32(head) + wrong) & 0xFFFF) + gzip_member(data)[10:]


def _zstd(data: bytes, **settings: Any) -> bytes:
    return zstandard.ZstdCompressor(**settings).compress(data)


def _xerial(
    data: bytes, *, version: int = 1, compatible: int = 1, longer: int = 0, behind: bytes = b"", magic: bytes = b"\x82SNAPPY\0"
) -> bytes:
    block = snappy.compress(data)
    return magic + struct.pack(">ii", version, compatible) + struct.pack(">i", len(block) + longer) + block + behind


_SKIPPABLE = b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + b"skip"

STREAMS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip of two members": ("gzip", lambda body: gzip_member(body[:20]) + gzip_member(body[20:])),
    "gzip with an empty second member": ("gzip", lambda body: gzip_member(body) + gzip_member(b"")),
    "gzip with a damaged second member": ("gzip", lambda body: gzip_member(body) + b"\x1f\x8b\x08" + bytes(30)),
    "gzip with a name": ("gzip", lambda body: gzip_member(body, flags=8, more=b"name\0")),
    "gzip with a comment and more": ("gzip", lambda body: gzip_member(body, flags=0x14, more=b"\x02\0xxcomment\0")),
    "gzip with reserved flags": ("gzip", lambda body: gzip_member(body, flags=0xE0)),
    "gzip with the header's checksum": ("gzip", lambda body: _fhcrc(body, 0)),
    "gzip with a wrong checksum of the header": ("gzip", lambda body: _fhcrc(body, 1)),
    "gzip with a wrong checksum": ("gzip", lambda body: gzip_member(body, crc=1)),
    "gzip with a wrong size": ("gzip", lambda body: gzip_member(body, size=1)),
    "gzip with another method": ("gzip", lambda body: gzip_member(body, method=7)),
    "gzip with a few bytes behind": ("gzip", lambda body: gzip_member(body) + b"xyz"),
    "gzip with many bytes behind": ("gzip", lambda body: gzip_member(body) + b"x" * 40),
    "zlib for gzip": ("gzip", zlib.compress),
    "snappy without framing": ("snappy", snappy.compress),
    "snappy with framing": ("snappy", _xerial),
    "snappy of version 0": ("snappy", lambda body: _xerial(body, version=0)),
    "snappy of version 9": ("snappy", lambda body: _xerial(body, version=9, compatible=9)),
    "snappy of version -1": ("snappy", lambda body: _xerial(body, version=-1, compatible=-1)),
    "snappy with a block too long": ("snappy", lambda body: _xerial(body, longer=1)),
    "snappy with a block too short": ("snappy", lambda body: _xerial(body, longer=-1)),
    "snappy with a negative block": ("snappy", lambda body: _xerial(body, behind=b"\xff\xff\xff\xf0")),
    "snappy with an empty block behind": ("snappy", lambda body: _xerial(body, behind=bytes(4))),
    "snappy with three bytes behind": ("snappy", lambda body: _xerial(body, behind=b"abc")),
    "snappy with another magic": ("snappy", lambda body: _xerial(body, magic=b"\x82SNAPPX\0")),
    "snappy twice": ("snappy", lambda body: _xerial(body[:30]) + _xerial(body[30:])),
    "snappy in Google's framing": ("snappy", lambda body: snappy.StreamCompressor().compress(body)),
    "lz4 by hand": ("lz4", lz4_frame),
    "lz4 of two blocks": ("lz4", lambda body: lz4_frame(body[:30], body[30:])),
    "lz4 of blocks of 4 MiB": ("lz4", lambda body: lz4_frame(body, descriptor=0x70)),
    "lz4 of blocks of no size": ("lz4", lambda body: lz4_frame(body, descriptor=0x30)),
    "lz4 with linked blocks": ("lz4", lambda body: lz4.frame.compress(body, block_linked=True, store_size=False)),
    "lz4 by python-lz4": ("lz4", lz4.frame.compress),
    "lz4 with the size of its content": ("lz4", lambda body: lz4_frame(body, flags=0x68, more=struct.pack("<Q", len(body)))),
    "lz4 with a wrong size of its content": ("lz4", lambda body: lz4_frame(body, flags=0x68, more=struct.pack("<Q", len(body) + 1))),
    "lz4 with a checksum": ("lz4", lambda body: lz4_frame(body, flags=0x64, end=bytes(4) + struct.pack("<I", xxh32(body)))),
    "lz4 with a wrong checksum": ("lz4", lambda body: lz4_frame(body, flags=0x64, end=bytes(4) + b"abcd")),
    "lz4 without its checksum": ("lz4", lambda body: lz4_frame(body, flags=0x64)),
    "lz4 with checksums of blocks": ("lz4", lambda body: lz4_frame(body, flags=0x70)),
    "lz4 with a dictionary": ("lz4", lambda body: lz4_frame(body, flags=0x61, more=struct.pack("<I", 7))),
    "lz4 with a reserved bit": ("lz4", lambda body: lz4_frame(body, flags=0x62)),
    "lz4 with a reserved bit of blocks": ("lz4", lambda body: lz4_frame(body, descriptor=0x41)),
    "lz4 of version 0": ("lz4", lambda body: lz4_frame(body, flags=0x20)),
    "lz4 of version 2": ("lz4", lambda body: lz4_frame(body, flags=0xA0)),
    "lz4 with a wrong descriptor": ("lz4", lambda body: lz4_frame(body, check=1)),
    "lz4 without its end": ("lz4", lambda body: lz4_frame(body, end=b"")),
    "lz4 with half an end": ("lz4", lambda body: lz4_frame(body, end=b"\0\0")),
    "lz4 with bytes behind": ("lz4", lambda body: lz4_frame(body) + b"garbage"),
    "lz4 of two frames": ("lz4", lambda body: lz4_frame(body[:30]) + lz4_frame(body[30:])),
    "lz4 behind a skippable frame": ("lz4", lambda body: _SKIPPABLE + lz4_frame(body)),
    "lz4 of the legacy frame": (
        "lz4",
        lambda body: b"\x02\x21\x4c\x18" + struct.pack("<I", len(body)) + lz4.block.compress(body, store_size=False),
    ),
    "lz4 without frame": ("lz4", lambda body: lz4.block.compress(body, store_size=False)),
    "zstd with its size": ("zstd", _zstd),
    "zstd with a checksum": ("zstd", lambda body: _zstd(body, write_checksum=True)),
    "zstd with a wrong checksum": ("zstd", lambda body: _zstd(body, write_checksum=True)[:-1] + b"\0"),
    "zstd of two frames": ("zstd", lambda body: _zstd(body[:30]) + _zstd(body[30:])),
    "zstd behind a skippable frame": ("zstd", lambda body: _SKIPPABLE + _zstd(body)),
    "zstd with garbage behind": ("zstd", lambda body: _zstd(body) + b"garbage!"),
    "zstd with zeros behind": ("zstd", lambda body: _zstd(body) + bytes(12)),
    "zstd of a wrong size": ("zstd", lambda body: b"\x28\xb5\x2f\xfd\x20" + bytes([len(body) + 1]) + _zstd(body)[6:]),
    "zstd without its magic": ("zstd", lambda body: _zstd(body)[4:]),
    "text for gzip": ("gzip", lambda body: b"not compressed at all"),
    "text for snappy": ("snappy", lambda body: b"not compressed at all"),
    "text for lz4": ("lz4", lambda body: b"not compressed at all"),
    "text for zstd": ("zstd", lambda body: b"not compressed at all"),
    **{f"plain for {codec}": (codec, lambda body: body) for codec in CODECS[1:]},
    **{f"nothing for {codec}": (codec, lambda body: b"") for codec in CODECS[1:]},
}
"""Bytes of a codec, of ten good records."""


def _damaged(codec: str) -> Iterator[tuple[str, bytes]]:
    packed = compress(CODEC_BY_NAME[codec], a_body())
    for size in (1, 4, 8, 12, len(packed) // 2, len(packed) - 1):
        yield f"{codec} cut by {size}", packed[:-size]
    for place in range(0, len(packed), max(len(packed) // 12, 1)):
        yield f"{codec} flipped at {place}", packed[:place] + bytes([packed[place] ^ 0x14]) + packed[place + 1 :]


def kinds() -> dict[str, bytes]:
    """All batches by their names."""
    found: dict[str, bytes] = {}
    for number, codec in enumerate(CODECS):
        for name, (count, body) in BODIES.items():
            found[f"{codec}: {name}"] = framed(compress(number, body()), number, count=count)
        for name, fields in HEADERS.items():
            packed = compress(number, a_body())
            told = dict(fields)
            if "length" in told:
                told["length"] = 49 + len(packed) - 1
            if "attributes" in told:
                told["attributes"] = int(told["attributes"]) | number
            found[f"{codec}: {name}"] = framed(packed, number, **told)
        if number:
            found |= {f"{codec}: {name}": framed(packed, number) for name, packed in _damaged(codec)}
    found |= {name: framed(make(a_body()), CODECS.index(codec)) for name, (codec, make) in STREAMS.items()}
    found |= {f"codec {number}": framed(a_body(), number) for number in (5, 6, 7)}
    good = framed(a_body())
    found["wrong checksum"] = good[:-1] + b"\1"
    found["two batches"] = good + good
    found["a batch and a half"] = good + good[:40]
    found["a batch and a byte"] = good + b"\0"
    found["half a batch"] = good[:70]
    found["half a header"] = good[:40]
    found["a header of no records"] = with_checksum(good[:61])
    found["nothing"] = b""
    return found


SEEDS: Sequence[Callable[[random.Random], tuple[int, bytes]]] = (
    lambda chance: (10, a_body()),
    lambda chance: (1, a_body(1, value=b"a value of some length" * chance.randrange(1, 9))),
    lambda chance: (3, a_body(3, headers=b"\x04\x02a\x02b\x02c\x01", key=None)),
    lambda chance: (60, a_body(60, value=bytes(chance.randrange(40)), elapsed=encode_varlong(chance.randrange(10_000)))),
)
_FIELDS = ((">i", 23), (">q", 27), (">q", 35), (">i", 57), (">h", 21), (">q", 43), (">h", 51), (">i", 53), (">q", 0), (">i", 12))
_NUMBERS = (0, 1, -1, 2, -2, 9, 10, 11, 100, 127, 128, 255, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), TIME, TIME + 1, 16, 8, 32)


def mutated_records(chance: random.Random) -> tuple[int, bytes]:
    """Good records after one to three changes of their bytes: their number, and the bytes."""
    count, body = chance.choice(SEEDS)(chance)
    return count, _changed(body, chance, chance.choice((1, 1, 1, 2, 3)))


def mutated(chance: random.Random) -> bytes:
    """A good batch of any codec after one to three changes: of bytes before compression, of compressed bytes, of fields of the header."""
    count, body = chance.choice(SEEDS)(chance)
    number = chance.choice((0, 0, 1, 2, 3, 4))
    change = chance.randrange(4)
    changes = chance.choice((1, 1, 1, 2, 3))
    if change < 2:
        body = _changed(body, chance, changes)
    packed = compress(number, body)
    if change == 2 and packed:
        packed = _changed(packed, chance, changes)
    batch = bytearray(framed(packed, number, count=count))
    if change == 3:
        for _ in range(changes):
            form, place = chance.choice(_FIELDS)
            size = struct.calcsize(form)
            value = chance.choice(_NUMBERS) if chance.random() < 0.7 else chance.getrandbits(8 * size)
            batch[place : place + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "big")
    return with_checksum(batch)


def _changed(data: bytes, chance: random.Random, changes: int) -> bytes:
    """The bytes after so many changes: a byte, a bit, bytes taken out, put in, or moved."""
    fresh = bytearray(data)
    for _ in range(changes):
        place = chance.randrange(len(fresh)) if fresh else 0
        kind = chance.randrange(6)
        if kind == 0 and fresh:
            fresh[place] = chance.randrange(256)
        elif kind == 1 and fresh:
            fresh[place] ^= 1 << chance.randrange(8)
        elif kind == 2:
            del fresh[place : place + chance.randrange(1, 5)]
        elif kind == 3:
            fresh[place:place] = chance.randbytes(chance.randrange(1, 4))
        elif kind == 4:
            fresh[place:place] = b"\x80" * chance.randrange(1, 11)
        elif fresh:
            fresh[place] = (fresh[place] + chance.choice((1, 2, -1, -2))) & 0xFF
    return bytes(fresh)
