"""Holds the state of one transactional id, and prepares and completes its transitions. Kafka's TransactionMetadata.

A transition has two steps. `prepare_*` returns the new values, and marks the id as pending. `complete_transition` applies the values when
they are stored (`effects.Store`). While a transition is pending, no other is prepared. `state` decides which transition follows an event.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.transactions.partitions import NO_PARTITIONS, Partitions, difference, includes, union
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from ottla.broker.loop.timing_wheel import Cancellable

NO_TIMESTAMP: Final = -1
MAX_EPOCH: Final = 0x7FFF
"""Never assigned to a producer: with it the coordinator can always fence the last producer of a producer id."""


class TransactionState(IntEnum):
    """Kafka's states, with their numbers in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Kafka's name of the state, as DescribeTransactions shows it: "CompleteCommit"."""
        return self.name.title().replace("_", "")


_S = TransactionState

STATES_BY_LABEL: Final = {state.label: state for state in TransactionState}

PREVIOUS_STATES: Final = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.PREPARE_EPOCH_FENCE}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""The states from which each state may be reached."""

FINISHED: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""States without a transaction: the next one may begin, and the id may expire."""

PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""States in which the outcome is decided, and markers are written."""


class IllegalTransition(Exception):
    """A transition that no event causes: a fault of the coordinator itself."""


class ProducerIdAndEpoch(NamedTuple):
    """Identifies one instance of a producer."""

    producer_id: int
    producer_epoch: int


class TransitMetadata(NamedTuple):
    """The values that a transition leads to; the same as the record of the log. Kafka's TxnTransitMetadata."""

    producer_id: int
    last_producer_id: int
    producer_epoch: int
    last_producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: Partitions
    start_ms: int
    last_update_ms: int


def is_epoch_exhausted(producer_epoch: int) -> bool:
    """Whether the next epoch would be the one that only fences."""
    return producer_epoch >= MAX_EPOCH - 1


class TransactionMetadata:
    """See the module. Times are Unix time, ms; `start_ms` is -1 before the first transaction."""

    __slots__ = (
        "has_failed_epoch_fence",
        "last_producer_epoch",
        "last_producer_id",
        "last_update_ms",
        "partitions",
        "pending_state",
        "producer_epoch",
        "producer_id",
        "start_ms",
        "state",
        "timeout_ms",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        timeout_ms: int,
        last_update_ms: int,
        *,
        state: TransactionState = TransactionState.EMPTY,
        partitions: Partitions = NO_PARTITIONS,
        start_ms: int = NO_TIMESTAMP,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.last_producer_id = NO_PRODUCER_ID
        self.producer_epoch = producer_epoch
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        self.timeout_ms = timeout_ms
        self.state = state
        self.partitions = partitions
        """The partitions of the transaction; while markers are written, those that still lack one."""
        self.start_ms = start_ms
        self.last_update_ms = last_update_ms
        self.pending_state: TransactionState | None = None
        self.has_failed_epoch_fence = False
        """Whether a bumped epoch may be missing in the log. No client has it, so the next fence does not bump it again."""

    @property
    def timers(self) -> dict[Hashable, Cancellable]:
        """None: timeouts are checked periodically (`expiration`), as by Apache Kafka."""
        return {}

    @property
    def is_dead(self) -> bool:
        """Whether the id is being removed."""
        return self.pending_state is TransactionState.DEAD

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the next producer needs another producer id."""
        return is_epoch_exhausted(self.producer_epoch)

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether a transaction has been open for longer than its producer allowed, and nothing is pending."""
        return self.pending_state is None and self.state is TransactionState.ONGOING and self.start_ms + self.timeout_ms < now_ms

    # -- first halves ------------------------------------------------------------------------------------------------------

    def prepare_increment_epoch(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> tuple[ErrorCode, TransitMetadata | None]:
        """The next epoch for a producer; the current epoch for a producer that repeats its last request (KIP-360)."""
        if self.is_epoch_exhausted:
            raise IllegalTransition(f"{self}: no epoch is left")
        if expected_epoch is None:
            epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        elif self.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch):
            epoch, last_epoch = self.producer_epoch + 1, self.producer_epoch
        elif expected_epoch == self.last_producer_epoch:
            epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        else:
            return ErrorCode.PRODUCER_FENCED, None
        empty = TransactionState.EMPTY
        return ErrorCode.NONE, self._prepare(empty, self.producer_id, epoch, last_epoch, timeout_ms, NO_PARTITIONS, NO_TIMESTAMP, now_ms)

    def prepare_producer_id_rotation(self, producer_id: int, timeout_ms: int, now_ms: int, *, records_last_epoch: bool) -> TransitMetadata:
        """Another producer id, whose epochs begin at 0."""
        last_epoch = self.producer_epoch if records_last_epoch else NO_PRODUCER_EPOCH
        return self._prepare(TransactionState.EMPTY, producer_id, 0, last_epoch, timeout_ms, NO_PARTITIONS, NO_TIMESTAMP, now_ms)

    def prepare_add_partitions(self, added: Partitions, now_ms: int) -> TransitMetadata:
        """More partitions; the first ones begin a transaction."""
        start_ms = now_ms if self.state in FINISHED else self.start_ms
        partitions = union(self.partitions, added)
        return self._prepare_same_producer(TransactionState.ONGOING, partitions, start_ms, now_ms)

    def prepare_abort_or_commit(self, state: TransactionState, now_ms: int) -> TransitMetadata:
        """The outcome of the transaction: PREPARE_COMMIT or PREPARE_ABORT."""
        return self._prepare_same_producer(state, self.partitions, self.start_ms, now_ms)

    def prepare_fenced_abort(self, now_ms: int) -> TransitMetadata:
        """An abort that fences the producer: its epoch is bumped at once, so its requests are refused from now on.

        Raises IllegalTransition at the largest epoch, which no producer has.
        """
        if not self.has_failed_epoch_fence:
            if self.producer_epoch == MAX_EPOCH:
                raise IllegalTransition(f"{self}: its epoch cannot be bumped")
            self.producer_epoch += 1
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        return self.prepare_abort_or_commit(TransactionState.PREPARE_ABORT, now_ms)

    def prepare_complete(self, now_ms: int) -> TransitMetadata:
        """The end of the transaction, to be stored when all partitions have their markers."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        self.has_failed_epoch_fence = False
        state = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        return self._prepare_same_producer(state, NO_PARTITIONS, self.start_ms, now_ms)

    def prepare_dead(self) -> None:
        """The id expires."""
        self._check_previous(TransactionState.DEAD)
        self.pending_state = TransactionState.DEAD

    def _prepare_same_producer(self, state: TransactionState, partitions: Partitions, start_ms: int, now_ms: int) -> TransitMetadata:
        return self._prepare(
            state, self.producer_id, self.producer_epoch, self.last_producer_epoch, self.timeout_ms, partitions, start_ms, now_ms
        )

    def _prepare(
        self,
        state: TransactionState,
        producer_id: int,
        producer_epoch: int,
        last_producer_epoch: int,
        timeout_ms: int,
        partitions: Partitions,
        start_ms: int,
        now_ms: int,
    ) -> TransitMetadata:
        self._check_previous(state)
        if producer_id < 0 or producer_epoch < 0:
            raise IllegalTransition(f"{self}: producer id {producer_id}, epoch {producer_epoch} cannot follow")
        self.pending_state = state
        last_id = self.producer_id
        return TransitMetadata(producer_id, last_id, producer_epoch, last_producer_epoch, timeout_ms, state, partitions, start_ms, now_ms)

    def _check_previous(self, state: TransactionState) -> None:
        if self.pending_state is not None or self.state not in PREVIOUS_STATES[state]:
            raise IllegalTransition(f"{self}: {state.label} cannot follow")

    # -- second halves -----------------------------------------------------------------------------------------------------

    def complete_transition(self, transit: TransitMetadata) -> None:
        """The transition that is pending is in the log. Raises IllegalTransition if it is another one."""
        state = transit.state
        if self.pending_state is not state or not self._may_become(transit):
            raise IllegalTransition(f"{self}: {transit} cannot be completed")
        if state is TransactionState.EMPTY:
            self.timeout_ms = transit.timeout_ms
            self.producer_epoch = transit.producer_epoch
            self.last_producer_epoch = transit.last_producer_epoch
            self.producer_id = transit.producer_id
            self.last_producer_id = transit.last_producer_id
        elif state is TransactionState.ONGOING:
            self.start_ms = transit.start_ms
            self.partitions = transit.partitions
        elif state not in PREPARED:
            self.partitions = NO_PARTITIONS
        self.last_update_ms = transit.last_update_ms
        self.pending_state = None
        self.state = state

    def _may_become(self, transit: TransitMetadata) -> bool:
        state = transit.state
        if state is TransactionState.EMPTY:
            is_bump = transit.producer_epoch == self.producer_epoch + 1 or (
                transit.producer_epoch == 0 and transit.producer_id != self.producer_id
            )
            return is_bump or transit.producer_epoch == self.producer_epoch
        same = transit.producer_id == self.producer_id and transit.producer_epoch == self.producer_epoch
        if not same or transit.timeout_ms != self.timeout_ms:
            return False
        if state is TransactionState.ONGOING:
            return includes(transit.partitions, self.partitions)
        if state in PREPARED:
            return transit.partitions == self.partitions and transit.start_ms == self.start_ms
        return transit.start_ms != NO_TIMESTAMP

    def give_up_transition(self) -> None:
        """The pending transition is not in the log."""
        self.pending_state = None

    def remove_partitions(self, partitions: Partitions) -> None:
        """These partitions have their markers, or do not exist any more. Raises IllegalTransition while no markers are written."""
        if self.state not in PREPARED:
            raise IllegalTransition(f"{self}: no markers are written now")
        self.partitions = NO_PARTITIONS if partitions == self.partitions else difference(self.partitions, partitions)

    def __str__(self) -> str:
        pending = "" if self.pending_state is None else f", pending {self.pending_state.label}"
        return f"{self.transactional_id} (producer id {self.producer_id}, epoch {self.producer_epoch}, {self.state.label}{pending})"
