"""Replaces the active segment of a closed log."""

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.errors import LogClosed
from ottla.storage.segment.limits import NEVER
from ottla.storage.segment.segment import Segment


class ClosedSegment(Segment):
    """Takes the place of the active segment of a closed log, so that an append need not check whether the log is closed."""

    __slots__ = ("_topic_partition",)

    def __init__(self, topic_partition: TopicPartition, log_end_offset: int) -> None:
        self._topic_partition = topic_partition
        self.base_offset = log_end_offset  # later reads find everything in the other segments
        self.size = 0
        self.reserve_at = NEVER

    def begin_write(self) -> None:
        raise LogClosed(self._topic_partition)
