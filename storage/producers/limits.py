"""Names the numbers that producer state is kept by. Not compiled: compiled modules take these as constants in C."""

from typing import Final

NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NONE: Final = -1
BATCHES_RETAINED: Final = 5
"""Batches of a producer that are recognised when they are sent again; a Java producer has no more in flight."""
MOST_VERIFICATIONS: Final = 10_000
"""Producers of a partition that wait for the answer of their transaction coordinator, or got none that allowed a batch; 1 MiB."""
MAX_SEQUENCE: Final = 2**31 - 1
SEQUENCES: Final = 2**31
"""Sequence numbers, after which they begin again with 0."""
