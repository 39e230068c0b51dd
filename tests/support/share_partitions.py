"""Plays a share partition with its members, its log and its coordinator, and holds the rules of KIP-932 against what happens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ottla.coordination.partitions.effects import Reply
from ottla.coordination.shares.effects import Effect, Store
from ottla.coordination.shares.partition import SharePartition, ShareRules
from ottla.coordination.shares.record_states import (
    COMPLETE,
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquireMode,
    Extent,
    RecordState,
    StateBatch,
)
from ottla.protocol.errors import ErrorCode

ALL = 2**31 - 1
DEFAULT_RULES = ShareRules()


def extents(*batches: tuple[int, int] | tuple[int, int, bool]) -> list[Extent]:
    """Batches of a log: first offset, last offset, and whether they have records for members."""
    return [Extent(batch[0], batch[1], batch[2] if len(batch) > 2 else True) for batch in batches]


def acknowledgement(first: int, last: int, *types: AcknowledgeType) -> Acknowledgement:
    return Acknowledgement(first, last, list(types) or [AcknowledgeType.ACCEPT])


@dataclass
class Stored:
    """The state of a share partition at the coordinator, by offset."""

    start: int
    states: dict[int, tuple[int, int]] = field(default_factory=dict)

    def apply(self, store: Store) -> None:
        for first, last, state, count in store.batches:
            for offset in range(first, last + 1):
                self.states[offset] = state, count
        self.start = max(self.start, store.start_offset)
        self.states = {offset: state for offset, state in self.states.items() if offset >= self.start}

    def batches(self) -> list[StateBatch]:
        return [StateBatch(offset, offset, *state) for offset, state in sorted(self.states.items())]


class SharePlayer:
    """A share partition, played by hand. `stores` are the requests to the coordinator without an answer, one at most."""

    def __init__(self, log: Sequence[Extent], start: int = 0, rules: ShareRules = DEFAULT_RULES) -> None:
        self.log = list(log)
        self.rules = rules
        self.now_ms = 1_000
        self.stored = Stored(start)
        self.partition = SharePartition(start, (), rules)
        self.replies: dict[object, ErrorCode] = {}
        self.stores: list[Store] = []
        self.wakes_ms: int | None = None

    def carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.waiter not in self.replies, "a waiter is answered once"
                assert isinstance(effect.result, ErrorCode)
                self.replies[effect.waiter] = effect.result
            elif isinstance(effect, Store):
                assert not self.stores, "one request to the coordinator at a time"
                self.stores.append(effect)
            else:
                self.wakes_ms = self.now_ms + effect.delay_ms

    def acquire(self, member: str, most: int = ALL, *, batch_size: int = ALL, exact: bool = False) -> list[Acquired]:
        """Read from the next offset on, and acquire what the member may have."""
        offset = self.partition.next_fetch_offset()
        if offset is None:
            return []
        read = [extent for extent in self.log if extent.last >= offset]
        mode = AcquireMode.RECORD_LIMIT if exact else AcquireMode.BATCH_OPTIMIZED
        found, effects = self.partition.acquire(member, offset, read, most, batch_size, mode, self.now_ms)
        self.carry_out(effects)
        return found

    def acknowledge(self, member: str, *batches: Acknowledgement, stores: bool = True) -> ErrorCode | None:
        """The answer; None while the coordinator has not answered."""
        waiter = object()
        self.carry_out(self.partition.acknowledge(member, batches, waiter, self.now_ms))
        if stores:
            self.store()
        return self.replies.get(waiter)

    def release(self, member: str) -> None:
        self.carry_out(self.partition.release(member, object()))
        self.store()

    def store(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let the coordinator answer what it was asked, with this error once."""
        while self.stores:
            store = self.stores.pop()
            if not error:
                self.stored.apply(store)
            self.carry_out(self.partition.on_stored(error, self.now_ms))
            error = ErrorCode.NONE

    def pass_time(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while self.wakes_ms is not None and self.wakes_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.wakes_ms)
            self.wakes_ms = None
            self.carry_out(self.partition.on_timer(self.now_ms))
        self.now_ms = end_ms

    def crash(self) -> None:
        """Another broker takes the partition over with what is stored."""
        self.partition = SharePartition(self.stored.start, self.stored.batches(), self.rules)
        self.stores.clear()
        self.wakes_ms = None

    def states(self) -> list[tuple[int, int, str, int]]:
        return [(run.first, run.last, run.state.name, run.standing.delivery_count) for run in self.partition.runs]

    def check(self) -> None:
        """The runs cover the offsets in flight, in order; none of them is complete at the start."""
        partition = self.partition
        at = partition.start_offset
        complete = 0
        for run in partition.runs:
            assert at == run.first <= run.last
            assert (run.standing.member_id != "") == (run.state is RecordState.ACQUIRED)
            assert run.standing.target is None or run.state is RecordState.ACQUIRED
            complete += run.size if run.state in COMPLETE else 0
            at = run.last + 1
        assert at == partition.end_offset
        assert complete == partition.complete_count
        assert all(run.state not in COMPLETE for run in islice(partition.runs, 1))
