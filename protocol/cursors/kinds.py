"""Names the elements of a request that a reader can stand at. Not compiled: compiled modules take these as constants in C."""

from typing import Final

PARTITION: Final = 1
"""A partition that is asked for, or that records or an offset are sent for."""
FORGOTTEN: Final = 2
"""A partition that a Fetch session is to forget."""
NOTHING: Final = 0
"""An element that asks for nothing, such as a topic without partitions."""
END: Final = -1

NO_RECORDS: Final = -1
"""The `start` of a partition whose records are null."""
