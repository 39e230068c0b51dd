"""Builds compressed bytes that no usual library writes: odd blocks, headers, members, frames, and what may stand between and behind them.

Some are readable, and some are not. Each function gets the bytes of good records.
"""

import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import lz4.block
import lz4.frame
import snappy
import zstandard

from tests.support.odd_batches import gzip_member, xxh32

Stream = Callable[[bytes], bytes]

_SKIPPABLE = b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + b"skip"


def _behind(made: Stream, tail: bytes) -> Stream:
    """The stream, with these bytes behind it."""
    return lambda body: made(body) + tail


# --- lz4

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_STORED = 0x80000000
_BROKEN = struct.pack("<I", 5) + b"\xff" * 5


def _packed(data: bytes) -> bytes:
    return bytes(lz4.block.compress(data, store_size=False))


def _block(data: bytes, *, behind: bytes = b"", size: int | None = None) -> bytes:
    packed = _packed(data)
    return struct.pack("<I", len(packed) if size is None else size) + packed + behind


def _stored(data: bytes, behind: bytes = b"") -> bytes:
    return struct.pack("<I", len(data) | _STORED) + data + behind


def _frame(blocks: bytes, *, flags: int = 0x60, descriptor: int = 0x40, more: bytes = b"", end: bytes = bytes(4)) -> bytes:
    told = bytes([flags, descriptor]) + more
    return _LZ4_MAGIC + told + bytes([xxh32(told) >> 8 & 0xFF]) + blocks + end


def _framed(body: bytes, **told: int) -> bytes:
    return _frame(_block(body), flags=told.get("flags", 0x60), descriptor=told.get("descriptor", 0x40))


def _sum(data: bytes, wrong: int = 0) -> bytes:
    return struct.pack("<I", xxh32(data) ^ wrong)


def _summed_over_the_magic(body: bytes) -> bytes:
    """The checksum of the descriptor that clients before 0.10 wrote."""
    frame = _frame(_block(body))
    return frame[:6] + bytes([xxh32(frame[:6]) >> 8 & 0xFF]) + frame[7:]


