"""Says who appends to a log, which decides what is held against the batches."""

from enum import IntEnum
from typing import Final


class AppendOrigin(IntEnum):
    """See the module."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2


REPLICATION: Final = int(AppendOrigin.REPLICATION)
COORDINATOR: Final = int(AppendOrigin.COORDINATOR)
CLIENT: Final = int(AppendOrigin.CLIENT)
