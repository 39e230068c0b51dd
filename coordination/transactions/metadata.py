"""Holds the state of one transactional id, and prepares and completes its transitions. Kafka's TransactionMetadata.

A transition has two steps. `prepare_*` returns the new values, and marks the id as pending. `complete_transition` applies the values when
they are stored (`effects.Store`). While a transition is pending, no other is prepared. `state` decides which transition follows an event.

The end of a transaction of version 2 raises the producer epoch (KIP-890 part 2). So a late request of the ended transaction is refused. The
outcome has the raised epoch, and so have the markers. If no epoch is left for the producer, the outcome also names the next producer id,
which the end of the transaction puts into use with epoch 0. The version is that of the request that began or ended the transaction: clients
of both versions may share a coordinator, and a client may change its version after any transaction.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, final

from ottla.coordination.transactions.partitions import NO_PARTITIONS, Partitions, difference, includes, union
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.storage.producers.state import MAX_EPOCH

if TYPE_CHECKING:
    from ottla.replication.waiting.timing_wheel import TimerTask

NO_TIMESTAMP: Final = -1
VERSION_0: Final = 0
"""The version of a client that adds partitions by requests of its own."""
VERSION_2: Final = 2
"""The version of a client whose partitions are added by Produce and TxnOffsetCommit, and whose epoch each EndTxn raises."""


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
    _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.PREPARE_EPOCH_FENCE, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
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
    previous_producer_id: int
    """The producer id before the transition, with which a producer may repeat the request that changed it."""
    producer_epoch: int
    last_producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: Partitions
    start_ms: int
    last_update_ms: int
    next_producer_id: int = NO_PRODUCER_ID
    """In an outcome, the producer id that replaces the present one, whose epochs are used up; -1 otherwise."""
    client_version: int = VERSION_0
    """The version of the transaction, that of its client."""


def raises_epoch(client_version: int) -> bool:
    """Whether the end of a transaction of this version raises the producer epoch."""
    return client_version >= VERSION_2


def is_exhausted(producer_epoch: int) -> bool:
    """Whether the next epoch would be the one that only fences."""
    return producer_epoch >= MAX_EPOCH - 1


@final
class TransactionMetadata:
    """See the module. Times are Unix time, ms; `start_ms` is -1 before the first transaction."""

    __slots__ = (
        "client_version",
        "has_failed_epoch_fence",
        "last_producer_epoch",
        "last_update_ms",
        "next_producer_id",
        "partitions",
        "pending_state",
        "previous_producer_id",
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
        previous_producer_id: int = NO_PRODUCER_ID,
        next_producer_id: int = NO_PRODUCER_ID,
        client_version: int = VERSION_0,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.previous_producer_id = previous_producer_id
        self.next_producer_id = next_producer_id
        self.producer_epoch = producer_epoch
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        self.timeout_ms = timeout_ms
        self.state = state
        self.partitions = partitions
        """The partitions of the transaction; while markers are written, those that still lack one."""
        self.start_ms = start_ms
        self.last_update_ms = last_update_ms
        self.client_version = client_version
        """The version of the last transaction."""
        self.pending_state: TransactionState | None = None
        self.has_failed_epoch_fence = False
        """Whether a bumped epoch may be missing in the log. No client has it, so the next fence does not bump it again."""

    @property
    def timers(self) -> dict[Hashable, TimerTask]:
        """None: timeouts are checked periodically (`expiration`), as by Apache Kafka."""
        return {}

    @property
    def is_dead(self) -> bool:
        """Whether the id is being removed."""
        return self.pending_state is TransactionState.DEAD

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the next producer needs another producer id."""
        return is_exhausted(self.producer_epoch)

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
        return ErrorCode.NONE, self._prepare_empty(self.producer_id, epoch, last_epoch, timeout_ms, now_ms)

    def prepare_producer_id_rotation(self, producer_id: int, timeout_ms: int, now_ms: int, *, records_last_epoch: bool) -> TransitMetadata:
        """Another producer id, whose epochs begin at 0."""
        last_epoch = self.producer_epoch if records_last_epoch else NO_PRODUCER_EPOCH
        return self._prepare_empty(producer_id, 0, last_epoch, timeout_ms, now_ms)

    def _prepare_empty(
        self, producer_id: int, producer_epoch: int, last_producer_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransitMetadata:
        return self._prepare(
            TransactionState.EMPTY,
            producer_id,
            producer_epoch,
            last_producer_epoch,
            timeout_ms,
            NO_PARTITIONS,
            NO_TIMESTAMP,
            now_ms,
            self.next_producer_id,
            self.client_version,
        )

    def prepare_add_partitions(self, added: Partitions, now_ms: int, client_version: int) -> TransitMetadata:
        """More partitions; the first ones begin a transaction."""
        return self._prepare(
            TransactionState.ONGOING,
            self.producer_id,
            self.producer_epoch,
            self.last_producer_epoch,
            self.timeout_ms,
            union(self.partitions, added),
            now_ms if self.state in FINISHED else self.start_ms,
            now_ms,
            self.next_producer_id,
            client_version,
        )

    def prepare_abort_or_commit(
        self, state: TransactionState, now_ms: int, client_version: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> TransitMetadata:
        """The outcome of the transaction: PREPARE_COMMIT or PREPARE_ABORT. In version 2 a transaction without partitions may be aborted."""
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if raises_epoch(client_version):
            last_epoch = epoch
            # Only a failed fence of version 0 leaves the largest epoch. It has none above it, and the abort ends its use.
            if epoch < MAX_EPOCH or state is TransactionState.PREPARE_COMMIT:
                epoch += 1
        return self._prepare(
            state,
            self.producer_id,
            epoch,
            last_epoch,
            self.timeout_ms,
            self.partitions,
            now_ms if self.state in FINISHED else self.start_ms,
            now_ms,
            next_producer_id,
            client_version,
        )

    def prepare_fenced_abort(self, now_ms: int) -> TransitMetadata:
        """An abort of version 0 that fences the producer: its epoch is bumped at once, so its requests are refused from now on.

        Raises IllegalTransition at the largest epoch, which no producer has.
        """
        if not self.has_failed_epoch_fence:
            if self.producer_epoch == MAX_EPOCH:
                raise IllegalTransition(f"{self}: its epoch cannot be bumped")
            self.producer_epoch += 1
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        return self.prepare_abort_or_commit(TransactionState.PREPARE_ABORT, now_ms, VERSION_0)

    def prepare_complete(self, now_ms: int) -> TransitMetadata:
        """The end of the transaction, to be stored when all partitions have their markers."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        self.has_failed_epoch_fence = False
        producer_id, epoch = self.producer_id, self.producer_epoch
        if self.next_producer_id != NO_PRODUCER_ID and raises_epoch(self.client_version):
            producer_id, epoch = self.next_producer_id, 0
        return self._prepare(
            TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            producer_id,
            epoch,
            self.last_producer_epoch,
            self.timeout_ms,
            NO_PARTITIONS,
            self.start_ms,
            now_ms,
            NO_PRODUCER_ID,
            self.client_version,
        )

    def prepare_dead(self) -> None:
        """The id expires."""
        self._check_previous(TransactionState.DEAD)
        self.pending_state = TransactionState.DEAD

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
        next_producer_id: int,
        client_version: int,
    ) -> TransitMetadata:
        self._check_previous(state)
        if producer_id < 0 or producer_epoch < 0:
            raise IllegalTransition(f"{self}: producer id {producer_id}, epoch {producer_epoch} cannot follow")
        self.pending_state = state
        return TransitMetadata(
            producer_id,
            self.producer_id,
            producer_epoch,
            last_producer_epoch,
            timeout_ms,
            state,
            partitions,
            start_ms,
            now_ms,
            next_producer_id,
            client_version,
        )

    def _check_previous(self, state: TransactionState) -> None:
        if self.pending_state is not None or self.state not in PREVIOUS_STATES[state]:
            raise IllegalTransition(f"{self}: {state.label} cannot follow")

    # -- second halves -----------------------------------------------------------------------------------------------------

    def complete_transition(self, transit: TransitMetadata) -> None:
        """The transition that is pending is in the log. Raises IllegalTransition if it is another one."""
        state = transit.state
        if self.pending_state is not state or not self._may_become(transit):
            raise IllegalTransition(f"{self}: {transit} cannot be completed")
        self.producer_id = transit.producer_id
        self.previous_producer_id = transit.previous_producer_id
        self.next_producer_id = transit.next_producer_id
        self.producer_epoch = transit.producer_epoch
        self.last_producer_epoch = transit.last_producer_epoch
        self.timeout_ms = transit.timeout_ms
        if state not in PREPARED:  # an outcome leaves the partitions as they are
            self.partitions = transit.partitions
        self.start_ms = transit.start_ms
        self.last_update_ms = transit.last_update_ms
        self.client_version = transit.client_version
        self.pending_state = None
        self.state = state

    def _may_become(self, transit: TransitMetadata) -> bool:
        state = transit.state
        if state is TransactionState.EMPTY:
            is_bump = transit.producer_epoch == self.producer_epoch + 1 or (
                transit.producer_epoch == 0 and transit.producer_id != self.producer_id
            )
            return is_bump or transit.producer_epoch == self.producer_epoch
        if not self._keeps_producer(transit) or transit.timeout_ms != self.timeout_ms:
            return False
        if state is TransactionState.ONGOING:
            return includes(transit.partitions, self.partitions)
        if state in PREPARED:
            return transit.partitions == self.partitions and (transit.start_ms == self.start_ms or self.state in FINISHED)
        return transit.start_ms != NO_TIMESTAMP

    def _keeps_producer(self, transit: TransitMetadata) -> bool:
        """Whether the transition has the producer of this id, or the one that follows it in version 2."""
        if raises_epoch(transit.client_version):
            if transit.state in PREPARED:
                return transit.producer_id == self.producer_id and transit.last_producer_epoch == self.producer_epoch
            if transit.state is not TransactionState.ONGOING and transit.producer_epoch == 0:
                return transit.previous_producer_id == self.producer_id and transit.last_producer_epoch == self.last_producer_epoch
        return transit.producer_id == self.producer_id and transit.producer_epoch == self.producer_epoch

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
