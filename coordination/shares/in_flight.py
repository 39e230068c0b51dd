"""Holds the records of a share partition that are in flight, as runs of records with equal states.

The runs cover every offset from the start of the share partition up to its end. So the memory depends on the number of different states,
not on the number of records: a batch of a thousand records is one run until members treat its records differently. A run takes two words:
its first offset, and its standing, which is one object for all runs where it is equal. `SharePartition` changes the runs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from ottla.coordination.shares.record_states import COMPLETE, RecordState

NO_MEMBER = ""


class Standing(NamedTuple):
    """The facts that all records of a run share. `standing_of` makes it."""

    state: RecordState
    delivery_count: int
    member_id: str
    """The member that has acquired the records."""
    deadline_ms: int
    """The end of the lock of acquired records."""
    target: RecordState | None
    """The state to which the records change once it is stored; None while no change is in progress."""

    @property
    def is_locked(self) -> bool:
        """Whether a member has the records and has not acknowledged them."""
        return self.state is RecordState.ACQUIRED and self.target is None


@lru_cache(1024)
def standing_of(
    state: RecordState, delivery_count: int, member_id: str = NO_MEMBER, deadline_ms: int = 0, target: RecordState | None = None
) -> Standing:
    """The standing with these facts; mostly an object that exists already."""
    return Standing(state, delivery_count, member_id, deadline_ms, target)


class Run(NamedTuple):
    """Records from `first` to `last`, inclusive, with one standing, as they were when the run was read."""

    first: int
    last: int
    standing: Standing

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    @property
    def state(self) -> RecordState:
        return self.standing.state

    @property
    def is_free(self) -> bool:
        """Whether a member can acquire the records."""
        return self.standing.state is RecordState.AVAILABLE

    def __repr__(self) -> str:
        return f"{self.first}-{self.last} {self.standing.state.name} x{self.standing.delivery_count}"


def _agree(one: Standing, other: Standing) -> bool:
    """Whether neighbours can be one run. Locks stay apart, because each is reported, and ends, as it was acquired."""
    return one.state is other.state is not RecordState.ACQUIRED and one.delivery_count == other.delivery_count


class InFlight:
    """See the module. `start` is the offset of the first run, `end` follows the last one."""

    __slots__ = ("_firsts", "_standings", "complete", "end", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self._firsts = array("q")
        self._standings: list[Standing] = []
        self.complete = 0
        """Offsets whose records are never delivered again."""

    def __len__(self) -> int:
        """The number of runs."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[Run]:
        return map(self._run, range(len(self._firsts)))

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end - self.start

    def _run(self, at: int) -> Run:
        following = at + 1
        end = self._firsts[following] if following < len(self._firsts) else self.end
        return Run(self._firsts[at], end - 1, self._standings[at])

    def locked(self) -> list[Run]:
        """The runs that a member has and has not acknowledged."""
        return [self._run(at) for at, standing in enumerate(self._standings) if standing.is_locked]

    def append(self, last: int, standing: Standing) -> Run:
        """Add the offsets from the end up to `last`."""
        self._firsts.append(self.end)
        self._standings.append(standing)
        run = Run(self.end, last, standing)
        self.end = last + 1
        if standing.state in COMPLETE:
            self.complete += run.size
        return run

    def _index_of(self, offset: int) -> int:
        """The index of the run that has the offset, which has to be one of those in flight."""
        return bisect_right(self._firsts, offset) - 1

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        """The runs that have any of the offsets."""
        first = max(first, self.start)
        last = min(last, self.end - 1)
        if first > last:
            return
        for at in range(self._index_of(first), len(self._firsts)):
            if self._firsts[at] > last:
                return
            yield self._run(at)

    def between(self, first: int, last: int) -> list[Run]:
        """Runs of exactly these offsets, as far as they are in flight. Runs at the edges are split."""
        first = max(first, self.start)
        last = min(last, self.end - 1)
        if first > last:
            return []
        begin = self._split_at(first)
        end = self._split_at(last + 1) if last + 1 < self.end else len(self._firsts)
        return [self._run(at) for at in range(begin, end)]

    def _split_at(self, offset: int) -> int:
        """Let a run begin at an offset that is in flight. Returns its index."""
        at = self._index_of(offset)
        if self._firsts[at] == offset:
            return at
        self._firsts.insert(at + 1, offset)
        self._standings.insert(at + 1, self._standings[at])
        return at + 1

    def change(self, run: Run, standing: Standing) -> None:
        """Give a run that is in flight, and begins and ends as it did when it was read, another standing."""
        self.complete += ((standing.state in COMPLETE) - (run.standing.state in COMPLETE)) * run.size
        self._standings[self._index_of(run.first)] = standing

    def absorb(self, run: Run) -> None:
        """Let the run before this one have its offsets, too."""
        at = self._index_of(run.first)
        del self._firsts[at], self._standings[at]

    def join(self, first: int, last: int) -> None:
        """Make one run of neighbours that agree, among those with these offsets and around them."""
        first = max(first - 1, self.start)
        last = min(last + 1, self.end - 1)
        if first > last:
            return
        begin, end = self._index_of(first), self._index_of(last) + 1
        standings = self._standings
        kept = [begin, *(at for at in range(begin + 1, end) if not _agree(standings[at - 1], standings[at]))]
        if len(kept) < end - begin:
            self._firsts[begin:end] = array("q", [self._firsts[at] for at in kept])
            standings[begin:end] = [standings[at] for at in kept]

    def drop_complete(self) -> None:
        """Move the start behind the records that are never delivered again."""
        at = 0
        while at < len(self._firsts) and self._standings[at].state in COMPLETE:
            at += 1
        if at:
            self.drop_below(self._firsts[at] if at < len(self._firsts) else self.end)

    def drop_below(self, offset: int) -> None:
        """Move the start to an offset behind it, whatever the states of the records below."""
        if offset <= self.start:
            return
        at = self._split_at(offset) if offset < self.end else len(self._firsts)
        self.complete -= sum(run.size for run in map(self._run, range(at)) if run.state in COMPLETE)
        del self._firsts[:at], self._standings[:at]
        self.start = offset
        self.end = max(self.end, offset)
