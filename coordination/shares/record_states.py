"""Declares the states of the records of a share partition, and the ways in which a member acknowledges them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import groupby, islice
from typing import Final, NamedTuple


class RecordState(IntEnum):
    """The state of a record, by the number that requests and stored records have for it."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


COMPLETE: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
"""The states of records that are never delivered again."""

STORED: Final = frozenset({RecordState.AVAILABLE}) | COMPLETE
"""The states in the coordinator's records. An acquired record is stored as it was before, because its lock ends with its leader."""


class AcknowledgeType(IntEnum):
    """The answer of a member to a record that it acquired."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


OUTCOMES: Final = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}
"""The state to which an acknowledgement leads. RENEW leads to none: the record stays acquired."""


class AcquireMode(IntEnum):
    """How exact the number of acquired records is (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class StateBatch(NamedTuple):
    """Records from `first` to `last` that have the same state."""

    first: int
    last: int
    state: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """Records from `first` to `last`. `types` has one type for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[int]

    def parts(self, start: int = 0) -> Iterator[tuple[int, int, int]]:
        """First offset, last offset and type of consecutive records with equal types, from the offset `start` on."""
        first = max(self.first, start)
        if len(self.types) == 1:
            yield first, self.last, self.types[0]
            return
        for kind, equal in groupby(islice(self.types, first - self.first, None)):
            last = first + sum(1 for _ in equal) - 1
            yield first, last, kind
            first = last + 1


class Acquired(NamedTuple):
    """Records from `first` to `last` that a member has acquired, and the number of their deliveries."""

    first: int
    last: int
    delivery_count: int


class Extent(NamedTuple):
    """Offsets of one batch in the log. `is_data` is false for control batches and for records of aborted transactions."""

    first: int
    last: int
    is_data: bool
