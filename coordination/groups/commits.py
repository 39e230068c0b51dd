"""Holds the offsets that one request commits: by topic and partition, the value of the record to write.

The handler converts a request to a `Commit`. The coordinator writes the records, and keeps the values unchanged. No other object is created
for an offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ottla.coordination.groups.offset_records import in_version
from ottla.coordination.supported_operation import SupportedOperation
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition


class Transaction(NamedTuple):
    """The transaction of a commit."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    operation: SupportedOperation
    """How the client's request takes part in it."""


class Verifier(Protocol):
    """Asks coordinators of transactions about partitions: a `transactions.verification.TransactionVerifier`."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        then: Callable[[dict[TopicPartition, ErrorCode]], None],
        operation: SupportedOperation,
    ) -> None:
        """Call `then` with the partitions that are not part of the producer's open transaction, and were not added to it, now or later."""


class TopicCommit:
    """The offsets in one topic.

    `values` has every partition once, in the order in which they were named; None for an offset that is refused alone, because its metadata
    is too large.
    """

    __slots__ = ("name", "values")

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[int, bytes | None] = {}


class Commit:
    """The offsets of a request; no topic twice, and none without partitions."""

    __slots__ = ("topics",)

    def __init__(self, topics: Iterable[TopicCommit]) -> None:
        self.topics = list(topics)

    def write_in(self, version: int) -> None:
        """Have no value a later version than this one."""
        for topic in self.topics:
            topic.values = {index: None if value is None else in_version(value, version) for index, value in topic.values.items()}

    def __iter__(self) -> Iterator[tuple[TopicPartition, bytes]]:
        """The offsets that are to be written."""
        for topic in self.topics:
            name = topic.name
            for index, value in topic.values.items():
                if value is not None:
                    yield TopicPartition(name, index), value
