"""Holds the records of a share partition that are in flight, as runs of records with equal states.

The runs cover every offset from the start of the share partition up to its end. So the memory depends on the number of different states,
not on the number of records: a batch of a thousand records is one run until members treat its records differently. `SharePartition`
changes the runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter

from ottla.broker.shares.record_states import COMPLETE, RecordState

_FIRST = attrgetter("first")

NO_MEMBER = ""


class Run:
    """Records from `first` to `last`, inclusive, with one state."""

    __slots__ = ("count", "deadline_ms", "first", "last", "member_id", "state", "target")

    def __init__(self, first: int, last: int, state: RecordState, count: int) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        """The number of deliveries."""
        self.member_id = NO_MEMBER
        """The member that has acquired the records."""
        self.deadline_ms = 0
        """The end of the lock of acquired records."""
        self.target: RecordState | None = None
        """The state to which the records change once it is stored; None while no change is in progress."""

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    @property
    def is_free(self) -> bool:
        """Whether a member can acquire the records."""
        return self.state is RecordState.AVAILABLE

    def split(self, offset: int) -> Run:
        """Keep the records below `offset`; returns the others. A run of one record has one number, not two: a fifth of its memory."""
        rest = Run(offset, offset if offset == self.last else self.last, self.state, self.count)
        rest.member_id = self.member_id
        rest.deadline_ms = self.deadline_ms
        rest.target = self.target
        self.last = self.first if self.first == offset - 1 else offset - 1
        return rest

    def agrees(self, other: Run) -> bool:
        """Whether both can be one run. Locks stay apart, because each is reported, and ends, as it was acquired."""
        return self.state is other.state is not RecordState.ACQUIRED and self.count == other.count

    def __repr__(self) -> str:
        return f"{self.first}-{self.last} {self.state.name} x{self.count}"


class InFlight:
    """See the module. `start` is the offset of the first run, `end` follows the last one."""

    __slots__ = ("complete", "end", "runs", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.runs: list[Run] = []
        self.complete = 0
        """Offsets whose records are never delivered again."""

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end - self.start

    def append(self, last: int, state: RecordState, count: int) -> Run:
        """Add the offsets from the end up to `last`."""
        run = Run(self.end, self.end if self.end == last else last, state, count)
        self.runs.append(run)
        self.end = last + 1
        if state in COMPLETE:
            self.complete += run.size
        return run

    def index_of(self, offset: int) -> int:
        """The index of the run that has the offset, which has to be one of those in flight."""
        return bisect_right(self.runs, offset, key=_FIRST) - 1

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        """The runs that have any of the offsets."""
        first = max(first, self.start)
        last = min(last, self.end - 1)
        if first > last:
            return
        for at in range(self.index_of(first), len(self.runs)):
            run = self.runs[at]
            if run.first > last:
                return
            yield run

    def between(self, first: int, last: int) -> list[Run]:
        """Runs of exactly these offsets, as far as they are in flight. Runs at the edges are split."""
        first = max(first, self.start)
        last = min(last, self.end - 1)
        if first > last:
            return []
        runs = self.runs
        begin = self._split_at(first)
        end = begin
        while runs[end].last < last:
            end += 1
        if runs[end].last > last:
            runs.insert(end + 1, runs[end].split(last + 1))
        return runs[begin : end + 1]

    def _split_at(self, offset: int) -> int:
        """Let a run begin at an offset that is in flight. Returns its index."""
        at = self.index_of(offset)
        run = self.runs[at]
        if run.first == offset:
            return at
        self.runs.insert(at + 1, run.split(offset))
        return at + 1

    def change(self, run: Run, state: RecordState, count: int) -> None:
        """Set the state of a run that is in flight; no change of it is in progress afterwards."""
        self.complete += (state in COMPLETE) * run.size - (run.state in COMPLETE) * run.size
        run.state = state
        run.count = count
        run.target = None
        if state is not RecordState.ACQUIRED:
            run.member_id = NO_MEMBER

    def join(self, first: int, last: int) -> None:
        """Make one run of neighbours that agree, among those with these offsets and around them."""
        first = max(first - 1, self.start)
        last = min(last + 1, self.end - 1)
        if first > last:
            return
        begin, end = self.index_of(first), self.index_of(last)
        joined = [self.runs[begin]]
        for run in self.runs[begin + 1 : end + 1]:
            if joined[-1].agrees(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self.runs[begin : end + 1] = joined

    def drop_complete(self) -> None:
        """Move the start behind the records that are never delivered again."""
        at = 0
        while at < len(self.runs) and self.runs[at].state in COMPLETE:
            self.complete -= self.runs[at].size
            at += 1
        del self.runs[:at]
        self.start = self.runs[0].first if self.runs else self.end

    def drop_below(self, offset: int) -> None:
        """Move the start to an offset behind it, whatever the states of the records below."""
        if offset <= self.start:
            return
        at = self._split_at(offset) if offset < self.end else len(self.runs)
        for run in self.runs[:at]:
            if run.state in COMPLETE:
                self.complete -= run.size
        del self.runs[:at]
        self.start = offset
        self.end = max(self.end, offset)
