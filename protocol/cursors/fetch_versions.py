"""Lists numbers of the Fetch messages: the versions in which fields appear, and values for "none". Not compiled, like `kinds`."""

from typing import Final

FIRST_WITH_MAX_BYTES: Final = 3
FIRST_WITH_ISOLATION_LEVEL: Final = 4
FIRST_WITH_LOG_START_OFFSET: Final = 5
FIRST_WITH_SESSION: Final = 7
FIRST_WITH_LEADER_EPOCH: Final = 9
FIRST_WITH_RACK: Final = 11
FIRST_FLEXIBLE: Final = 12
FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_REPLICA_STATE: Final = 15
FIRST_WITH_NODE_ENDPOINTS: Final = 16
FIRST_WITH_DIRECTORY_ID: Final = 17
FIRST_WITH_HIGH_WATERMARK: Final = 18

NO_EPOCH: Final = -1
NO_REPLICA: Final = -1
NO_OFFSET: Final = -1
UNLIMITED: Final = 2**31 - 1
UUID_BYTES: Final = 16
