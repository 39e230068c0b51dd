"""Names the sizes that decide how much is read of a log file at once. Not compiled: compiled modules take these as constants in C."""

from typing import Final

from protocol.records import batch

CURRENT_MAGIC: Final = batch.CURRENT_MAGIC
HEADER_SIZE: Final = batch.HEADER_SIZE
LOG_OVERHEAD: Final = batch.LOG_OVERHEAD
BOUNDS_BYTES: Final = 27
"""The part of a batch header that says where the batch ends, and with which offset."""
CHUNK_BYTES: Final = 4096
"""What is read of a file to look at headers: about what lies between two entries of an index."""
GAP_BYTES: Final = 8192
"""Two entries of an index that are further apart have one large batch between them, or are of a larger `index.interval.bytes`."""
INLINE_BYTES: Final = 16 * 1024
"""A region up to this size is cheaper to read, and to write together with what stands before it, than to send by itself."""
PAGE_BYTES: Final = 4096
PACKET_BYTES: Final = 16 * PAGE_BYTES
"""What the kernel splices at once."""
