"""The codecs: what they write, what they read, and how much they may cost."""

import contextlib
import gzip
import tracemalloc
import zlib
from random import Random

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records.compression import (
    CODEC_BY_NAME,
    PIECE_BYTES,
    CompressionCodec,
    compress,
    decompress,
    decompressed,
    decompressed_at_once,
)
from ottla.protocol.records.errors import CorruptCompressedData, DecompressionTooLarge, TruncatedCompressedData, UnknownCompressionCodec

CODECS = [CompressionCodec.GZIP, CompressionCodec.SNAPPY, CompressionCodec.LZ4, CompressionCodec.ZSTD]
LIMIT = 1 << 20
each_codec = pytest.mark.parametrize("codec", CODECS, ids=[codec.label for codec in CODECS])


@given(data=st.binary(max_size=500), repeat=st.integers(0, 400), codec=st.sampled_from(list(CompressionCodec)))
@settings(max_examples=150, deadline=None)
def test_what_is_compressed_comes_back(data: bytes, repeat: int, codec: CompressionCodec) -> None:
    original = data * repeat
    assert decompress(codec, compress(codec, original), len(original)) == original


@each_codec
@pytest.mark.parametrize("size", [0, 1, 32767, 32768, 32769, 65536, 65537, 400_000])
def test_sizes_around_block_boundaries_come_back(codec: CompressionCodec, size: int) -> None:
    original = bytes(range(251)) * (size // 251 + 1)
    assert decompress(codec, memoryview(compress(codec, original[:size])), LIMIT) == original[:size]


@given(data=st.binary(max_size=200), codec=st.sampled_from(CODECS))
@settings(max_examples=300, deadline=None)
def test_arbitrary_bytes_give_bytes_or_a_declared_error(data: bytes, codec: CompressionCodec) -> None:
    with contextlib.suppress(CorruptCompressedData, DecompressionTooLarge):
        assert len(decompress(codec, data, 4096)) <= 4096


@given(
    original=st.binary(min_size=1, max_size=2000),
    codec=st.sampled_from(CODECS),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 10_000),
)
@settings(max_examples=300, deadline=None)
def test_damaged_streams_give_bytes_or_a_declared_error(
    original: bytes, codec: CompressionCodec, flips: list[tuple[int, int]], cut: int
) -> None:
    damaged = bytearray(compress(codec, original * 3))
    for position, change in flips:
        damaged[position % len(damaged)] ^= change
    del damaged[len(damaged) - cut % len(damaged) :]
    with contextlib.suppress(CorruptCompressedData, DecompressionTooLarge):
        assert len(decompress(codec, damaged, 64 * 1024)) <= 64 * 1024


@each_codec
def test_a_truncated_stream_is_corrupt_wherever_it_is_cut(codec: CompressionCodec) -> None:
    original = bytes(range(256)) * 300
    whole = compress(codec, original)
    for end in [*range(1, 40), len(whole) // 2, len(whole) - 5, len(whole) - 1]:
        if codec is CompressionCodec.SNAPPY and 16 <= end < 20:
            # A stream header without blocks is an empty stream. As in snappy-java, less than the length of a block ends a stream.
            assert decompress(codec, whole[:end], LIMIT) == b""
            continue
        with pytest.raises(CorruptCompressedData):
            decompress(codec, whole[:end], LIMIT)


@each_codec
def test_a_stream_may_expand_to_the_limit_and_not_a_byte_further(codec: CompressionCodec) -> None:
    stream = compress(codec, b"x" * 100_000)
    assert len(decompress(codec, stream, 100_000)) == 100_000
    with pytest.raises(DecompressionTooLarge) as caught:
        decompress(codec, stream, 99_999)
    assert (caught.value.codec, caught.value.max_bytes) == (codec.label, 99_999)


@pytest.mark.slow
@each_codec
def test_a_bomb_costs_no_more_memory_than_the_limit(codec: CompressionCodec) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionTooLarge):
            decompress(codec, bomb, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 4 * LIMIT
    finally:
        tracemalloc.stop()


@each_codec
def test_a_stream_comes_in_pieces_and_needs_the_memory_of_one(codec: CompressionCodec) -> None:
    stream = compress(codec, bytes(16 << 20))
    tracemalloc.start()
    try:
        sizes = [len(piece) for piece in decompressed(codec, stream)]
        assert tracemalloc.get_traced_memory()[1] < 8 * PIECE_BYTES
    finally:
        tracemalloc.stop()
    assert sum(sizes) == 16 << 20
    assert max(sizes) <= PIECE_BYTES


def test_gzip_that_ends_early_is_told_from_gzip_that_is_damaged_and_yields_what_it_has() -> None:
    original = Random(2).randbytes(PIECE_BYTES * 2)
    stream = compress(CompressionCodec.GZIP, original)
    pieces: list[bytes] = []
    with pytest.raises(TruncatedCompressedData):
        pieces.extend(decompressed(CompressionCodec.GZIP, stream[:-9]))
    assert original.startswith(b"".join(pieces))
    assert len(b"".join(pieces)) > PIECE_BYTES
    for end in (0, 9):
        with pytest.raises(CorruptCompressedData) as caught:
            decompress(CompressionCodec.GZIP, stream[:end])
        assert not isinstance(caught.value, TruncatedCompressedData)


@pytest.mark.parametrize(
    "options",
    [{"block_linked": True}, {"content_checksum": True, "block_linked": True}, {"store_size": True, "block_linked": True}],
)
def test_lz4_with_linked_blocks_is_refused_because_java_cannot_read_it(options: dict[str, bool]) -> None:
    with pytest.raises(CorruptCompressedData):
        decompress(CompressionCodec.LZ4, lz4.frame.compress(b"linked" * 30_000, **options))


def test_lz4_frames_of_every_form_that_java_reads_are_read() -> None:
    original = b"independent" * 30_000
    for options in ({}, {"content_checksum": True}, {"block_checksum": True}, {"store_size": True}, {"block_size": 7}):
        stream = lz4.frame.compress(original, **{"block_linked": False, **options})
        assert decompress(CompressionCodec.LZ4, stream + b"ignored") == original


@pytest.mark.parametrize("empty", [b"\0\0\0\x80", b"\1\0\0\0\0"], ids=["stored", "compressed"])
def test_lz4_with_an_empty_block_is_refused_because_java_may_stop_there(empty: bytes) -> None:
    good = compress(CompressionCodec.LZ4, b"plain")
    head, block, end = good[:7], good[7:-4], good[-4:]
    for blocks in (empty + block, block + empty, block + empty + block):
        with pytest.raises(CorruptCompressedData):
            decompress(CompressionCodec.LZ4, head + blocks + end)
        assert decompressed_at_once(CompressionCodec.LZ4, head + blocks + end, 1000) is None
    assert decompress(CompressionCodec.LZ4, head + block + block + end) == b"plain" * 2


@pytest.mark.parametrize(("at", "bits"), [(4, 0x01), (4, 0x02), (4, 0x80), (5, 0x01), (5, 0x80)])
def test_lz4_with_a_dictionary_or_reserved_bits_is_refused(at: int, bits: int) -> None:
    stream = bytearray(compress(CompressionCodec.LZ4, b"plain"))
    stream[at] |= bits
    with pytest.raises(CorruptCompressedData):
        decompress(CompressionCodec.LZ4, stream)


def test_a_snappy_block_that_declares_more_than_it_can_hold_is_corrupt() -> None:
    assert snappy.decompress(b"\x05\x10hello") == b"hello"
    for block in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x07\x10hello", b"\xff\xff\xff\xff\xff\x0f", b"\xff", b""):
        with pytest.raises((CorruptCompressedData, DecompressionTooLarge)):
            decompress(CompressionCodec.SNAPPY, block, 1 << 30)


def test_snappy_without_the_java_framing_is_read() -> None:
    assert decompress(CompressionCodec.SNAPPY, snappy.compress(b"from librdkafka" * 50), LIMIT) == b"from librdkafka" * 50


def test_snappy_is_written_with_the_java_framing_in_blocks_of_32_kib() -> None:
    stream = compress(CompressionCodec.SNAPPY, b"a" * 40_000)
    assert stream[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    first = int.from_bytes(stream[16:20], "big")
    assert len(snappy.decompress(stream[20 : 20 + first])) == 32 * 1024
    assert len(snappy.decompress(stream[24 + first :])) == 40_000 - 32 * 1024


def test_the_versions_of_a_snappy_stream_do_not_count() -> None:
    stream = bytearray(compress(CompressionCodec.SNAPPY, b"versions"))
    for versions in (b"\x7f\xff\xff\xff" * 2, bytes(8), b"\xff" * 8):
        stream[8:16] = versions
        assert decompress(CompressionCodec.SNAPPY, stream, LIMIT) == b"versions"


def test_no_zstd_frame_is_an_empty_stream_but_no_lz4_frame_is_corrupt() -> None:
    assert decompress(CompressionCodec.ZSTD, b"", LIMIT) == b""
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    for stream in (b"", skippable, skippable + compress(CompressionCodec.LZ4, b"behind")):
        with pytest.raises(CorruptCompressedData):
            decompress(CompressionCodec.LZ4, stream, LIMIT)


def test_concatenated_snappy_streams_are_read() -> None:
    stream = compress(CompressionCodec.SNAPPY, b"one ") + compress(CompressionCodec.SNAPPY, b"two")
    assert decompress(CompressionCodec.SNAPPY, stream, LIMIT) == b"one two"


def test_lz4_frames_are_as_kafka_writes_them() -> None:
    stream = compress(CompressionCodec.LZ4, bytes(200_000))
    info = lz4.frame.get_frame_info(stream)
    assert (info["block_size"], info["block_linked"], info["content_checksum"], info["content_size"]) == (64 * 1024, False, False, 0)
    assert stream[4:7] == b"\x60\x40\x82"
    assert stream[-4:] == bytes(4)


def test_zstd_frames_do_not_tell_their_content_size() -> None:
    stream = compress(CompressionCodec.ZSTD, b"v" * 1000)
    assert zstandard.get_frame_parameters(stream).content_size == zstandard.CONTENTSIZE_UNKNOWN
    assert stream[-3:] == b"\x01\x00\x00"


def test_zstd_frames_of_any_shape_are_read() -> None:
    original = bytes(range(256)) * 2000
    for options in ({}, {"write_checksum": True}, {"write_content_size": True, "level": 19}, {"level": -5}):
        frame = zstandard.ZstdCompressor(**options).compress(original)
        assert decompress(CompressionCodec.ZSTD, frame, LIMIT) == original
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    small = zstandard.ZstdCompressor().compress(b"behind")
    assert decompress(CompressionCodec.ZSTD, skippable + small + skippable + small, LIMIT) == b"behindbehind"


def test_gzip_members_may_follow_each_other_and_what_follows_the_last_is_ignored() -> None:
    member = compress(CompressionCodec.GZIP, b"again ")
    assert decompress(CompressionCodec.GZIP, member + member + b"garbage", LIMIT) == b"again again "


@each_codec
def test_a_stream_that_is_read_in_many_pieces_comes_back_or_is_corrupt(codec: CompressionCodec) -> None:
    data = Random(1).randbytes(700_000)
    stream = compress(codec, data)
    assert decompress(codec, stream) == data
    with pytest.raises(CorruptCompressedData):
        decompress(codec, stream[:400_000])


def test_gzip_members_of_any_size_are_read_in_pieces_and_one_that_is_damaged_is_corrupt() -> None:
    data = Random(1).randbytes(300_000)
    stream = gzip.compress(b"") * 3000 + gzip.compress(data) + gzip.compress(b"end")
    assert decompress(CompressionCodec.GZIP, stream + b"junk") == data + b"end"
    damaged = bytearray(gzip.compress(b"first") + gzip.compress(data))
    damaged[-8] ^= 1  # the checksum
    with pytest.raises(CorruptCompressedData):
        decompress(CompressionCodec.GZIP, bytes(damaged))


def test_gzip_is_readable_for_others_and_has_the_header_that_java_writes() -> None:
    stream = compress(CompressionCodec.GZIP, b"value" * 100)
    assert zlib.decompress(stream, zlib.MAX_WBITS | 16) == b"value" * 100
    assert stream[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


def test_deflated_data_are_judged_as_by_zlib() -> None:
    """Clients decompress with zlib, so a library that accepts more, or yields something else, would hide a fault from them."""
    source = Random(5)
    verdicts = []
    for number in range(1_500):
        text = source.choices(b"ab c", k=source.choice([0, 1, 300, 5_000])) + source.choices(range(256), k=source.randrange(40))
        deflater = zlib.compressobj(source.randrange(10), zlib.DEFLATED, -source.choice([9, 12, 15]), 8, source.choice([0, 2, 3, 4]))
        deflated = bytearray(deflater.compress(bytes(text)) + deflater.flush())
        for _ in range(number % 4):
            deflated[source.randrange(min(len(deflated), source.choice([3, 40, 10_000])))] = source.randrange(256)
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            expected = inflater.decompress(deflated, LIMIT)
        except zlib.error:
            with pytest.raises(CorruptCompressedData):
                decompress(CompressionCodec.GZIP, _as_gzip(deflated, b""), LIMIT)
            verdicts.append("corrupt")
            continue
        whole = bytes(deflated[: len(deflated) - len(inflater.unused_data)])
        if inflater.eof:
            assert decompress(CompressionCodec.GZIP, _as_gzip(whole, expected), LIMIT) == expected
            verdicts.append("good")
        else:
            with pytest.raises(TruncatedCompressedData):
                decompress(CompressionCodec.GZIP, _as_gzip(whole, expected)[:-8], LIMIT)  # without the trailer
            verdicts.append("cut")
    assert {"corrupt", "good", "cut"} <= set(verdicts)


def _as_gzip(deflated: bytes | bytearray, data: bytes) -> bytes:
    """A gzip member of deflated data."""
    trailer = zlib.crc32(data).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return gzip.compress(b"")[:10] + deflated + trailer


@pytest.mark.parametrize(("codec", "weak", "strong"), [("gzip", 1, 9), ("lz4", 9, 17), ("zstd", -100, 19)])
def test_a_higher_level_compresses_better(codec: str, weak: int, strong: int) -> None:
    original = b"".join(b"%d user=%d path=/orders/%d\n" % (i, i * 7919 % 1000, i * 31 % 77) for i in range(3000))
    weakly, strongly = (compress(CODEC_BY_NAME[codec], original, level) for level in (weak, strong))
    assert len(strongly) < len(weakly)
    assert decompress(CODEC_BY_NAME[codec], strongly, LIMIT) == original


@pytest.mark.slow
def test_every_level_kafka_allows_is_accepted() -> None:
    for codec, levels in {"gzip": (-1, *range(1, 10)), "lz4": range(1, 18), "zstd": (-131072, 1, 3, 22)}.items():
        for level in levels:
            assert decompress(CODEC_BY_NAME[codec], compress(CODEC_BY_NAME[codec], b"level", level), LIMIT) == b"level"


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_codecs_that_do_not_exist_are_refused(codec: int) -> None:
    with pytest.raises(UnknownCompressionCodec):
        compress(codec, b"")
    with pytest.raises(UnknownCompressionCodec):
        decompress(codec, b"", LIMIT)
