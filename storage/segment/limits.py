"""Declares limits and sizes of segments and indexes. Not compiled: compiled modules take these numbers as constants in C."""

import sys
from typing import Final

FIRST_BYTES: Final = 4 * 1024 * 1024
"""Growth of a segment, in bytes, before disk space is reserved for more: see `reservations`."""
NEVER: Final[int] = sys.maxsize
"""An offset or a size that no log reaches."""
UNKNOWN: Final = -2
"""Timestamp of a first batch that was not read yet."""
NO_TIMESTAMP: Final = -1
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""Largest offset of an index entry, relative to the segment's base offset."""
TAIL_BYTES: Final = 4096
"""Entries of an index that are collected in memory before they are written to the file, in bytes."""
ENTRY_SIZE: Final = 8
"""Bytes of an entry of an offset index."""
POSITION_AT: Final = 4
"""Place of the position in an entry, in bytes. The offset is at 0."""
WARM_BYTES: Final = 8192
"""Entries at the end of an index that a search examines first, in bytes."""
STRAIGHT_LINES: Final = 8
"""Guesses by linear interpolation before a search of an index continues by bisection."""
BOUNDS_SIZE: Final = 27
"""Bytes of a batch header up to the last offset delta."""
CHUNK_BYTES: Final = 4096
"""Read size for batch headers, in bytes: about the distance between two index entries."""
GAP_BYTES: Final = 8192
"""Distance of two index entries above which a large batch is assumed between them, in bytes."""
INLINE_BYTES: Final = 16 * 1024
"""Largest region that is read and written together with the bytes before it, in bytes. Sending it separately would cost more."""
PAGE_BYTES: Final = 4096
PACKET_BYTES: Final = 16 * PAGE_BYTES
"""Bytes that the kernel splices at once."""
