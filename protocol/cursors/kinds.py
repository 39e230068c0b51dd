"""Names the kinds of elements of a request. Not compiled: compiled modules take these numbers as constants in C."""

from typing import Final

PARTITION: Final = 1
"""A partition that the request reads or writes."""
FORGOTTEN: Final = 2
"""A partition that a Fetch removes from its session."""
NOTHING: Final = 0
"""An element without a partition to serve, such as a topic without partitions."""
END: Final = -1

UUID_BYTES: Final = 16
"""Length of a topic id."""

NO_RECORDS: Final = -1
"""The `start` of a partition whose records are null."""
