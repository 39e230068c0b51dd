"""Names the numbers that the handler of Produce uses. Not compiled: compiled modules use them as C constants."""

from typing import Final

from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode

FIRST_WITH_LEADER_HINTS: Final = 10
"""First version whose answers name the current leader."""
FIRST_THAT_ADDS: Final = 12
"""First version that adds its partitions to the transaction (KIP-890)."""
AT_ONCE: Final = 32
"""Work between two readings of the clock, in partitions without records: about 0.05 ms compiled, 0.5 ms in Python."""
BYTES_SHIFT: Final = 12
"""4 KiB of records are as much work as a partition without records."""
RECORDS_SHIFT: Final = 7
"""128 records that are checked are as much work as a partition without records."""

PRODUCE_ERRORS: Final = 0 << 16
"""The API key in the keys of `Services.error_counts`, which marks errors of Produce."""

WRITE: Final = int(Operation.WRITE)
TRANSACTIONAL_ID: Final = int(ResourceType.TRANSACTIONAL_ID)
TOPIC: Final = int(ResourceType.TOPIC)

NONE: Final = int(ErrorCode.NONE)
INVALID_PRODUCER_ID_MAPPING: Final = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
INVALID_REQUIRED_ACKS: Final = int(ErrorCode.INVALID_REQUIRED_ACKS)
INVALID_TOPIC_EXCEPTION: Final = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
NOT_LEADER_OR_FOLLOWER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
TOPIC_AUTHORIZATION_FAILED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
UNKNOWN_SERVER_ERROR: Final = int(ErrorCode.UNKNOWN_SERVER_ERROR)
UNKNOWN_TOPIC_ID: Final = int(ErrorCode.UNKNOWN_TOPIC_ID)
UNKNOWN_TOPIC_OR_PARTITION: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

FIRST_WITH_TOPIC_IDS: Final = 13
"""The first version of Produce that has topic ids in place of names."""
