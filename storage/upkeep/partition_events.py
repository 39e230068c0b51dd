"""Groups events of many partitions, so that they make one line in the log.

A group's first join creates 50 partitions, and the deletion of a topic removes all of its partitions. `LogManager` owns the object. It is
used on the event loop only.
"""

import logging
from collections.abc import Iterable
from typing import Final

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.background import Background

log = logging.getLogger(__name__)

GATHERING_MS: Final = 100
"""Time from the first event until its line is written, milliseconds; a request's partitions are handled within it."""
MAX_TOPICS: Final = 10
"""Topics that a line names; the others are counted."""


class PartitionEvents:
    """Events that wait for their line, by their text."""

    __slots__ = ("_background", "_pending")

    def __init__(self, background: Background) -> None:
        self._background = background
        self._pending: dict[str, list[TopicPartition]] = {}

    def add(self, event: str, topic_partition: TopicPartition) -> None:
        """Log `event` soon, in one line for all partitions with the same text."""
        waiting = self._pending.get(event)
        if waiting is not None:
            waiting.append(topic_partition)
            return
        self._pending[event] = [topic_partition]
        self._background.schedule("log-events", GATHERING_MS, 0, lambda: self._write(event))

    def close(self) -> None:
        """Write all lines that wait."""
        for event in list(self._pending):
            self._write(event)

    def _write(self, event: str) -> None:
        found = self._pending.pop(event, None)
        if found:
            log.info("%s: %s", names_of(found), event)


def names_of(partitions: Iterable[TopicPartition]) -> str:
    """`orders-0`, `orders-[0-19]`, `orders-[0,2-5], users-0`: the partitions by topic."""
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    texts = [f"{topic}-{_spans(sorted(set(listed)))}" for topic, listed in sorted(numbers.items())]
    more = len(texts) - MAX_TOPICS
    return ", ".join(texts[:MAX_TOPICS]) + (f" and those of {more} more topics" if more > 0 else "")


def _spans(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return str(numbers[0])
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return f"[{','.join(str(first) if first == last else f'{first}-{last}' for first, last in spans)}]"
