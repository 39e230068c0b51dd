"""Declares the effects of the state machine of a transactional id, in addition to `coordination.effects`."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ottla.coordination.partitions.effects import Arm, Disarm, Many, Reply
from ottla.coordination.transactions.metadata import TransitMetadata
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


class ProducerResult(NamedTuple):
    """The answer to InitProducerId, or to EndTxn: the producer id and epoch for the next transaction."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class AfterInit(NamedTuple):
    """A producer waits for its producer id and epoch."""

    waiter: object


class AfterAdd(NamedTuple):
    """A producer waits for its partitions to be in the transaction."""

    waiter: object


class AfterPrepare(NamedTuple):
    """Continues after the outcome is stored: the waiter gets the producer's next epoch."""

    waiter: object
    is_bumped: bool = False
    """Whether the epoch was bumped before (`prepare_fenced_abort`)."""


class AfterFence(NamedTuple):
    """Continues after an abort for a new instance of the producer is stored. The instance requests its producer id again."""

    waiter: object
    is_bumped: bool
    """See AfterPrepare."""


class AfterComplete(NamedTuple):
    """Continues after the end of the transaction is in the log of this broker. No request waits for it.

    If the record is lost with this broker, so are the records behind it, and the next coordinator finishes the transaction again.
    """


Completion: TypeAlias = AfterInit | AfterAdd | AfterPrepare | AfterFence | AfterComplete


class Store(NamedTuple):
    """Append the record of the transition, and call `on_stored` with `then` and the result once all in-sync replicas have it.

    See AfterComplete for the exception.
    """

    transit: TransitMetadata
    then: Completion


class SendMarkers(NamedTuple):
    """Write a marker to each partition of the transaction, and call `on_markers_written` after the last one.

    `completion` is stored then.
    """

    is_commit: bool
    completion: TransitMetadata


Effect: TypeAlias = Reply | Arm | Disarm | Store | SendMarkers | Many
