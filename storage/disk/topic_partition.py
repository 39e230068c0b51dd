"""The name of a partition, as every floor above the protocol says it."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A topic's name and a partition's index. Its text is the name of the partition's directory: `topic-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
