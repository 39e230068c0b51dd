"""Decides which member of a share group gets which records of a partition, and keeps count. Kafka's SharePartition.

A share partition is a pure state machine: time, the batches of the log, and the results of the coordinator are arguments; effects are
results. Its owner reads the log, and carries out the effects.

    available ── acquire ──► acquired ── accept ──► acknowledged
        ▲                       │ └───── reject ──► archived
        └── release, timeout ───┘ (archived, if the record was delivered as often as allowed)

An acknowledgement takes effect when the coordinator has stored it; until then the records stay locked. One request to the coordinator is
in progress at a time. Acknowledgements that arrive meanwhile share the next request, so a busy partition needs few. The end of a lock takes
effect at once. If its record is lost with this broker, a delivery too many is all that follows.

Invariants: the runs cover all offsets in flight; the first is not complete; an offset is acquired by one member at most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from ottla.coordination.partitions.effects import Arm, Reply
from ottla.coordination.shares.effects import LOCKS, Effect, Store
from ottla.coordination.shares.in_flight import InFlight, Run, standing_of
from ottla.coordination.shares.record_states import (
    COMPLETE,
    OUTCOMES,
    STORED,
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquireMode,
    Extent,
    RecordState,
    StateBatch,
)
from ottla.protocol.errors import ErrorCode

LEAST_THROTTLED: Final = 2
"""Deliveries from which on a record is delivered with fewer others, whatever the limit is."""


_LAST: Final = attrgetter("last")


class ShareRules(NamedTuple):
    """The configuration of a share group."""

    lock_ms: int = 30_000
    delivery_limit: int = 5
    max_locks: int = 2_000
    may_renew: bool = True

    @property
    def throttled_from(self) -> int:
        """Deliveries from which on a record is delivered with fewer others."""
        return max(LEAST_THROTTLED, (self.delivery_limit + 1) // 2)


class MalformedState(Exception):
    """The coordinator's state of a share partition cannot be right."""


