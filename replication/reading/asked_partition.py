"""Holds a Fetch's parameters for one partition, and the result of the last reading.

The Fetch handler makes one for each partition of a request or of a fetch session. `read_one` fills in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.replication.ports.replica_selector import NO_PREFERENCE
from ottla.storage.segment.file_region import FileRegion
from ottla.storage.segment.segment import Segment

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
CONSUMER: Final = -1
DEBUGGING_CONSUMER: Final = -2
"""Replica id of a tool that reads up to the log end offset without being a follower."""
NO_EPOCH: Final = -1


class AskedPartition:
    """One partition of a fetch. `topic_id` is ZERO_UUID when the fetch uses names. Offsets of the result are -1 before a reading."""

    __slots__ = (
        "aborted",
        "diverging_end_offset",
        "diverging_epoch",
        "end_offset",
        "high_watermark",
        "index",
        "last_fetched_epoch",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "offset",
        "open_segment",
        "open_size",
        "preferred_read_replica",
        "region",
        "start",
        "topic_id",
    )

    def __init__(self, topic_id: bytes, index: int) -> None:
        self.identify(topic_id, index)

    def identify(self, topic_id: bytes, index: int) -> None:
        """Set the partition, and reset parameters and result."""
        self.topic_id = topic_id
        self.index = index
        self.offset = 0
        self.max_bytes = 0
        self.leader_epoch = NO_EPOCH
        self.last_fetched_epoch = NO_EPOCH
        self.start = -1
        """The log start offset of the fetching follower."""
        self.end_offset = -1
        """The first offset that the reader may not see."""
        self.open_segment: Segment | None = None
        """The active segment, if the reader may see all of it; None otherwise."""
        self.open_size = 0
        """Bytes in `open_segment`."""
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.region: FileRegion | None = None
        self.aborted: Sequence[tuple[int, int]] | None = None
        """(producer id, first offset) of the aborted transactions among the records; None for readers of uncommitted records."""
        self.preferred_read_replica = NO_PREFERENCE
        self.diverging_epoch = NO_EPOCH
        self.diverging_end_offset = -1

    def ask(self, offset: int, max_bytes: int, leader_epoch: int, last_fetched_epoch: int, start: int) -> None:
        """Set the parameters from the request. Any negative epoch means that the client knows none."""
        self.offset = offset
        self.max_bytes = max_bytes
        self.leader_epoch = leader_epoch if leader_epoch >= 0 else NO_EPOCH
        self.last_fetched_epoch = last_fetched_epoch if last_fetched_epoch >= 0 else NO_EPOCH
        self.start = start
