"""Logs the new segments of all logs of a broker: at most MAX_LINES a second, and later how many lines were left out.

A producer may roll a segment by each batch, hundreds in a second.
"""

import logging
from typing import Final

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)

MAX_LINES: Final = 20
_MS_PER_SECOND: Final = 1000


class RollLines:
    """See the module. `LogContext` owns the broker's."""

    __slots__ = ("_clock", "_lines", "_second", "_unshown")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = 0
        self._lines = 0
        self._unshown = 0

    def add(self, partition: TopicPartition, base_offset: int) -> None:
        """A log has a new segment."""
        second = self._clock.now_ms() // _MS_PER_SECOND
        if second != self._second:
            if self._unshown:
                logger.info("%d more segments were rolled, without lines", self._unshown)
            self._second = second
            self._lines = self._unshown = 0
        if self._lines >= MAX_LINES:
            self._unshown += 1
            return
        self._lines += 1
        logger.info("%s: rolled a new segment at offset %d", partition, base_offset)
