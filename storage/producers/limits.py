"""Declares constants of producer state. Not compiled: compiled modules take these numbers as constants in C."""

from typing import Final

NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NONE: Final = -1
BATCHES_RETAINED: Final = 5
"""Batches per producer that are recognised as duplicates. A Java producer has at most that many in flight."""
MAX_EPOCH: Final = 0x7FFF
"""Never assigned to a producer: with it a transaction coordinator can always fence the last producer of a producer id."""
MAX_SEQUENCE: Final = 2**31 - 1
SEQUENCES: Final = 2**31
"""Number of sequence numbers. After the last one they begin again with 0."""
