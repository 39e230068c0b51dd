"""Names the kinds of readers and isolation levels of a Fetch. Not compiled: compiled modules take these numbers as constants in C."""

from typing import Final

from ottla.replication.ports import replica_selector

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

CONSUMER: Final = -1
DEBUGGING_CONSUMER: Final = -2
"""Replica id of a tool that reads up to the log end offset without being a follower."""

NO_EPOCH: Final = -1
NO_PREFERENCE: Final = replica_selector.NO_PREFERENCE
