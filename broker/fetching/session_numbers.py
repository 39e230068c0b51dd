"""Names the numbers by which fetch sessions begin, go on and end. Not compiled: compiled modules take these as constants in C."""

from typing import Final

INITIAL_EPOCH: Final = 0
"""The epoch of a request that wants a session."""
FINAL_EPOCH: Final = -1
"""The epoch of a request without a session, which ends the session that it names."""
NO_SESSION: Final = 0
LAST_EPOCH: Final = 2**31 - 1
LET_GO_PER_TURN: Final = 250
"""Partitions that are let go in one turn of the event loop; each costs a microsecond or two."""
FORGOTTEN: Final = -1
"""The place in the order of service of a partition that a session has forgotten."""
