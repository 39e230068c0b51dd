"""What is decompressed at once is what the stream yields, and nothing is that the stream would refuse."""

import random

import lz4.frame
import pytest
import zstandard

from ottla.protocol.records.compression import CompressionCodec, compress, decompress, decompressed_at_once
from ottla.protocol.records.errors import RecordFormatError

LIMIT = 256 * 1024
CODECS = [codec for codec in CompressionCodec if codec]
TEXT = b"".join(b"%d user=%d path=/orders/%d status=200 " % (i, i * 7919 % 997, i % 13) for i in range(400))


def decompressed_or_none(codec: CompressionCodec, data: bytes) -> bytes | None:
    """What the stream yields; None if it refuses the data."""
    try:
        return decompress(codec, data, LIMIT)
    except RecordFormatError:
        return None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 100, len(TEXT)])
def test_usual_data_are(codec: CompressionCodec, size: int) -> None:
    data = compress(codec, TEXT[:size])
    for given in (data, bytearray(data), memoryview(data)):
        found = decompressed_at_once(codec, given, LIMIT)
        assert found == TEXT[:size] or (found is None and not size)


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_data_are_not_unless_the_stream_takes_them(codec: CompressionCodec) -> None:
    source = random.Random(int(codec))
    data = compress(codec, TEXT[:2000])
    agreed = 0
    for _ in range(1500):
        damaged = bytearray(data)
        for _ in range(source.randrange(1, 4)):
            damaged[source.randrange(len(damaged))] = source.randrange(256)
        cut = source.choice([len(damaged), len(damaged), source.randrange(len(damaged))])
        given = bytes(damaged[:cut]) + bytes(source.choice([0, 0, 1, 8, 20]))
        found = decompressed_at_once(codec, given, LIMIT)
        if found is not None:
            assert found == decompressed_or_none(codec, given)
            agreed += 1
        assert decompressed_at_once(codec, data, LIMIT) == TEXT[:2000]
    assert agreed < 1500


@pytest.mark.parametrize("codec", CODECS)
def test_what_follows_the_data_is_judged_as_in_the_stream(codec: CompressionCodec) -> None:
    data = compress(codec, TEXT)
    for behind in (b"\0", bytes(30), data, data[:10]):
        assert decompressed_at_once(codec, data + behind, LIMIT) in (None, decompressed_or_none(codec, data + behind))


@pytest.mark.parametrize("codec", CODECS)
def test_what_expands_far_is_left_to_the_stream(codec: CompressionCodec) -> None:
    for size in (LIMIT // 2, LIMIT + 1, 1 << 26):
        assert decompressed_at_once(codec, compress(codec, bytes(size)), LIMIT) is None
    assert decompressed_at_once(codec, compress(codec, TEXT), len(TEXT) - 1) is None
    assert decompressed_at_once(codec, compress(codec, TEXT), LIMIT) == TEXT


def test_a_declared_size_is_not_believed() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 26))
    assert zstandard.frame_content_size(bomb) == 1 << 26
    assert decompressed_at_once(CompressionCodec.ZSTD, bomb, LIMIT) is None
    small = zstandard.ZstdCompressor().compress(TEXT)
    assert decompressed_at_once(CompressionCodec.ZSTD, small, LIMIT) == TEXT


def test_a_frame_that_java_cannot_read_is_left_to_the_stream() -> None:
    linked = lz4.frame.compress(TEXT * 20, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB)
    assert decompressed_at_once(CompressionCodec.LZ4, linked, LIMIT) is None
    wrong = bytearray(lz4.frame.compress(TEXT, block_linked=False, content_checksum=True))
    wrong[-1] ^= 1
    assert decompressed_at_once(CompressionCodec.LZ4, bytes(wrong), LIMIT) is None
    assert decompressed_at_once(CompressionCodec.LZ4, compress(CompressionCodec.LZ4, TEXT), LIMIT) == TEXT


def test_an_unknown_codec_is_left_to_the_stream() -> None:
    assert decompressed_at_once(7, b"abc", LIMIT) is None
