"""Defines the name of a partition for all floors, and for clients."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A topic's name and a partition's index. Its text is the name of the partition's directory: `topic-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
