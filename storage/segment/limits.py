"""Names the numbers by which segments and their indexes are kept. Not compiled: compiled modules take these as constants in C."""

import sys
from typing import Final

FIRST_BYTES: Final = 4 * 1024 * 1024
"""By how much a segment grows before disk space is set aside for more, in bytes: see `reservations`."""
NEVER: Final = sys.maxsize
"""An offset or a size that no log reaches."""
UNKNOWN: Final = -2
"""The timestamp of a first batch that was not read yet."""
NO_TIMESTAMP: Final = -1
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""What an entry of an index holds of an offset at most, counted from the segment's base offset."""
TAIL_BYTES: Final = 4096
"""Entries of an index in memory, in bytes, which then go to the file."""
ENTRY_SIZE: Final = 8
"""Bytes of an entry of an offset index."""
POSITION_AT: Final = 4
"""Where the position stands in an entry; the offset stands at its beginning."""
WARM_BYTES: Final = 8192
"""Entries at the end of an index, in bytes, that a search looks at first."""
STRAIGHT_LINES: Final = 8
"""Guesses along a straight line before a search of an index goes on by bisection."""
BOUNDS_SIZE: Final = 27
"""Bytes of a batch header up to the last offset delta."""
CHUNK_BYTES: Final = 4096
"""Bytes that are read of a log file to look at headers: about what lies between two entries of an index."""
GAP_BYTES: Final = 8192
"""Two entries of an index that are further apart have one large batch between them, or are of a larger `index.interval.bytes`."""
INLINE_BYTES: Final = 16 * 1024
"""Up to this size a region is cheaper to read, and to write together with what stands before it, than to send by itself."""
PAGE_BYTES: Final = 4096
PACKET_BYTES: Final = 16 * PAGE_BYTES
"""Bytes that the kernel splices at once."""
