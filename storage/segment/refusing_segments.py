"""Replaces the active segment of a log that refuses appends, because a thread truncates it or because it is closed."""

from typing import NoReturn

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.filesystem import File, FileSystem
from ottla.storage.errors import LogBeingTruncated, LogClosed
from ottla.storage.segment.log_settings import LogSettings
from ottla.storage.segment.offset_index import OffsetIndex
from ottla.storage.segment.segment import NEVER, UNKNOWN, Segment
from ottla.storage.segment.time_index import TimeIndex, TimestampOffset
from ottla.storage.segment.transaction_index import TransactionIndex


class SegmentBeingTruncated(Segment):
    """Has no file and no index. Appends, and reads of offsets that may be cut, raise LogBeingTruncated. The thread owns the real
    segment."""

    __slots__ = ("_topic_partition",)

    def __init__(
        self, topic_partition: TopicPartition, filesystem: FileSystem, directory: str, base_offset: int, size: int, settings: LogSettings
    ) -> None:
        # Does not call `Segment.__init__`, which reads the file's size.
        self._topic_partition = topic_partition
        self.filesystem = filesystem
        self._directory = directory
        self._settings = settings
        self._suffix = ""
        self.base_offset = base_offset
        self.size = size
        self.created_ms = 0
        self.roll_jitter_ms = 0
        self.rolling_based_timestamp = UNKNOWN
        self.bytes_since_last_index_entry = 0
        self.has_slack = False
        self._file = None
        self._offset_index = None
        self._time_index = None
        self._transaction_index = None
        self.knows_max_timestamp = False

    @property
    def file(self) -> File:
        self._refuse()

    @property
    def offset_index(self) -> OffsetIndex:
        self._refuse()

    @property
    def time_index(self) -> TimeIndex:
        self._refuse()

    @property
    def transaction_index(self) -> TransactionIndex:
        self._refuse()

    @property
    def max_timestamp(self) -> TimestampOffset:
        self._refuse()

    def begin_write(self) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise LogBeingTruncated(self._topic_partition)


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