class SharePartition:
    """See the module. `rules` may be replaced at any time."""

    __slots__ = (
        "_flight",
        "_free_from",
        "_queued",
        "_queued_waiters",
        "_stores",
        "_waiters",
        "_wakes_ms",
        "ended_locks",
        "rules",
    )

    def __init__(self, start_offset: int, batches: Iterable[StateBatch], rules: ShareRules) -> None:
        """Offsets that are in no batch are available. Raises MalformedState."""
        self.rules = rules
        self._flight = InFlight(start_offset)
        for first, last, state, count in batches:
            if not self._flight.end <= first <= last or state not in STORED:
                raise MalformedState(f"{first}-{last} in state {state} follows offset {self._flight.end - 1}")
            if first > self._flight.end:
                self._flight.append(first - 1, standing_of(RecordState.AVAILABLE, 0))
            self._flight.append(last, standing_of(RecordState(state), count))
        self._flight.join(start_offset, self._flight.end)
        self._flight.drop_complete()
        self._free_from = start_offset
        """No record below this offset is available."""
        self.ended_locks = 0
        """The number of records whose locks have ended with their time."""
        self._wakes_ms: int | None = None
        """When the timer of the locks fires."""
        self._stores: list[tuple[int, int, bool]] | None = None
        """First offset, last offset, and whether a change is in progress, of the request to the coordinator; None if there is none."""
        self._waiters: list[object] = []
        self._queued: dict[StateBatch, bool] = {}
        """The states for the next request, in this order, and whether the change waits for it."""
        self._queued_waiters: list[object] = []

    # -- facts ---------------------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The first offset whose record may still be delivered."""
        return self._flight.start

    @property
    def end_offset(self) -> int:
        """The offset from which on no record has been acquired yet."""
        return self._flight.end

    @property
    def complete_count(self) -> int:
        """The number of offsets from the start on whose records are never delivered again."""
        return self._flight.complete

    @property
    def runs(self) -> InFlight:
        """The records in flight. To be read only."""
        return self._flight

    @property
    def is_storing(self) -> bool:
        """Whether a request to the coordinator is in progress."""
        return self._stores is not None

    def next_fetch_offset(self) -> int | None:
        """The offset from which on records can be acquired, if they exist; None while as many as allowed are in flight."""
        flight = self._flight
        for run in flight.overlapping(self._free_from, flight.end):
            if run.is_free:
                self._free_from = run.first
                return run.first
        self._free_from = flight.end
        return flight.end if flight.size < self.rules.max_locks else None

    # -- acquire -------------------------------------------------------------------------------------------------------------

    def acquire(
        self,
        member_id: str,
        offset: int,
        extents: Iterable[Extent],
        max_records: int,
        batch_size: int,
        mode: AcquireMode,
        now_ms: int,
    ) -> tuple[list[Acquired], list[Effect]]:
        """Lock records for a member. `extents` are the batches that were read from `offset` on, which is that of `next_fetch_offset`.

        Offsets without a record for members, because of compaction or transactions, are archived. In the mode BATCH_OPTIMIZED the last
        batch is acquired to its end, even if it has more than `max_records`.
        """
        taking = _Taking(self, member_id, max_records, batch_size, mode, now_ms)
        at = offset
        for extent in extents:
            if extent.last < at:
                continue
            if not taking.goes_on(max(at, extent.first)):
                break
            if at < extent.first:
                self._archive(at, extent.first - 1)
            first = max(at, extent.first)
            if extent.is_data:
                if not taking.take(first, extent.last):
                    break
            else:
                self._archive(first, extent.last)
            at = extent.last + 1
        self._flight.drop_complete()
        effects = self._arm(now_ms + self.rules.lock_ms, now_ms) if taking.acquired else []
        return taking.acquired, effects + self._store_next()

    def _archive(self, first: int, last: int) -> None:
        """Archive offsets without records, as far as they are available or new."""
        flight = self._flight
        known_end = flight.end
        for run in flight.between(first, last):
            if run.is_free:
                self._change_now(run, RecordState.ARCHIVED)
        if last >= known_end:
            self._queue_run(flight.append(last, standing_of(RecordState.ARCHIVED, 0)))
        flight.join(first, last)

    # -- acknowledge -----------------------------------------------------------------------------------------------------------

    def acknowledge(self, member_id: str, batches: Sequence[Acknowledgement], waiter: object, now_ms: int) -> list[Effect]:
        """A member acknowledges records: all of them, or none if one is not its own. The batches are in order.

        There may be very many below the start, which have no effect.
        """
        start = self._flight.start
        batches = batches[bisect_left(batches, start, key=_LAST) :]
        error = self._refusal(member_id, batches)
        if error:
            return [Reply(waiter, error)]
        began = len(self._queued)
        for batch in batches:
            for first, last, kind in batch.parts(start):
                for run in self._flight.between(first, last):
                    if kind == AcknowledgeType.RENEW:
                        self._lock_until(run, now_ms + self.rules.lock_ms)
                    else:
                        self._begin(run, OUTCOMES[AcknowledgeType(kind)])
        if len(self._queued) == began:
            return [Reply(waiter, ErrorCode.NONE)]
        self._queued_waiters.append(waiter)
        return self._store_next()

    def release(self, member_id: str, waiter: object) -> list[Effect]:
        """The share session of a member has ended: the records that it still has are for others."""
        began = len(self._queued)
        for run in self._flight.locked():
            if run.standing.member_id == member_id:
                self._begin(run, RecordState.AVAILABLE)
        if len(self._queued) == began:
            return [Reply(waiter, ErrorCode.NONE)]
        self._queued_waiters.append(waiter)
        return self._store_next()

    def _refusal(self, member_id: str, batches: Sequence[Acknowledgement]) -> ErrorCode:
        flight = self._flight
        former_last = -1
        for batch in batches:
            if batch.first <= former_last:
                return ErrorCode.INVALID_RECORD_STATE  # the second acknowledgement of a record
            former_last = batch.last
            if not flight:
                return ErrorCode.INVALID_RECORD_STATE
            if batch.last >= flight.end:
                return ErrorCode.INVALID_REQUEST
            if AcknowledgeType.RENEW in batch.types and not self.rules.may_renew:
                return ErrorCode.INVALID_RECORD_STATE
            for run in flight.overlapping(batch.first, batch.last):
                if not run.standing.is_locked or run.standing.member_id != member_id:
                    return ErrorCode.INVALID_RECORD_STATE
        return ErrorCode.NONE

    def _begin(self, run: Run, target: RecordState) -> None:
        """Change the state of an acquired run once it is stored."""
        was = run.standing
        if target is RecordState.AVAILABLE and was.delivery_count >= self.rules.delivery_limit:
            target = RecordState.ARCHIVED
        self._flight.change(run, standing_of(was.state, was.delivery_count, was.member_id, was.deadline_ms, target))
        self._queued[StateBatch(run.first, run.last, target, was.delivery_count)] = True

    def _lock_until(self, run: Run, deadline_ms: int) -> None:
        """Let the lock of a run end at another time."""
        was = run.standing
        self._flight.change(run, standing_of(was.state, was.delivery_count, was.member_id, deadline_ms))

    # -- store ---------------------------------------------------------------------------------------------------------------

    def on_stored(self, error: ErrorCode, now_ms: int) -> list[Effect]:
        """The coordinator has answered: the changes take effect, or the records stay acquired until their locks end.

        After an error only changes for which a member waits are stored at once; others would be tried without end.
        """
        assert self._stores is not None
        stored, self._stores = self._stores, None
        waiters, self._waiters = self._waiters, []
        self._finish([(first, last) for first, last, waits in stored if waits], bool(error))
        if error:
            for first, last, waits in stored:
                if not waits:
                    self._queue_again(first, last)
        self._flight.drop_complete()
        effects: list[Effect] = [Reply(waiter, error) for waiter in waiters]
        if error:
            effects += self._end_locks(now_ms)
        return effects + (self._store_next() if self._queued_waiters or not error else [])

    def _finish(self, parts: Iterable[tuple[int, int]], has_failed: bool) -> None:
        flight = self._flight
        joins_from = joins_to = -1
        for first, last in parts:
            for run in flight.between(first, last):
                was = run.standing
                if was.target is None:
                    continue
                if has_failed:
                    self._lock_until(run, was.deadline_ms)
                else:
                    flight.change(run, standing_of(was.target, was.delivery_count))
                    if was.target is RecordState.AVAILABLE:
                        self._free_from = min(self._free_from, run.first)
            if first != joins_to + 1:  # neighbours are joined together: records with states of their own are many
                flight.join(joins_from, joins_to)
                joins_from = first
            joins_to = last
        flight.join(joins_from, joins_to)

    def _queue_run(self, run: Run) -> None:
        """Store the state that a run has already."""
        self._queued[StateBatch(run.first, run.last, run.state, run.standing.delivery_count)] = False

    def _change_now(self, run: Run, state: RecordState) -> None:
        """Change the state of a run at once, and store it with the next change."""
        changed = run._replace(standing=standing_of(state, run.standing.delivery_count))
        self._flight.change(run, changed.standing)
        self._queue_run(changed)

    def _queue_again(self, first: int, last: int) -> None:
        """Store the states of these records with the next change. The outcome of acquired ones is stored later anyway."""
        for run in self._flight.overlapping(first, last):
            if run.state in STORED:
                self._queue_run(run)

    def _store_next(self) -> list[Effect]:
        if self._stores is not None or not self._queued:
            return []
        queued, self._queued = self._queued, {}
        self._waiters, self._queued_waiters = self._queued_waiters, []
        self._stores = [(batch.first, batch.last, waits) for batch, waits in queued.items()]
        start = self._flight.start
        # Of records that the start has passed meanwhile nothing is stored.
        batches = tuple(batch._replace(first=max(batch.first, start)) for batch in queued if batch.last >= start)
        completing = sum(batch.last - max(batch.first, start) + 1 for batch, waits in queued.items() if waits and batch.state in COMPLETE)
        return [Store(start, self._flight.complete + completing, batches)]

    # -- time ----------------------------------------------------------------------------------------------------------------

    def end_locks(self, now_ms: int) -> list[Effect]:
        """End all locks, as their time would, except those of records that are being acknowledged."""
        for run in self._flight.locked():
            self._lock_until(run, min(run.standing.deadline_ms, now_ms))
        return self.on_timer(now_ms)

    def on_timer(self, now_ms: int) -> list[Effect]:
        """End the locks whose time is over, except those of records that are being acknowledged."""
        return self._end_locks(now_ms) + self._store_next()

    def _end_locks(self, now_ms: int) -> list[Effect]:
        self._wakes_ms = None
        flight = self._flight
        next_ms: int | None = None
        ended: list[Run] = []
        for run in flight.locked():
            deadline_ms = run.standing.deadline_ms
            if deadline_ms <= now_ms:
                ended.append(run)
            elif next_ms is None or deadline_ms < next_ms:
                next_ms = deadline_ms
        for run in ended:
            self.ended_locks += run.size
            is_last = run.standing.delivery_count >= self.rules.delivery_limit
            self._change_now(run, RecordState.ARCHIVED if is_last else RecordState.AVAILABLE)
            if not is_last:
                self._free_from = min(self._free_from, run.first)
        if ended:
            flight.join(ended[0].first, ended[-1].last)
            flight.drop_complete()
        return [] if next_ms is None else self._arm(next_ms, now_ms)

    def _arm(self, deadline_ms: int, now_ms: int) -> list[Effect]:
        if self._wakes_ms is not None and self._wakes_ms <= deadline_ms:
            return []
        self._wakes_ms = deadline_ms
        return [Arm(LOCKS, max(deadline_ms - now_ms, 0))]

    def on_log_start(self, offset: int) -> None:
        """The log of the partition begins at this offset now; the records below are gone. Stored with the next change."""
        if offset > self._flight.start:
            self._flight.drop_below(offset)
            self._flight.drop_complete()


