"""Names the origins of appends. The origin decides which checks apply to the batches."""

from enum import IntEnum
from typing import Final


class AppendOrigin(IntEnum):
    """Origin of an append: a follower's fetch, a coordinator, or a client."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2


REPLICATION: Final = int(AppendOrigin.REPLICATION)
COORDINATOR: Final = int(AppendOrigin.COORDINATOR)
CLIENT: Final = int(AppendOrigin.CLIENT)