LZ4: dict[str, Stream] = {
    "stored block": lambda body: _frame(_stored(body)),
    "stored blocks": lambda body: _frame(_stored(body[:30]) + _stored(body[30:])),
    "stored, then packed": lambda body: _frame(_stored(body[:30]) + _block(body[30:])),
    "packed, then stored": lambda body: _frame(_block(body[:30]) + _stored(body[30:])),
    "end mark of a stored block": lambda body: _frame(_block(body), end=b"\0\0\0\x80"),
    "empty stored block in front": lambda body: _frame(_stored(b"") + _block(body)),
    "empty packed block in front": lambda body: _frame(_block(b"") + _block(body)),
    "empty packed block between": lambda body: _frame(_block(body[:30]) + _block(b"") + _block(body[30:])),
    "empty packed block behind": lambda body: _frame(_block(body) + _block(b"")),
    "empty stored block behind": lambda body: _frame(_block(body) + _stored(b"")),
    "wrong checksum of a block": lambda body: _frame(_block(body, behind=b"abcd"), flags=0x70),
    "no checksum of a block": lambda body: _frame(_block(body), flags=0x70),
    "checksum of a stored block": lambda body: _frame(_stored(body, _sum(body)), flags=0x70),
    "wrong checksum of a stored block": lambda body: _frame(_stored(body, _sum(body, 1)), flags=0x70),
    "checksum of a block, and bytes behind": lambda body: _frame(_block(body, behind=_sum(_packed(body))), flags=0x70) + b"xx",
    "both checksums": lambda body: _frame(_block(body, behind=_sum(_packed(body))), flags=0x74, end=bytes(4) + _sum(body)),
    "size and checksum of the content": lambda body: _frame(
        _block(body), flags=0x6C, more=struct.pack("<Q", len(body)), end=bytes(4) + _sum(body)
    ),
    "content of size 0": lambda body: _frame(_block(body), flags=0x68, more=bytes(8)),
    "content of size 2^64-1": lambda body: _frame(_block(body), flags=0x68, more=b"\xff" * 8),
    "half a content size": lambda body: _LZ4_MAGIC + b"\x68\x40\x5a\0\0",
    "no content size": lambda body: _frame(_block(body), flags=0x68),
    "half a checksum of the content": lambda body: _frame(_block(body), flags=0x64, end=bytes(4) + b"ab"),
    "checksum of the content, and bytes behind": lambda body: _frame(_block(body), flags=0x64, end=bytes(4) + _sum(body) + b"zz"),
    "checksum over the magic": _summed_over_the_magic,
    "header alone": lambda body: _frame(b"", end=b""),
    "header and end": lambda body: _frame(b""),
    "magic alone": lambda body: _LZ4_MAGIC,
    "six bytes": lambda body: _frame(b"")[:6],
    "three bytes of a size": lambda body: _frame(b"\x10\0\0", end=b""),
    "block beyond the end": lambda body: _frame(_block(body, size=200), end=b""),
    "broken block": lambda body: _frame(_BROKEN),
    "match before the start": lambda body: _frame(struct.pack("<I", 6) + b"\x14a\xff\xff\0\0"),
    "match at distance 0": lambda body: _frame(struct.pack("<I", 6) + b"\x14a\0\0\0\0"),
    "block of 70 KB": lambda body: _frame(_block(bytes(70_000))),
    "large frame in front of a linked one": lambda body: _frame(_block(body)) + bytes(lz4.frame.compress(body * 9000, store_size=False)),
    "frame in front of a cut one": lambda body: _frame(_block(body)) + _LZ4_MAGIC,
    "zeros behind": lambda body: _frame(_block(body)) + bytes(20),
    "skippable frame behind": lambda body: _frame(_block(body)) + _SKIPPABLE,
    "skippable frame alone": lambda body: _SKIPPABLE,
    "empty frame in front": lambda body: _frame(b"") + _frame(_block(body)),
    "a byte behind the records": lambda body: _frame(_block(body + b"\0")),
    "block of garbage behind the records": lambda body: _frame(_block(body) + _block(b"garbage")),
    "broken block behind the records": lambda body: _frame(_block(body) + _BROKEN),
    "cut block behind the records": lambda body: _frame(_block(body) + struct.pack("<I", 500) + b"abc", end=b""),
    **{
        f"block descriptor {value:#x}": partial(_framed, descriptor=value)
        for value in (0, 0x10, 0x20, 0x30, 0x50, 0x60, 0x80, 0xC0, 0x48, 0x4F, 0xFF)
    },
    **{
        f"flags {value:#x}": partial(_framed, flags=value)
        for value in (0x00, 0x40, 0x41, 0x48, 0x50, 0x61, 0x62, 0x63, 0x66, 0x70, 0x78, 0x7C, 0x7F, 0xA0, 0xE0, 0xFF)
    },
}


# --- gzip

_GZIP_HEADER = b"\x1f\x8b\x08" + bytes(7)


def _deflated(data: bytes, *, level: int = 6, strategy: int = 0, bits: int = 15) -> bytes:
    deflater = zlib.compressobj(level, zlib.DEFLATED, -bits, 9, strategy)
    return deflater.compress(data) + deflater.flush()


def _flushed(*parts: bytes, mode: int = zlib.Z_SYNC_FLUSH, is_ended: bool = True) -> bytes:
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    made = b"".join(deflater.compress(part) + deflater.flush(mode) for part in parts)
    return made + (deflater.flush() if is_ended else b"")


def _member(data: bytes, deflated: bytes, trailer: bool = True) -> bytes:
    return _GZIP_HEADER + deflated + (struct.pack("<II", zlib.crc32(data), len(data)) if trailer else b"")


def _with_all_flags(body: bytes) -> bytes:
    head = b"\x1f\x8b\x08\x1f" + bytes(6) + b"\x03\0abc" + b"name\0" + b"comment\0"
    return head + struct.pack("<H", zlib.crc32(head) & 0xFFFF) + gzip_member(body)[10:]


GZIP: dict[str, Stream] = {
    "stored": lambda body: _member(body, _deflated(body, level=0)),
    "fixed codes": lambda body: _member(body, _deflated(body, strategy=zlib.Z_FIXED)),
    "codes alone": lambda body: _member(body, _deflated(body, strategy=zlib.Z_HUFFMAN_ONLY)),
    "a window of 512 bytes": lambda body: _member(body, _deflated(body, bits=9)),
    "flushed inside": lambda body: _member(body, _flushed(body[:30], body[30:])),
    "flushed, without an end": lambda body: _member(body, _flushed(body, is_ended=False), trailer=False),
    "flushed, with a trailer alone": lambda body: _member(body, _flushed(body, is_ended=False)),
    "damaged behind the records": lambda body: _member(body, _flushed(body, mode=zlib.Z_FULL_FLUSH, is_ended=False) + b"\x07\xff\xff"),
    "empty first member": lambda body: gzip_member(b"") + gzip_member(body),
    "ten members": lambda body: b"".join(gzip_member(body[at : at + 9]) for at in range(0, 90, 9)),
    "second member of garbage": lambda body: gzip_member(body) + gzip_member(b"garbage"),
    "empty second member with a wrong checksum": lambda body: gzip_member(body) + gzip_member(b"", crc=1),
    "second member with a wrong checksum": lambda body: gzip_member(body[:81]) + gzip_member(body[81:], crc=1),
    "first member with a wrong checksum": lambda body: gzip_member(body[:30], crc=1) + gzip_member(body[30:]),
    "first member with a wrong size": lambda body: gzip_member(body[:30], size=1) + gzip_member(body[30:]),
    "no trailer": lambda body: gzip_member(body)[:-8],
    "half a trailer": lambda body: gzip_member(body)[:-3],
    "extra bytes": lambda body: gzip_member(body, flags=4, more=b"\x03\0abc"),
    "no extra bytes": lambda body: gzip_member(body, flags=4, more=b"\0\0"),
    "extra bytes beyond the end": lambda body: gzip_member(body, flags=4, more=b"\xff\xff"),
    "a name without an end": lambda body: b"\x1f\x8b\x08\x08" + bytes(6) + b"name",
    "an empty name": lambda body: gzip_member(body, flags=8, more=b"\0"),
    "marked as text": lambda body: gzip_member(body, flags=1),
    "all flags": _with_all_flags,
    "half a checksum of the header": lambda body: b"\x1f\x8b\x08\x02" + bytes(7),
    "nine bytes": lambda body: gzip_member(body)[:9],
    "ten bytes": lambda body: gzip_member(body)[:10],
    "another magic": lambda body: b"\x1f\x8c" + gzip_member(body)[2:],
    "time and system": lambda body: b"\x1f\x8b\x08\0" + b"\xff" * 6 + gzip_member(body)[10:],
    "reserved kind of block": lambda body: _GZIP_HEADER + b"\x07" + bytes(20),
    "a byte behind the records": lambda body: gzip_member(body + b"\0"),
    "garbage behind the records": lambda body: gzip_member(body + b"garbage" * 100),
    **{f"{size} zeros behind": _behind(gzip_member, bytes(size)) for size in (1, 8, 10, 18, 19, 25)},
    **{f"{size} bytes of a second member": _behind(gzip_member, gzip_member(b"x")[:size]) for size in (1, 4, 9, 10, 17, 18, 19, 20, 21)},
    **{f"{size} bytes of a broken member": _behind(gzip_member, (_GZIP_HEADER + bytes(40))[:size]) for size in (10, 17, 18, 19, 20, 25)},
}


# --- snappy

_XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def _length(size: int) -> bytes:
    return struct.pack(">i", size)


