"""Names the stages of a Fetch, the versions on which it depends, and the codes that it uses.

Not compiled: compiled modules use them as C constants.
"""

from typing import Final

from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode

VERIFYING: Final = 0
"""The request is read to its end, before a session changes."""
TAKING: Final = 1
"""The partitions that the request names are taken into the session."""
READING: Final = 2
"""The partitions are read."""
WATCHING: Final = 3
"""The fetch is about to wait: each partition is watched."""
WRITING: Final = 4
"""The answer is written."""
WAITING: Final = 5
"""The fetch waits for an event or its timeout."""
GATHERING: Final = 6
"""The fetch is read and answered after a turn of the loop without new records."""
ANSWERED: Final = 7
CONVERTING: Final = 8
"""Threads convert the first batch of each partition for an old consumer."""

PARTITIONS_PER_STEP: Final = 64
"""Partitions that are handled between two readings of the clock."""

NO_ERROR: Final = int(ErrorCode.NONE)
STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
MOVED: Final = int(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
FENCED: Final = int(ErrorCode.FENCED_LEADER_EPOCH)
NOT_AUTHORIZED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
UNKNOWN_ID: Final = int(ErrorCode.UNKNOWN_TOPIC_ID)
UNKNOWN: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION)
UNSUPPORTED_COMPRESSION: Final = int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

READ: Final = int(Operation.READ)
CLUSTER_ACTION: Final = int(Operation.CLUSTER_ACTION)
TOPIC: Final = int(ResourceType.TOPIC)
CLUSTER: Final = int(ResourceType.CLUSTER)

FIRST_WITH_ONE_BATCH: Final = 3
"""First version in which the first batch is returned whatever its size."""
FIRST_WITH_TIMESTAMPS: Final = 2
"""First version whose readers know message format 1."""
FIRST_WITHOUT_OLD_FORMATS: Final = 4
"""First version whose readers know message format 2."""
FIRST_THAT_KNOWS_STORAGE_ERRORS: Final = 6
FIRST_WITH_ZSTD: Final = 10
FIRST_THAT_MAY_READ_FROM_FOLLOWERS: Final = 11
FIRST_WITH_DIVERGING_EPOCHS: Final = 12
FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_LEADER_HINTS: Final = 16

FETCH_ERRORS: Final = 1 << 16
"""The API key in the keys of `Services.error_counts`, which marks errors of Fetch."""
