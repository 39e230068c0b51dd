"""Says who appends to a log, and where an append went."""

from enum import IntEnum


class AppendOrigin(IntEnum):
    """Who appends, which decides what producer state is held against the batch."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2


class Appended:
    """Where an append went. `log_append_time_ms` is -1 under CreateTime."""

    __slots__ = ("duplicate", "first_offset", "last_offset", "log_append_time_ms", "log_start_offset")

    def __init__(
        self, first_offset: int, last_offset: int, log_append_time_ms: int, log_start_offset: int, duplicate: bool = False
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate
