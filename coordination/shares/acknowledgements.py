"""Joins, checks and counts the acknowledgements of one partition in a request, before any share partition sees them.

A request may have 250,000 batches. So they are added in parts, between which the caller pauses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ottla.coordination.shares.record_states import Acknowledgement, AcknowledgeType


class Acknowledgements:
    """See the module. `batches` are in order, and each has one type, or one for each of its offsets; there are none after a fault.

    `counts` has the number of records by type.
    """

    __slots__ = ("_former_last", "_is_faulty", "batches", "counts")

    def __init__(self) -> None:
        self.batches: list[Acknowledgement] = []
        self.counts: Counter[int] = Counter()
        self._former_last = -1
        self._is_faulty = False

    def is_valid(self, *, may_renew: bool) -> bool:
        """Whether the batches are in order, and have known types."""
        last_type = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
        return not self._is_faulty and all(AcknowledgeType.GAP <= kind <= last_type for kind in self.counts)

    def add(self, batches: Iterable[Any]) -> None:
        """Add batches of a request. Neighbours with the same type become one.

        Members that acknowledge each record by itself send a batch for each; a share partition needs 10 µs for a batch.
        """
        if self._is_faulty:
            return
        found, counts = self.batches, self.counts
        for batch in batches:
            first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
            size = last - first + 1
            if first > last or first < self._former_last or len(types) not in (1, size):
                self._is_faulty = True
                found.clear()
                return
            self._former_last = last
            if len(types) > 1:
                counts.update(types)
                found.append(Acknowledgement(first, last, types))
                continue
            counts[types[0]] += size
            if found and found[-1].last + 1 == first and found[-1].types == types:
                found[-1] = Acknowledgement(found[-1].first, last, types)
            else:
                found.append(Acknowledgement(first, last, types))
