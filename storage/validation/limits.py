"""Declares limits for the validation of produced batches. Not compiled: compiled modules take these numbers as constants in C."""

from typing import Final

from ottla.protocol.records.compression import CompressionCodec

INLINE_CHECK_MAX_BYTES: Final = 4 * 1024 * 1024
"""Bytes of an uncompressed batch up to which its records are checked on the event loop.

The check takes 0.1 ms per MiB of records of 100 bytes, 1.5 ms of the smallest ones, and 3 ms of empty headers. A worker thread would need
a copy of the batch, 0.1 ms per MiB, and 20 to 30 µs for the way there and back.
"""
INLINE_CHECK_MAX_RECORDS: Final = 65_536
"""Records up to which a batch is checked on the event loop, 1 ms."""
INLINE_SUSPECT_MAX_RECORDS: Final = 1000
"""Records up to which a batch that may break a rule of its topic is examined on the event loop, record by record: 1 ms."""
INLINE_EXPANDED_MAX_BYTES: Final = 256 * 1024
"""Decompressed bytes up to which a batch is checked on the event loop: 0.1 ms for lz4, 0.4 ms for gzip."""

FIRST_VERSION_WITH_ZSTD: Final = 7
"""Produce version from which on zstd is allowed."""
FIRST_VERSION_WITHOUT_MESSAGE_SETS: Final = 3
"""Produce version from which on records must have format 2 (KIP-98)."""
NO_MAGIC: Final = -1
"""Stands for the magic of a message set without a complete message."""
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
