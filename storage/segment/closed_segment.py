"""What stands in the place of the active segment of a log that is closed."""

from storage.disk.topic_partition import TopicPartition
from storage.errors import LogClosed
from storage.segment.limits import NEVER
from storage.segment.segment import Segment


class ClosedSegment(Segment):
    """Stands for the active segment of a log that is closed, so that an append needs no look at whether it is."""

    __slots__ = ("_topic_partition",)

    def __init__(self, topic_partition: TopicPartition, log_end_offset: int) -> None:
        self._topic_partition = topic_partition
        self.base_offset = log_end_offset  # who still reads finds all in the other segments
        self.size = 0
        self.reserve_at = NEVER

    def begin_write(self) -> None:
        raise LogClosed(self._topic_partition)
