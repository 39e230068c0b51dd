"""Compresses and decompresses record batches with gzip, snappy, lz4 and zstd, in the framing of Apache Kafka's Java clients.

Called by the record reader and builder, by produce validation and by the log cleaner. The functions are pure and safe in worker threads.

`decompressed` is a stream: it has one piece of output in memory, and never produces much more than `max_bytes`. Larger output raises
`DecompressionTooLarge`, malformed input `CorruptCompressedData`. Exceptions of the libraries are translated. A stream that Java's clients
cannot read is malformed.

Framing:
- gzip: RFC 1952. zlib compresses, so that the bytes are those of Apache Kafka. zlib-ng decompresses in three quarters of the time, and
  judges all data as zlib does. Members may be concatenated, bytes after the last member are ignored (as java.util.zip does). The contents
  come before their checksum is compared.
- snappy: the stream framing of snappy-java ("xerial"): magic, two version words, then blocks with a four-byte length, 32 KiB each before
  compression. A bare snappy block without that framing is accepted when reading.
- lz4: one lz4 frame, independent blocks of 64 KiB, no content size, correct header checksum (KIP-57; magic 2 never has the broken one).
  Bytes after the frame are ignored, as Java's clients do. They do not verify the checksum of the content, which is verified here.
- zstd: frames without content size, as a streaming encoder writes them.

zlib-ng and the libraries of snappy, lz4 and zstd are imported on first use. Few brokers need all, and they would take a sixtieth of the
start-up time.
"""

import struct
import zlib
from collections.abc import Callable, Generator, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from ottla.protocol.records.errors import CorruptCompressedData, DecompressionTooLarge, TruncatedCompressedData, UnknownCompressionCodec
from ottla.protocol.records.joined import join

if TYPE_CHECKING:
    import zstandard

Buffer = bytes | bytearray | memoryview

# Default limit for the expanded size of one batch, in bytes. A producer holds the uncompressed batch in memory before it sends it, and
# its buffer.memory is 32 MiB by default.
MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024

PIECE_BYTES: Final = 128 * 1024
"""Largest piece of `decompressed`: the largest block of zstd."""
_SMALL_PIECE: Final = 4 * 1024


class CompressionCodec(IntEnum):
    """Codec ids, as in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The name in configuration: none, gzip, snappy, lz4, zstd."""
        return self.name.lower()


CODEC_BY_NAME: Final = {codec.label: codec for codec in CompressionCodec}

