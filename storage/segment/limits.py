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
BOUNDS_SIZE: Final = 27
"""Bytes of a batch header up to the last offset delta."""
