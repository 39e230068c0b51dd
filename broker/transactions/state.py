"""Decides the effects of an event of a transactional id: the state machine of Apache Kafka's TransactionCoordinator, without I/O.

The input is an event and the time, the output is a list of effects. Refused requests change nothing. `coordinator` finds the id and carries
out the effects; `metadata` holds the values.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.coordination.effects import Reply
from ottla.broker.transactions.effects import (
    AfterAdd,
    AfterComplete,
    AfterFence,
    AfterInit,
    AfterPrepare,
    Completion,
    Effect,
    InitProducerIdResult,
    SendMarkers,
    Store,
)
from ottla.broker.transactions.metadata import (
    FINISHED,
    MAX_EPOCH,
    PREPARED,
    IllegalTransition,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    TransitMetadata,
    is_epoch_exhausted,
)
from ottla.broker.transactions.partitions import Partitions, includes
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import NO_PRODUCER_EPOCH

NewProducerId = Callable[[], int | None]
"""Returns an unused producer id, or None while there is none."""


def on_init_producer_id(
    txn: TransactionMetadata,
    waiter: object,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    new_producer_id: NewProducerId,
    now_ms: int,
) -> list[Effect]:
    """InitProducerId: a new instance of the producer, or the same one that continues after an error (`expected`, KIP-360).

    An open transaction is aborted first, and the producer retries.
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
        return [Store(txn.prepare_fenced_abort(now_ms), AfterFence(waiter))]
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
        return [Reply(waiter, InitProducerIdResult(error))]
    return [Store(transit, AfterInit(waiter))]


def _may_go_on(txn: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether a producer with this id may be the current one; its epoch is compared later. An exhausted epoch of the last producer id may
    come from a repeated request that has changed the producer id.
    """
    return (
        txn.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == txn.producer_id
        or (expected.producer_id == txn.last_producer_id and is_epoch_exhausted(expected.producer_epoch))
    )


def on_add_partitions(
    txn: TransactionMetadata, waiter: object, producer: ProducerIdAndEpoch, partitions: Partitions, now_ms: int
) -> list[Effect]:
    """AddPartitionsToTxn, AddOffsetsToTxn. The waiter gets an error code."""
    error = _check_producer(txn, producer)
    if not error:
        if txn.pending_state is not None or txn.state in PREPARED:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif txn.state is not TransactionState.ONGOING or not includes(txn.partitions, partitions):
            return [Store(txn.prepare_add_partitions(partitions, now_ms), AfterAdd(waiter))]
    return [Reply(waiter, error)]


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


_OUTCOMES = {
    True: (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
    False: (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
}


def on_end(txn: TransactionMetadata, waiter: object, producer: ProducerIdAndEpoch, is_commit: bool, now_ms: int) -> list[Effect]:
    """EndTxn. The waiter gets an error code as soon as the outcome is replicated; markers follow."""
    error = _check_producer(txn, producer)
    if not error:
        prepared, complete = _OUTCOMES[is_commit]
        if txn.pending_state is not None:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif txn.state is TransactionState.ONGOING:
            return [Store(txn.prepare_abort_or_commit(prepared, now_ms), AfterPrepare(waiter))]
        elif txn.state is prepared:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif txn.state is not complete:
            error = ErrorCode.INVALID_TXN_STATE
    return [Reply(waiter, error)]


def on_timeout(txn: TransactionMetadata, waiter: object, now_ms: int) -> list[Effect]:
    """Abort the transaction if it has been open for too long. In this case the waiter gets an error code."""
    if not txn.is_timed_out(now_ms):
        return []
    return [Store(txn.prepare_fenced_abort(now_ms), AfterPrepare(waiter, is_fence=True))]


def on_stored(txn: TransactionMetadata, transit: TransitMetadata, then: Completion, error: ErrorCode, now_ms: int) -> list[Effect]:
    """The record of a transition is stored (`effects.Store`), or was not. `error` is the error code for clients."""
    if not error:
        txn.complete_transition(transit)
    elif not isinstance(then, AfterComplete):
        txn.give_up_transition()
    if isinstance(then, AfterInit):
        result = InitProducerIdResult(error) if error else InitProducerIdResult(error, transit.producer_id, transit.producer_epoch)
        return [Reply(then.waiter, result)]
    if isinstance(then, AfterAdd):
        return [Reply(then.waiter, error)]
    if isinstance(then, AfterComplete):
        return []
    if isinstance(then, AfterFence):
        reply = Reply(then.waiter, InitProducerIdResult(error or ErrorCode.CONCURRENT_TRANSACTIONS))
    else:
        reply = Reply(then.waiter, error)
    if not error:
        return [reply, _markers(txn, now_ms)]
    if isinstance(then, AfterFence) or then.is_fence:
        txn.has_failed_epoch_fence = True
    return [reply]


def on_loaded(txn: TransactionMetadata, now_ms: int) -> list[Effect]:
    """The id was loaded from the log. Its former coordinator may not have written all markers."""
    return [_markers(txn, now_ms)] if txn.state in PREPARED else []


def on_markers_written(completion: TransitMetadata) -> list[Effect]:
    """Every partition of the transaction has its marker."""
    return [Store(completion, AfterComplete())]


def _markers(txn: TransactionMetadata, now_ms: int) -> SendMarkers:
    is_commit = txn.state is TransactionState.PREPARE_COMMIT
    return SendMarkers(is_commit, txn.prepare_complete(now_ms))