# Default levels and bounds of Apache Kafka's CompressionType (KIP-390). Level 9 of lz4 selects its fast compressor.
GZIP_DEFAULT_LEVEL: Final = -1
LZ4_DEFAULT_LEVEL: Final = 9
ZSTD_DEFAULT_LEVEL: Final = 3


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` as a stream of the codec, in the framing of Apache Kafka. `level` None selects the codec's default.

    NONE returns the data unchanged. Raises UnknownCompressionCodec.
    """
    encoder = _ENCODERS.get(codec)
    if encoder is None:
        raise UnknownCompressionCodec(codec)
    return encoder(data, level)


def decompress(codec: int, data: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The decompressed `data`, at most `max_bytes`. Raises the errors of `decompressed`."""
    parts = list(decompressed(codec, data, max_bytes))
    return parts[0] if len(parts) == 1 else join(parts)


def decompressed_at_once(codec: int, data: Buffer, max_bytes: int) -> Buffer | None:
    """The decompressed `data` of a usual batch, at the least cost: one call of the library. None where `decompressed` has to judge.

    That are all malformed data, and good data of several frames, members or blocks, or that expand to more than eightfold or `max_bytes`.
    """
    whole = _WHOLE.get(codec)
    view = memoryview(data)
    most = min(max(8 * len(view), _SMALL_PIECE), max_bytes, PIECE_BYTES)
    try:
        return None if whole is None else whole(view, most)
    except (CorruptCompressedData, DecompressionTooLarge):
        return None


def decompressed(codec: int, data: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[bytes]:
    """The decompressed `data` in pieces of at most `PIECE_BYTES`, and `max_bytes` together. A block of snappy is always one piece.

    Nothing is decompressed ahead of the caller, so a caller that keeps no piece needs the memory of one. Data before a fault is yielded
    first, as far as the library has it.

    Raises UnknownCompressionCodec, CorruptCompressedData, TruncatedCompressedData, DecompressionTooLarge.
    """
    stream = _STREAMS.get(codec)
    if stream is None:
        raise UnknownCompressionCodec(codec)
    room = max_bytes
    for piece in stream(memoryview(data), max_bytes):
        room -= len(piece)
        if room < 0:
            raise DecompressionTooLarge(CompressionCodec(codec).label, max_bytes)
        yield piece


# --- none


def _encode_none(data: Buffer, level: int | None) -> bytes:
    return bytes(data)


def _stream_none(view: memoryview, max_bytes: int) -> Iterator[bytes]:
    if len(view) > max_bytes:
        raise DecompressionTooLarge("none", max_bytes)
    yield bytes(view)


# --- gzip

_GZIP_HEADER: Final = (
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # no name, no time, unknown operating system, as Java 16 and later write it
)


def _encode_gzip(data: Buffer, level: int | None) -> bytes:
    deflater = zlib.compressobj(GZIP_DEFAULT_LEVEL if level is None else level, zlib.DEFLATED, -zlib.MAX_WBITS)
    trailer = zlib.crc32(data).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
    return join([_GZIP_HEADER, deflater.compress(data), deflater.flush(), trailer])


_GZIP_MAGIC_AND_METHOD: Final = _GZIP_HEADER[:3]
_GZIP_HEADER_CHECKSUM: Final = 0x02
_GZIP_EXTRA: Final = 0x04
_GZIP_TEXTS: Final = (0x08, 0x10)  # a name, a comment
_GZIP_TRAILER: Final = struct.Struct("<II")  # CRC and size, each modulo 2^32
_FEWEST_GZIP_BYTES: Final = 19
"""Bytes behind a member from which on another member is looked for: its header and trailer, and at least one byte."""


def _stream_gzip(view: memoryview, max_bytes: int) -> Iterator[bytes]:
    at = _after_gzip_header(view, 0)
    if at < 0:
        raise CorruptCompressedData("gzip", "no header")
    while at >= 0:
        at = yield from _stream_gzip_member(view, at)
        at = _after_gzip_header(view, at) if len(view) - at >= _FEWEST_GZIP_BYTES else -1


def _after_gzip_header(view: memoryview, at: int) -> int:
    """The position behind the header of the member at `at`; -1 if there is none. Flags without a meaning are ignored, as in Java."""
    begin = at
    if bytes(view[at : at + 3]) != _GZIP_MAGIC_AND_METHOD or len(view) - at < len(_GZIP_HEADER):
        return -1
    flags = view[at + 3]
    at += len(_GZIP_HEADER)
    if flags & _GZIP_EXTRA:
        at += 2 + int.from_bytes(view[at : at + 2], "little")
    for text in _GZIP_TEXTS:
        if flags & text:
            while at < len(view) and view[at]:
                at += 1
            at += 1
    if flags & _GZIP_HEADER_CHECKSUM:
        if int.from_bytes(view[at : at + 2], "little") != zlib.crc32(view[begin:at]) & 0xFFFF:
            return -1
        at += 2
    return at if at <= len(view) else -1


def _stream_gzip_member(view: memoryview, at: int) -> Generator[bytes, None, int]:
    """Yields the contents of a member behind its header. Returns the position behind the member."""
    from zlib_ng import zlib_ng

    inflater = zlib_ng.decompressobj(-zlib.MAX_WBITS)
    size = PIECE_BYTES if len(view) <= PIECE_BYTES else _SMALL_PIECE  # the bytes behind the member in its piece are copied
    crc = produced = 0
    chunk: Buffer = b""
    while not inflater.eof:
        if not chunk:
            chunk = view[at : at + size]
            at += len(chunk)
            size = min(2 * size, PIECE_BYTES)
        try:
            part = inflater.decompress(chunk, PIECE_BYTES)
        except zlib_ng.error as error:  # type: ignore[misc]  # the stub of the library says that it is no class
            raise CorruptCompressedData("gzip", str(error)) from None
        if part:
            crc = zlib_ng.crc32(part, crc)
            produced += len(part)
            yield part
        elif not chunk and not inflater.eof:
            raise TruncatedCompressedData("gzip")
        chunk = inflater.unconsumed_tail
    at -= len(inflater.unused_data)
    end = at + _GZIP_TRAILER.size
    if end > len(view):
        raise TruncatedCompressedData("gzip")
    if _GZIP_TRAILER.unpack_from(view, at) != (crc, produced & 0xFFFFFFFF):
        raise CorruptCompressedData("gzip", "the trailer does not match the contents")
    return end


def _whole_gzip(view: memoryview, most: int) -> bytes | None:
    from zlib_ng import zlib_ng

    at = _after_gzip_header(view, 0)
    if at < 0:
        return None
    inflater = zlib_ng.decompressobj(-zlib.MAX_WBITS)
    try:
        data = inflater.decompress(view[at:], most)
    except zlib_ng.error:  # type: ignore[misc]  # as above
        return None
    trailer = inflater.unused_data
    if len(trailer) != _GZIP_TRAILER.size or _GZIP_TRAILER.unpack(trailer) != (zlib_ng.crc32(data), len(data)):
        return None
    return data


# --- snappy

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, readable by version 1
_XERIAL_BLOCK: Final = 32 * 1024
_XERIAL_HEADER_AS_LENGTH: Final = int.from_bytes(_XERIAL_MAGIC[:4], "big")
_SNAPPY_MAX_RATIO: Final = 22  # the densest element is a three-byte copy of 64 bytes


def _encode_snappy(data: Buffer, level: int | None) -> bytes:
    import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = snappy.compress(bytes(view[start : start + _XERIAL_BLOCK]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return join(parts)


def _stream_snappy(view: memoryview, max_bytes: int) -> Iterator[bytes]:
    end = len(view)
    if end < len(_XERIAL_HEADER) or bytes(view[:8]) != _XERIAL_MAGIC:
        yield _snappy_block(view, max_bytes, max_bytes)
        return
    at = len(_XERIAL_HEADER)
    room = max_bytes
    while end - at >= 4:  # as in snappy-java, less than the length of a block ends the stream
        length = int.from_bytes(view[at : at + 4], "big")
        if length == _XERIAL_HEADER_AS_LENGTH:  # a concatenated stream
            if end - at < len(_XERIAL_HEADER):
                raise CorruptCompressedData("snappy", "the header of a concatenated stream is cut short")
            if bytes(view[at : at + 8]) != _XERIAL_MAGIC:
                return
            at += len(_XERIAL_HEADER)
            continue
        at += 4
        if length > end - at:
            raise CorruptCompressedData("snappy", f"a block of {length} bytes where {end - at} remain")
        block = _snappy_block(view[at : at + length], room, max_bytes)
        room -= len(block)
        at += length
        yield block


def _whole_snappy(view: memoryview, most: int) -> bytes | None:
    at = len(_XERIAL_HEADER) + 4
    if bytes(view[:8]) != _XERIAL_MAGIC or int.from_bytes(view[at - 4 : at], "big") != len(view) - at:
        return None
    return _snappy_block(view[at:], most, most)


def _snappy_block(block: memoryview, room: int, max_bytes: int) -> bytes:
    import snappy

    declared = 0
    for index in range(5):
        if index >= len(block):
            raise CorruptCompressedData("snappy", "a block without a length")
        byte = block[index]
        declared |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise CorruptCompressedData("snappy", "a block length longer than five bytes")
    if declared > _SNAPPY_MAX_RATIO * len(block):  # the library allocates the declared size
        raise CorruptCompressedData("snappy", f"{len(block)} bytes cannot hold the declared {declared}")
    if declared > room:
        raise DecompressionTooLarge("snappy", max_bytes)
    try:
        return snappy.decompress(bytes(block))  # type: ignore[no-any-return]  # the library has no annotations
    except snappy.UncompressError as error:
        raise CorruptCompressedData("snappy", str(error.__cause__ or error)) from None


# --- lz4

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_END: Final = bytes(4)
_LZ4_EMPTY_STORED_BLOCK: Final = 0x80000000
_LZ4_VERSION_AND_INDEPENDENCE: Final = 0xE0
_LZ4_VERSION_1_INDEPENDENT: Final = 0x60
_LZ4_RESERVED_AND_DICTIONARY: Final = 0x03
_LZ4_RESERVED_OF_BLOCKS: Final = 0x8F
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_BLOCK_SIZE: Final = 0x7FFFFFFF
"""The highest bit tells that a block is not compressed."""


def _encode_lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    fast = level is None or level == LZ4_DEFAULT_LEVEL
    # 0 is the fast compressor, 3 to 12 the high compressor. Kafka's 1 and 2 are the library's weakest level, 13 to 17 its strongest.
    strength = 0 if fast or level is None else min(max(level, lz4.frame.COMPRESSIONLEVEL_MINHC), lz4.frame.COMPRESSIONLEVEL_MAX)
    return lz4.frame.compress(  # type: ignore[no-any-return]  # the library has no annotations
        data,
        compression_level=strength,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )


def _stream_lz4(view: memoryview, max_bytes: int) -> Iterator[bytes]:
    import lz4.frame

    at = 0
    end = _check_lz4_frame(view)
    decoder = lz4.frame.LZ4FrameDecompressor()
    size = min(max(4 * len(view), _SMALL_PIECE), PIECE_BYTES)  # the library allocates max_length at once
    while not decoder.eof:
        chunk: Buffer = b""
        if decoder.needs_input:
            # Block by block: where one of them is malformed, the library drops all that it has decompressed in that call.
            end = _lz4_block_end(view, end)
            if len(view) - end == len(_LZ4_END) and view[end:] == _LZ4_END:
                end = len(view)  # saves a call, 1 µs
            chunk = view[at:end]
            at += len(chunk)
        try:
            part = decoder.decompress(chunk, max_length=size)
        except (RuntimeError, EOFError) as error:
            raise CorruptCompressedData("lz4", str(error)) from None
        if part:
            yield part
        elif not decoder.eof and (at == len(view) or not decoder.needs_input):
            raise CorruptCompressedData("lz4", "the frame ends early")
        size = PIECE_BYTES


_idle_lz4_contexts: "list[object]" = []
"""As the decoders of zstd: a new one takes 1 µs."""


def _whole_lz4(view: memoryview, most: int) -> bytes | None:
    import lz4.frame

    end = _lz4_block_end(view, _check_lz4_frame(view))
    if view[end : end + 4] != _LZ4_END:
        return None
    context = _idle_lz4_contexts.pop() if _idle_lz4_contexts else lz4.frame.create_decompression_context()
    try:
        data, _, is_complete = lz4.frame.decompress_chunk(context, view, max_length=most)
    except RuntimeError:
        return None
    if not is_complete:
        return None
    _idle_lz4_contexts.append(context)  # another one may be in the middle of a frame
    return data  # type: ignore[no-any-return]  # the library has no annotations


def _lz4_block_end(view: memoryview, at: int) -> int:
    """The position behind the block, or behind the end mark, at `at`.

    Raises CorruptCompressedData for an empty block. Java's clients take one for the end, or read on, depending on its place.
    """
    told = int.from_bytes(view[at : at + 4], "little")
    size = told & _LZ4_BLOCK_SIZE
    if told == _LZ4_EMPTY_STORED_BLOCK or (told == 1 and not any(view[at + 4 : at + 5])):
        raise CorruptCompressedData("lz4", "an empty block")
    return at + 4 + size + (4 if view[4] & (_LZ4_BLOCK_CHECKSUM if size else _LZ4_CONTENT_CHECKSUM) else 0)


def _check_lz4_frame(view: memoryview) -> int:
    """Check the first bytes of the descriptor: Java's clients read only version 1, independent blocks, and no dictionary.

    Returns the position of the first block.
    """
    if len(view) < 7 or bytes(view[:4]) != _LZ4_MAGIC:  # the library would take a skippable frame for an empty one
        raise CorruptCompressedData("lz4", "no frame")
    flags, block_descriptor = view[4], view[5]
    if flags & _LZ4_VERSION_AND_INDEPENDENCE != _LZ4_VERSION_1_INDEPENDENT:
        raise CorruptCompressedData("lz4", "the blocks depend on each other, or the version is unknown")
    if flags & _LZ4_RESERVED_AND_DICTIONARY or block_descriptor & _LZ4_RESERVED_OF_BLOCKS:
        raise CorruptCompressedData("lz4", "the frame has a dictionary or reserved bits")
    return 15 if flags & _LZ4_CONTENT_SIZE else 7


# --- zstd

# Creating a decompression context costs 17 µs, decompressing a small batch 1.4 µs, so contexts are kept. list.pop and list.append are
# atomic: a context never has two users, even when worker threads decompress.
_idle_zstd_decoders: "list[zstandard.ZstdDecompressor]" = []
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_MAX_WINDOW: Final = 1 << 27  # the reference implementation's own limit, and the JVM's


def _encode_zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    context = zstandard.ZstdCompressor(level=ZSTD_DEFAULT_LEVEL if level is None else level, write_content_size=False)
    stream = context.compressobj()
    # Java flushes its stream before closing it. That leaves a data block that is not marked as last, and an empty last block.
    return join([stream.compress(data), stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK), stream.flush()])


def _stream_zstd(view: memoryview, max_bytes: int) -> Iterator[bytes]:
    import zstandard

    decoder = _idle_zstd_decoders.pop() if _idle_zstd_decoders else zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    try:
        with decoder.stream_reader(view, read_across_frames=True, closefd=False) as reader:
            while part := reader.read(PIECE_BYTES):
                yield part
    except zstandard.ZstdError as error:
        raise CorruptCompressedData("zstd", str(error)) from None
    _idle_zstd_decoders.append(decoder)
    _check_zstd_frames(view)


def _whole_zstd(view: memoryview, most: int) -> bytes | None:
    import zstandard

    if bytes(view[:4]) != _ZSTD_MAGIC or _zstd_frame_end(view, 0, len(view)) != len(view):
        return None
    decoder = _idle_zstd_decoders.pop() if _idle_zstd_decoders else zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    try:
        if zstandard.frame_content_size(view) > most:  # the library would allocate that size
            return None
        return decoder.decompress(view, max_output_size=most)
    except zstandard.ZstdError:
        return None
    finally:
        _idle_zstd_decoders.append(decoder)


def _check_zstd_frames(view: memoryview) -> None:
    """Check that frames follow each other without a gap and that none is cut short; the library's reader does not report it."""
    at = 0
    end = len(view)
    while at < end:
        magic = bytes(view[at : at + 4])
        if magic != _ZSTD_MAGIC:
            if len(magic) == 4 and magic[0] & 0xF0 == 0x50 and magic[1:] == b"\x2a\x4d\x18":
                at += 8 + int.from_bytes(view[at + 4 : at + 8], "little")  # skippable
                if at > end:
                    raise CorruptCompressedData("zstd", "the frame ends early")
                continue
            raise CorruptCompressedData("zstd", "no frame where one should begin")
        at = _zstd_frame_end(view, at, end)


def _zstd_frame_end(view: memoryview, at: int, end: int) -> int:
    try:
        descriptor = view[at + 4]
        single_segment = descriptor & 0x20
        at += 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3] + (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
        last = False
        while not last:
            header = view[at] | view[at + 1] << 8 | view[at + 2] << 16
            last = bool(header & 1)
            at += 3 + (1 if header >> 1 & 3 == 1 else header >> 3)  # a run-length block has one byte, whatever its length
    except IndexError:
        raise CorruptCompressedData("zstd", "the frame ends early") from None
    at += 4 if descriptor & 0x04 else 0
    if at > end:
        raise CorruptCompressedData("zstd", "the frame ends early")
    return at


_ENCODERS: Final[dict[int, Callable[[Buffer, int | None], bytes]]] = {
    CompressionCodec.NONE: _encode_none,
    CompressionCodec.GZIP: _encode_gzip,
    CompressionCodec.SNAPPY: _encode_snappy,
    CompressionCodec.LZ4: _encode_lz4,
    CompressionCodec.ZSTD: _encode_zstd,
}
_WHOLE: Final[dict[int, Callable[[memoryview, int], bytes | None]]] = {
    CompressionCodec.GZIP: _whole_gzip,
    CompressionCodec.SNAPPY: _whole_snappy,
    CompressionCodec.LZ4: _whole_lz4,
    CompressionCodec.ZSTD: _whole_zstd,
}
_STREAMS: Final[dict[int, Callable[[memoryview, int], Iterator[bytes]]]] = {
    CompressionCodec.NONE: _stream_none,
    CompressionCodec.GZIP: _stream_gzip,
    CompressionCodec.SNAPPY: _stream_snappy,
    CompressionCodec.LZ4: _stream_lz4,
    CompressionCodec.ZSTD: _stream_zstd,
}
