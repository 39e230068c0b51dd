"""Decides the effects of an event of a transactional id: the state machine of Apache Kafka's TransactionCoordinator, without I/O.

The input is an event and the time, the output is a list of effects. Refused requests change nothing. `coordinator` finds the id and carries
out the effects; `metadata` holds the values.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.coordination.partitions.effects import Reply
from ottla.coordination.transactions.effects import (
    AfterAdd,
    AfterComplete,
    AfterFence,
    AfterInit,
    AfterPrepare,
    Completion,
    Effect,
    ProducerResult,
    SendMarkers,
    Store,
)
from ottla.coordination.transactions.metadata import (
    FINISHED,
    PREPARED,
    IllegalTransition,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    TransitMetadata,
    is_exhausted,
    raises_epoch,
)
from ottla.coordination.transactions.partitions import Partitions, includes
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import NO_PRODUCER_EPOCH
from ottla.storage.producers.state import MAX_EPOCH

NewProducerId = Callable[[], int | None]
"""Returns an unused producer id, or None while there is none."""


def on_init_producer_id(
    txn: TransactionMetadata,
    waiter: object,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    level: int,
    new_producer_id: NewProducerId,
    now_ms: int,
) -> list[Effect]:
    """InitProducerId: a new instance of the producer, or the same one that continues after an error (`expected`, KIP-360).

    An open transaction is aborted first, and the producer retries. `level` is that of transaction.version.
    """
    error = ErrorCode.NONE
    transit: TransitMetadata | None = None
    if txn.pending_state is not None:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    elif expected is not None and not _may_go_on(txn, expected):
        error = ErrorCode.PRODUCER_FENCED
    elif txn.state in PREPARED:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    elif txn.state is TransactionState.ONGOING:
        error, transit = _fence(txn, level, new_producer_id, now_ms)
        if transit is not None:
            return [Store(transit, AfterFence(waiter, not raises_epoch(level)))]
    elif txn.state not in FINISHED:
        raise IllegalTransition(f"{txn}: no producer can be in this state")
    elif txn.is_epoch_exhausted:
        producer_id = None
        if expected is not None and expected.producer_epoch != txn.producer_epoch:
            error = ErrorCode.UNKNOWN_SERVER_ERROR  # no epoch is left to compare with
        elif (producer_id := new_producer_id()) is None:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        else:
            transit = txn.prepare_producer_id_rotation(producer_id, timeout_ms, now_ms, records_last_epoch=expected is not None)
    else:
        error, transit = txn.prepare_increment_epoch(timeout_ms, None if expected is None else expected.producer_epoch, now_ms)
    if transit is None:
        return [Reply(waiter, ProducerResult(error))]
    return [Store(transit, AfterInit(waiter))]


def _may_go_on(txn: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether a producer with this id may be the current one; its epoch is compared later. An exhausted epoch of the last producer id may
    come from a repeated request that has changed the producer id.
    """
    return (
        txn.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == txn.producer_id
        or (expected.producer_id == txn.previous_producer_id and is_exhausted(expected.producer_epoch))
    )


def on_add_partitions(
    txn: TransactionMetadata, waiter: object, producer: ProducerIdAndEpoch, partitions: Partitions, client_version: int, now_ms: int
) -> list[Effect]:
    """AddPartitionsToTxn, AddOffsetsToTxn. The waiter gets an error code."""
    error = _check_when_settled(txn, producer, client_version)
    if not error:
        if txn.pending_state is not None or txn.state in PREPARED:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif txn.state is not TransactionState.ONGOING or not includes(txn.partitions, partitions):
            return [Store(txn.prepare_add_partitions(partitions, now_ms, client_version), AfterAdd(waiter))]
    return [Reply(waiter, error)]


def must_wait(txn: TransactionMetadata, producer: ProducerIdAndEpoch, client_version: int) -> bool:
    """Whether the transaction of the producer, or its next one, cannot have more partitions before a transition in flight has ended."""
    if raises_epoch(client_version):
        return txn.pending_state is not None
    return txn.state in PREPARED and verify(txn, producer) == ErrorCode.CONCURRENT_TRANSACTIONS


def verify(txn: TransactionMetadata, producer: ProducerIdAndEpoch) -> ErrorCode:
    """Whether the partitions of the transaction may be written to by the producer (KIP-890).

    A pending transition does not matter: a partition belongs to the transaction from the time when the record that adds it is replicated,
    until its marker is written.
    """
    error = _check_producer(txn, producer)
    if not error and txn.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return error


def _check_producer(txn: TransactionMetadata, producer: ProducerIdAndEpoch) -> ErrorCode:
    producer_id, producer_epoch = producer
    if txn.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # No producer was given the largest epoch. A transaction of it could never be aborted.
    is_owner = txn.producer_epoch == producer_epoch != MAX_EPOCH
    return ErrorCode.NONE if is_owner else ErrorCode.PRODUCER_FENCED


def _check_when_settled(txn: TransactionMetadata, producer: ProducerIdAndEpoch, client_version: int) -> ErrorCode:
    """Like `_check_producer`. In version 2 the pending transition comes first: it may give the producer the epoch that it already has."""
    if txn.pending_state is not None and raises_epoch(client_version):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return _check_producer(txn, producer)