class _Taking:
    """Acquires records for one request of a member."""

    __slots__ = ("_batch_size", "_is_exact", "_left", "_lock_until_ms", "_member_id", "_of", "_room", "acquired")

    def __init__(self, of: SharePartition, member_id: str, max_records: int, batch_size: int, mode: AcquireMode, now_ms: int) -> None:
        self._of = of
        self._member_id = member_id
        self._left = max_records
        self._room = of.rules.max_locks - of._flight.size
        """How many new offsets may still come into flight."""
        self._batch_size = batch_size
        self._is_exact = mode is AcquireMode.RECORD_LIMIT
        self._lock_until_ms = now_ms + of.rules.lock_ms
        self.acquired: list[Acquired] = []

    def goes_on(self, offset: int) -> bool:
        """Whether more records can be acquired from this offset on."""
        return self._left > 0 and (offset < self._of._flight.end or self._room > 0)

    def take(self, first: int, last: int) -> bool:
        """Acquire what is available, and what is new, of one batch of the log. False if nothing more may be acquired."""
        flight = self._of._flight
        end = flight.end
        for run in flight.between(first, last):
            if run.is_free and not self._take_again(run):
                return False
        if last >= end:
            if self._room <= 0:
                return False
            if self._is_exact:
                last = min(last, end + min(self._left, self._room) - 1)
                if last < end:
                    return False
            run = flight.append(last, standing_of(RecordState.AVAILABLE, 0))
            self._room -= run.size
            self._acquire(run)
        return True

    def _take_again(self, run: Run) -> bool:
        """Acquire records that were acquired before; records that failed often with few others, and at last alone, so that one bad record
        is not archived with others (KIP-932)."""
        rules = self._of.rules
        flight = self._of._flight
        count = run.standing.delivery_count
        if count >= rules.delivery_limit:  # the limit is lower now
            self._of._change_now(run, RecordState.ARCHIVED)
            return True
        most = self._left if self._is_exact else run.size
        is_throttled = count >= rules.throttled_from
        if is_throttled:
            if self.acquired:
                return False
            most = min(most, max(1, run.size >> (count - rules.throttled_from + 1)))
            if count == rules.delivery_limit - 1:
                most = 1
        if most <= 0:
            return False
        if run.size > most:
            run = flight.between(run.first, run.first + most - 1)[0]
        self._acquire(run)
        return not is_throttled and (not self._is_exact or self._left > 0)

    def _acquire(self, run: Run) -> None:
        flight = self._of._flight
        count = run.standing.delivery_count + 1
        flight.change(run, standing_of(RecordState.ACQUIRED, count, self._member_id, self._lock_until_ms))
        self._left -= run.size
        former = self.acquired[-1] if self.acquired else None
        if (
            former is not None
            and (former.last + 1, former.delivery_count) == (run.first, count)
            and former.last - former.first + 1 < self._batch_size
        ):
            self.acquired[-1] = former._replace(last=run.last)
            flight.absorb(run)
        else:
            self.acquired.append(Acquired(run.first, run.last, count))
