"""Names the numbers of fetch sessions: ids, epochs, places. Not compiled: compiled modules use them as C constants."""

from typing import Final

INITIAL_EPOCH: Final = 0
"""The epoch of a request that asks for a new session."""
FINAL_EPOCH: Final = -1
"""The epoch of a request without a session; ends the session whose id it contains."""
NO_SESSION: Final = 0
LAST_EPOCH: Final = 2**31 - 1
RELEASED_PER_TURN: Final = 250
"""Partitions that are released in one turn of the event loop; each takes a microsecond or two."""
FORGOTTEN: Final = -1
"""Place in the order of service of a partition that a session has dropped."""
