"""Declares the sizes in messages of formats 0 and 1, and the limits of conversions.

Not compiled: compiled modules take these numbers as constants in C.
"""

from typing import Final

from ottla.protocol.records import batch, compression

CODEC_MASK: Final = batch.CODEC_MASK
CURRENT_MAGIC: Final = batch.CURRENT_MAGIC
MAX_DECOMPRESSED_BYTES: Final = compression.MAX_DECOMPRESSED_BYTES
LOG_OVERHEAD: Final = batch.LOG_OVERHEAD
MAX_INT32: Final = batch.MAX_INT32
MIN_RECORD_BYTES: Final = batch.MIN_RECORD_BYTES
MIN_MESSAGE_BYTES: Final = batch.MIN_LEGACY_RECORD_SIZE
NO_TIMESTAMP: Final = batch.NO_TIMESTAMP
TIMESTAMP_TYPE_MASK: Final = batch.TIMESTAMP_TYPE_MASK
UP_TO_MAGIC_BYTES: Final = batch.HEADER_SIZE_UP_TO_MAGIC
LAST_CODEC: Final = int(compression.CompressionCodec.ZSTD)
"""Last codec id with a meaning in any format."""
FROM_MESSAGE: Final = -(1 << 63)
"""Stands for the timestamp that each message has itself."""
MESSAGE_HEADER_BYTES: Final = 6
"""Checksum, magic and attributes of a message."""
TIMESTAMP_BYTES: Final = 8
MESSAGE_OVERHEAD_BYTES: Final = (26, 34)
"""Bytes of a message without key and value, with its offset and size; by magic."""
TOGETHER_BYTES: Final = 16 * 1024
"""Bytes of single messages that become one batch when a log is cleaned; the usual size of a producer's batch."""
RECORDS_PER_SLICE: Final = 2000
"""Records that a thread converts before the event loop may run. Compiled, they take 0.2 ms."""