_OUTCOMES = {
    True: (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
    False: (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
}


def on_end(
    txn: TransactionMetadata,
    waiter: object,
    producer: ProducerIdAndEpoch,
    is_commit: bool,
    client_version: int,
    new_producer_id: NewProducerId,
    now_ms: int,
) -> list[Effect]:
    """EndTxn. The waiter gets a ProducerResult as soon as the outcome is replicated; markers follow.

    In version 2 the raised epoch shows which request came before, and a repeated one gets the same answer. A producer may also abort a
    transaction to which no partition was added yet: a late Produce cannot begin it afterwards.
    """
    in_version_2 = raises_epoch(client_version)
    is_repeated = in_version_2 and _is_repeated_end(txn, producer)
    error = ErrorCode.NONE if is_repeated and txn.pending_state is None else _check_when_settled(txn, producer, client_version)
    result: ProducerResult | None = None
    if not error:
        prepared, complete = _OUTCOMES[is_commit]
        is_empty_abort = in_version_2 and not is_commit and not is_repeated and txn.state in FINISHED
        if txn.pending_state is not None:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif txn.state is TransactionState.ONGOING or is_empty_abort:
            error, transit = _prepare_end(txn, prepared, client_version, new_producer_id, now_ms)
            if transit is not None:
                return [Store(transit, AfterPrepare(waiter))]
        elif txn.state is prepared:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif txn.state is complete and is_repeated is in_version_2:
            result = ProducerResult(ErrorCode.NONE, txn.producer_id, txn.producer_epoch)
        else:
            error = ErrorCode.INVALID_TXN_STATE
    return [Reply(waiter, result or ProducerResult(error))]


def _is_repeated_end(txn: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """Whether the producer has the epoch, or the exhausted producer id, that an EndTxn of version 2 has replaced."""
    if txn.state is TransactionState.ONGOING or txn.state is TransactionState.EMPTY:
        return False
    producer_id, producer_epoch = producer
    if txn.producer_id == producer_id and txn.producer_epoch == producer_epoch + 1:
        return True
    return txn.previous_producer_id == producer_id and producer_epoch == MAX_EPOCH - 1 and txn.producer_epoch == 0


def _prepare_end(
    txn: TransactionMetadata, state: TransactionState, client_version: int, new_producer_id: NewProducerId, now_ms: int
) -> tuple[ErrorCode, TransitMetadata | None]:
    if not raises_epoch(client_version) or not txn.is_epoch_exhausted:
        return ErrorCode.NONE, txn.prepare_abort_or_commit(state, now_ms, client_version)
    next_producer_id = new_producer_id()
    if next_producer_id is None:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
    return ErrorCode.NONE, txn.prepare_abort_or_commit(state, now_ms, client_version, next_producer_id)


def _fence(txn: TransactionMetadata, level: int, new_producer_id: NewProducerId, now_ms: int) -> tuple[ErrorCode, TransitMetadata | None]:
    """Abort the transaction for the coordinator's own reasons, in the version of the level."""
    if raises_epoch(level):
        return _prepare_end(txn, TransactionState.PREPARE_ABORT, level, new_producer_id, now_ms)
    return ErrorCode.NONE, txn.prepare_fenced_abort(now_ms)


def on_timeout(txn: TransactionMetadata, waiter: object, level: int, new_producer_id: NewProducerId, now_ms: int) -> list[Effect]:
    """Abort the transaction if it has been open for too long. In this case the waiter gets a ProducerResult."""
    if not txn.is_timed_out(now_ms):
        return []
    error, transit = _fence(txn, level, new_producer_id, now_ms)
    if transit is None:
        return [Reply(waiter, ProducerResult(error))]
    return [Store(transit, AfterPrepare(waiter, not raises_epoch(level)))]


def on_stored(txn: TransactionMetadata, transit: TransitMetadata, then: Completion, error: ErrorCode, now_ms: int) -> list[Effect]:
    """The record of a transition is stored (`effects.Store`), or was not. `error` is the error code for clients."""
    if not error:
        txn.complete_transition(transit)
    elif not isinstance(then, AfterComplete):
        txn.give_up_transition()
    if isinstance(then, AfterInit):
        result = ProducerResult(error) if error else ProducerResult(error, transit.producer_id, transit.producer_epoch)
        return [Reply(then.waiter, result)]
    if isinstance(then, AfterAdd):
        return [Reply(then.waiter, error)]
    if isinstance(then, AfterComplete):
        return []
    if error:
        if then.is_bumped:
            txn.has_failed_epoch_fence = True
        return [Reply(then.waiter, ProducerResult(error))]
    markers = _markers(txn, now_ms)
    if isinstance(then, AfterFence):
        result = ProducerResult(ErrorCode.CONCURRENT_TRANSACTIONS)
    else:
        result = ProducerResult(ErrorCode.NONE, markers.completion.producer_id, markers.completion.producer_epoch)
    return [Reply(then.waiter, result), markers]


def on_loaded(txn: TransactionMetadata, now_ms: int) -> list[Effect]:
    """The id was loaded from the log. Its former coordinator may not have written all markers."""
    return [_markers(txn, now_ms)] if txn.state in PREPARED else []


def on_markers_written(completion: TransitMetadata) -> list[Effect]:
    """Every partition of the transaction has its marker."""
    return [Store(completion, AfterComplete())]


def _markers(txn: TransactionMetadata, now_ms: int) -> SendMarkers:
    is_commit = txn.state is TransactionState.PREPARE_COMMIT
    return SendMarkers(is_commit, txn.prepare_complete(now_ms))
