"""Judges a cell of the fault matrix by the rules of `history`, and three more. Pure.

- gap, also: the consumer that reads along did not get the first record;
- twice: two records were acknowledged at the same offset, so two brokers acted as leader;
- behind: the consumer that reads along did not reach the end.

With acks=1 a replaced leader may lose records, and then two records may have been acknowledged at the same offset. A producer without
idempotence may write a record twice. A record that a consumer has read must keep its offset in every case.
"""

from __future__ import annotations

from collections import defaultdict

from tests.support.fault_cells import Cell
from tests.support.history import UNKNOWN_OFFSET, History, Place, Record

ALONG = "along"
"""The consumer that reads while things happen."""
_MAY_LOSE = frozenset({"lost", "twice", "misplaced"})
_MAY_REPEAT = frozenset({"duplicate", "reordered"})


class FaultHistory(History):
    """A history that also remembers when."""

    def __init__(self) -> None:
        super().__init__()
        self._at: dict[Place, list[Record]] = defaultdict(list)

    def acknowledged(self, record: Record, place: Place) -> None:
        """See History."""
        super().acknowledged(record, place)
        if place.offset != UNKNOWN_OFFSET:
            with self._lock:
                self._at[place].append(record)

    def violations(self) -> list[str]:
        """See the module."""
        found = super().violations()
        with self._lock:
            found += [f"twice: at {place} were acknowledged {records}" for place, records in sorted(self._at.items()) if len(records) > 1]
            expected: dict[int, int] = defaultdict(int)
            for record, (partition, offset) in self._polled[ALONG]:
                if partition not in expected and offset > 0:
                    found.append(f"gap: {ALONG} began with {record} at {offset} of partition {partition}")
                expected[partition] = offset + 1
            for name, polled in self._polled.items():
                end = {partition: offset + 1 for _, (partition, offset) in polled}
                found += [
                    f"behind: {ALONG} came to {expected[partition]} of partition {partition}, and {name} to {to}"
                    for partition, to in end.items()
                    if expected[partition] < to
                ]
        return found


def judge(cell: Cell, violations: list[str]) -> tuple[list[str], dict[str, int]]:
    """The forbidden violations, and the counts of permitted ones."""
    allowed: frozenset[str] = frozenset()
    if cell.acks == "1":
        allowed = _MAY_REPEAT | (_MAY_LOSE if cell.may_lose else frozenset())
    bad: list[str] = []
    tolerated: dict[str, int] = defaultdict(int)
    for each in violations:
        rule = each.partition(":")[0]
        if rule in allowed:
            tolerated[rule] += 1
        else:
            bad.append(each)
    return bad, dict(tolerated)