def _snappy_block(data: bytes, declared: bytes | None = None) -> bytes:
    """`declared` replaces the length of 90 bytes, which takes one."""
    packed = bytes(snappy.compress(data))
    packed = packed if declared is None else declared + packed[1:]
    return _length(len(packed)) + packed


SNAPPY: dict[str, Stream] = {
    "two blocks": lambda body: _XERIAL + _snappy_block(body[:30]) + _snappy_block(body[30:]),
    "empty block in front": lambda body: _XERIAL + _snappy_block(b"") + _snappy_block(body),
    "empty block between": lambda body: _XERIAL + _snappy_block(body[:30]) + _snappy_block(b"") + _snappy_block(body[30:]),
    "empty block behind": lambda body: _XERIAL + _snappy_block(body) + _snappy_block(b""),
    "block of no bytes in front": lambda body: _XERIAL + _length(0) + _snappy_block(body),
    "header alone": lambda body: _XERIAL,
    "half a header": lambda body: _XERIAL[:12],
    "magic alone": lambda body: _XERIAL[:8],
    "seven bytes": lambda body: _XERIAL[:7],
    "three zeros behind": lambda body: _XERIAL + _snappy_block(body) + bytes(3),
    "four letters behind": lambda body: _XERIAL + _snappy_block(body) + b"abcd",
    "block of 100 bytes that are missing": lambda body: _XERIAL + _snappy_block(body) + _length(100),
    "block of 100 MB that are missing": lambda body: _XERIAL + _snappy_block(body) + _length(100_000_000) + b"abc",
    "block of 2^31-1 bytes behind": lambda body: _XERIAL + _snappy_block(body) + _length(2**31 - 1),
    "block of -1 bytes behind": lambda body: _XERIAL + _snappy_block(body) + _length(-1),
    "header behind": lambda body: _XERIAL + _snappy_block(body) + _XERIAL,
    "half a header behind": lambda body: _XERIAL + _snappy_block(body) + _XERIAL[:10],
    "magic behind": lambda body: _XERIAL + _snappy_block(body) + _XERIAL[:8],
    "header twice": lambda body: _XERIAL + _XERIAL + _snappy_block(body),
    "half a magic behind": lambda body: _XERIAL + _snappy_block(body) + b"\x82SNAxxxx" + bytes(8),
    "block of garbage behind": lambda body: _XERIAL + _snappy_block(body) + _length(4) + b"\xff" * 4,
    "a byte less declared": lambda body: _XERIAL + _snappy_block(body, bytes([len(body) - 1])),
    "a byte more declared": lambda body: _XERIAL + _snappy_block(body, bytes([len(body) + 1])),
    "4 GB declared": lambda body: _XERIAL + _snappy_block(body, b"\xff\xff\xff\xff\x0f"),
    "64 MB declared": lambda body: _XERIAL + _snappy_block(body, b"\x80\x80\x80\x20"),
    "declared in six bytes": lambda body: _XERIAL + _snappy_block(body, b"\xff\xff\xff\xff\xff\x01"),
    "declared in three bytes": lambda body: b"\xda\x80\x00" + bytes(snappy.compress(body))[1:],
    "bare and empty": lambda body: bytes(snappy.compress(b"")),
    "bare and a letter behind": lambda body: bytes(snappy.compress(body)) + b"x",
    "bare and cut": lambda body: bytes(snappy.compress(body))[:-1],
    "bare twice": lambda body: bytes(snappy.compress(body)) * 2,
    "bare length": lambda body: b"\x5a",
    "bare, a byte behind the records": lambda body: bytes(snappy.compress(body + b"\0")),
    "header and a bare block": lambda body: _XERIAL + bytes(snappy.compress(body)),
    "bare, then framed": lambda body: bytes(snappy.compress(body[:30])) + _XERIAL + _snappy_block(body[30:]),
    "copy from before the start": lambda body: b"\x5a" + b"\x01\x05" * 10,
    "copy at distance 0": lambda body: b"\x04\x00a\x01\x00",
    "literal beyond the end": lambda body: b"\x5a\xf0\x60abc",
    "literal with three bytes of length": lambda body: b"\x5a" + bytes([62 << 2]) + struct.pack("<I", 89)[:3] + body,
    "literal with four bytes of length": lambda body: b"\x5a" + bytes([63 << 2]) + struct.pack("<I", 89) + body,
}


