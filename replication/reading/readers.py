"""Names the numbers by which a Fetch says who reads, and how. Not compiled: compiled modules take these as constants in C."""

from typing import Final

from replication.ports import replica_selector

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

CONSUMER: Final = -1
DEBUGGING_CONSUMER: Final = -2
"""The replica id of a tool that reads up to the log end offset without being a follower."""

NO_EPOCH: Final = -1
NO_PREFERENCE: Final = replica_selector.NO_PREFERENCE
