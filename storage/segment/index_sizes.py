"""Names the sizes of the entries of an offset index. Not compiled: compiled modules take these as constants in C."""

from typing import Final

ENTRY_SIZE: Final = 8
POSITION_AT: Final = 4
"""Where the position stands in an entry; the offset stands at its beginning."""
WARM_BYTES: Final = 8192
"""Of entries at the end that are looked at first."""
STRAIGHT_LINES: Final = 8
"""Guesses along a straight line before a search goes on by bisection."""