# --- zstd

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_PLAIN_HEADER = _ZSTD_MAGIC + b"\0\0"
_RAW, _RUN, _COMPRESSED, _RESERVED = range(4)


def _zstd(data: bytes, **settings: Any) -> bytes:
    return zstandard.ZstdCompressor(**settings).compress(data)


def _zstd_block(data: bytes, kind: int = _RAW, *, is_last: bool = True, size: int | None = None) -> bytes:
    return struct.pack("<I", (len(data) if size is None else size) << 3 | kind << 1 | is_last)[:3] + data


def _with_raw_dictionary(body: bytes) -> bytes:
    found = zstandard.ZstdCompressionDict(body * 3, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return _zstd(body, dict_data=found, write_content_size=False)


def _of_size(descriptor: int, size: bytes) -> Stream:
    """A frame whose header has this size of its content, and a window where it needs one."""
    return lambda body: _ZSTD_MAGIC + bytes([descriptor]) + (b"" if descriptor & 0x20 else b"\0") + size + _zstd_block(body)


def _of_window(value: int) -> Stream:
    return lambda body: _ZSTD_MAGIC + bytes([0, value]) + _zstd_block(body)


def _of_magic(value: int) -> Stream:
    """The first bytes of formats before 0.8 differ in one."""
    return lambda body: bytes([value]) + _zstd(body)[1:]


ZSTD: dict[str, Stream] = {
    "stored": lambda body: _PLAIN_HEADER + _zstd_block(body),
    "stored in two blocks": lambda body: _PLAIN_HEADER + _zstd_block(body[:30], is_last=False) + _zstd_block(body[30:]),
    "empty block in front": lambda body: _PLAIN_HEADER + _zstd_block(b"", is_last=False) + _zstd_block(body),
    "empty block behind": lambda body: _PLAIN_HEADER + _zstd_block(body, is_last=False) + _zstd_block(b""),
    "reserved kind of block": lambda body: _PLAIN_HEADER + _zstd_block(body, _RESERVED),
    "no last block": lambda body: _PLAIN_HEADER + _zstd_block(body, is_last=False),
    "run of zeros": lambda body: _PLAIN_HEADER + _zstd_block(b"\0", _RUN, size=100),
    "run behind the records": lambda body: _PLAIN_HEADER + _zstd_block(body, is_last=False) + _zstd_block(b"\0", _RUN, size=5),
    "single segment": lambda body: _of_size(0x20, bytes([len(body)]))(body),
    "single segment, a byte less": lambda body: _of_size(0x20, bytes([len(body) - 1]))(body),
    "single segment, a byte more": lambda body: _of_size(0x20, bytes([len(body) + 1]))(body),
    "single segment of 2^40 bytes": _of_size(0xE0, struct.pack("<Q", 2**40)),
    "single segment of 2^27+1 bytes": _of_size(0xA0, struct.pack("<I", 2**27 + 1)),
    "size in eight bytes": lambda body: _of_size(0xC0, struct.pack("<Q", len(body)))(body),
    "wrong size in eight bytes": lambda body: _of_size(0xC0, struct.pack("<Q", len(body) + 5))(body),
    "size 2^63": _of_size(0xC0, struct.pack("<Q", 2**63)),
    "size 2^64-1": _of_size(0xC0, b"\xff" * 8),
    "size 2^64-2": _of_size(0xC0, struct.pack("<Q", 2**64 - 2)),
    "reserved bit": _of_size(0x08, b""),
    "unused bit": _of_size(0x10, b""),
    "dictionary 7": _of_size(0x01, b"\x07"),
    "dictionary 0": _of_size(0x01, b"\0"),
    "dictionary in four bytes": _of_size(0x03, struct.pack("<I", 12345)),
    "a raw dictionary": _with_raw_dictionary,
    "no checksum": lambda body: _zstd(body, write_checksum=True)[:-4],
    "half a checksum": lambda body: _zstd(body, write_checksum=True)[:-2],
    "wrong checksum of the first frame": lambda body: _zstd(body[:30], write_checksum=True)[:-1] + b"\0" + _zstd(body[30:]),
    "empty frame in front": lambda body: _zstd(b"") + _zstd(body),
    "empty frame behind": lambda body: _zstd(body) + _zstd(b""),
    "frame of garbage behind": lambda body: _zstd(body) + _zstd(b"garbage"),
    "cut frame behind": lambda body: _zstd(body) + _zstd(b"garbage" * 9)[:-3],
    "header of a frame behind": lambda body: _zstd(body) + _PLAIN_HEADER,
    "magic behind": lambda body: _zstd(body) + _ZSTD_MAGIC,
    "skippable frame behind": lambda body: _zstd(body) + _SKIPPABLE,
    "skippable frame alone": lambda body: _SKIPPABLE,
    "skippable frame between": lambda body: _zstd(body[:30]) + _SKIPPABLE + _zstd(body[30:]),
    "another skippable frame": lambda body: b"\x5f\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc" + _zstd(body),
    "empty skippable frame": lambda body: b"\x50\x2a\x4d\x18" + bytes(4) + _zstd(body),
    "cut skippable frame behind": lambda body: _zstd(body) + _SKIPPABLE[:-2],
    "half a skippable frame behind": lambda body: _zstd(body) + _SKIPPABLE[:6],
    "skippable frame of 4 GB behind": lambda body: _zstd(body) + b"\x50\x2a\x4d\x18" + b"\xff" * 4,
    "block larger than the window": lambda body: _PLAIN_HEADER + _zstd_block(body * 12),
    "three bytes": lambda body: _ZSTD_MAGIC[:3],
    "five bytes": lambda body: _ZSTD_MAGIC + b"\0",
    "six bytes": lambda body: _PLAIN_HEADER,
    "an empty frame": lambda body: _PLAIN_HEADER + _zstd_block(b""),
    "compressed block of garbage": lambda body: _PLAIN_HEADER + _zstd_block(b"\xff" * 20, _COMPRESSED),
    "compressed block of no bytes": lambda body: _PLAIN_HEADER + _zstd_block(b"", _COMPRESSED),
    "compressed block of two bytes": lambda body: _PLAIN_HEADER + _zstd_block(bytes(2), _COMPRESSED),
    "block of garbage behind the records": lambda body: (
        _PLAIN_HEADER + _zstd_block(body, is_last=False) + _zstd_block(b"\xff" * 20, _COMPRESSED)
    ),
    "cut block behind the records": lambda body: _PLAIN_HEADER + _zstd_block(body, is_last=False) + _zstd_block(b"abc", size=500),
    "level 19": lambda body: _zstd(body, level=19),
    "level -5": lambda body: _zstd(body, level=-5),
    "a byte behind the records": lambda body: _zstd(body + b"\0"),
    **{f"window {value:#x}": _of_window(value) for value in (0x50, 0x88, 0x89, 0x90, 0x98, 0xA8, 0xB0, 0xFF)},
    **{f"{size} zeros behind": _behind(_zstd, bytes(size)) for size in (1, 3, 4, 5, 8)},
    **{f"{size} letters behind": _behind(_zstd, b"x" * size) for size in (1, 3, 4, 5, 8)},
    **{f"magic {value:#x}": _of_magic(value) for value in (0x1E, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27)},
}

STREAMS: dict[str, dict[str, Stream]] = {"lz4": LZ4, "gzip": GZIP, "snappy": SNAPPY, "zstd": ZSTD}
