"""Names the numbers by which produced batches are judged. Not compiled: compiled modules take these as constants in C."""

from typing import Final

from protocol.records.compression import CompressionCodec

WALK_MAX_RECORDS: Final = 4
"""Records up to which an uncompressed batch has its lengths and timestamps walked: 0.7 µs for one, 1.6 for four in Python
(benchmarks/validation.py). A batch of 16 KiB with 150 records would cost 75 µs, more than all else that is done for it; it is trusted."""

INLINE_CHECK_MAX_RECORDS: Final = 256
"""Records up to which those that are checked one by one (compacted topics, timestamps that look out of range) are checked on the event
loop, 0.3 ms at worst; a hop to a worker thread and back costs 20 to 30 µs."""
INLINE_CHECK_MAX_BYTES: Final = 64 * 1024
"""The same in bytes, decompressed."""

FIRST_VERSION_WITH_ZSTD: Final = 7
"""Of Produce."""
MIN_RECORD_BYTES: Final = 7
"""Length, attributes, timestamp delta, offset delta, key length, value length, header count."""
PREMATURE_END: Final = "Incorrect declared batch size, premature EOF reached"
SMALLEST_TIMESTAMP: Final = -(1 << 63)
LARGEST_OFFSET: Final = 1 << 62
"""A base offset above it is damaged; below, no sum of an offset and a number of records needs more than 64 bits."""

UNCOMPRESSED: Final = int(CompressionCodec.NONE)
GZIP: Final = int(CompressionCodec.GZIP)
SNAPPY: Final = int(CompressionCodec.SNAPPY)
LZ4: Final = int(CompressionCodec.LZ4)
ZSTD: Final = int(CompressionCodec.ZSTD)
LAST_CODEC: Final = ZSTD
