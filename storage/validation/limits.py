"""Declares limits for the validation of produced batches. Not compiled: compiled modules take these numbers as constants in C."""

from typing import Final

from ottla.protocol.records import batch
from ottla.protocol.records.compression import CompressionCodec

WALK_MAX_RECORDS: Final = 4
"""Records of an uncompressed batch up to which their lengths and timestamps are checked.

In Python this takes 0.7 µs for one record and 1.6 µs for four (benchmarks/paths/validation.py). A batch of 16 KiB with 150 records would
take 75 µs, more than the rest of its handling; such a batch is trusted.
"""

INLINE_CHECK_MAX_RECORDS: Final = 256
"""Records up to which single records are checked on the event loop (compacted topics, timestamps that look out of range).

The check takes 0.3 ms at most. A worker thread would cost 20 to 30 µs for the way there and back.
"""
INLINE_CHECK_MAX_BYTES: Final = 64 * 1024
"""Decompressed bytes up to which single records are checked on the event loop."""

FIRST_VERSION_WITH_ZSTD: Final = 7
"""Produce version from which on zstd is allowed."""
FIRST_VERSION_WITHOUT_MESSAGE_SETS: Final = 3
"""Produce version from which on records must have format 2 (KIP-98)."""
NO_MAGIC: Final = -1
"""Stands for the magic of a message set without a complete message."""
MIN_RECORD_BYTES: Final = batch.MIN_RECORD_BYTES
SMALLEST_TIMESTAMP: Final = -(1 << 63)
MOST_WORK: Final = 16_384
"""Work of one append of a follower, in batches of a third to half a microsecond: 7 ms at most. The rest is fetched again."""
MARKER_WORK: Final = 16
"""Cost of the marker of a transaction, in such batches."""
MESSAGE_WORK: Final = 5
"""Cost of a message of an old format, in such batches."""
MESSAGES_BYTES: Final = 4096
"""Messages that a leader appends like one batch, in bytes; the default distance of the entries of an index."""
LARGEST_OFFSET: Final = 1 << 62
"""Largest base offset that is taken for undamaged. Its sum with a number of records fits into 64 bits."""

UNCOMPRESSED: Final = int(CompressionCodec.NONE)
GZIP: Final = int(CompressionCodec.GZIP)
SNAPPY: Final = int(CompressionCodec.SNAPPY)
LZ4: Final = int(CompressionCodec.LZ4)
ZSTD: Final = int(CompressionCodec.ZSTD)
LAST_CODEC: Final = ZSTD
