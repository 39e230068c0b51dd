"""Handles EndTxn (api 26), versions 0-5.

KIP-98; PRODUCER_FENCED from 2 (KIP-588), TRANSACTION_ABORTABLE from 4, transactions of version 2 from 5 (KIP-890).

The answer is sent when the outcome is stored. Markers are written afterwards. Version 5 raises the epoch of the producer, and answers the
producer id and epoch for the next transaction.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import DelayedAnswer, RequestContext
from ottla.coordination.transactions.effects import ProducerResult
from ottla.coordination.transactions.metadata import VERSION_0, VERSION_2, ProducerIdAndEpoch
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.schema.message import Message

FIRST_VERSION_THAT_RAISES_EPOCHS = 5
FIRST_VERSION_WITH_PRODUCER_FENCED = 2
"""The version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn that knows PRODUCER_FENCED (KIP-588)."""


def known_error(error: ErrorCode, version: int, since: int = FIRST_VERSION_WITH_PRODUCER_FENCED) -> ErrorCode:
    """The error code for a producer whose request has this version, and knows PRODUCER_FENCED from the version `since` on."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error == ErrorCode.PRODUCER_FENCED and version < since else error


def handle_end_txn(request: EndTxnRequest, context: RequestContext) -> Message | Answer:
    """Commit or abort."""
    if not context.is_authorized(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    answer = DelayedAnswer(context)
    broker = context.broker
    transactions = broker.coordinators.transactions
    transactional_id, producer = request.transactional_id, ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    client_version = VERSION_2 if context.api_version >= FIRST_VERSION_THAT_RAISES_EPOCHS else VERSION_0
    reply = partial(_complete, answer, context.api_version)
    end = partial(transactions.end, transactional_id, producer, request.committed, client_version, reply)
    if client_version and transactions.needs_producer_id(transactional_id):
        broker.cluster.producer_ids.when_next(end)
    else:
        end()
    return answer.answer()


def _complete(answer: DelayedAnswer, version: int, result: ProducerResult) -> None:
    response = EndTxnResponse(error_code=known_error(result.error, version))
    if version >= FIRST_VERSION_THAT_RAISES_EPOCHS:
        response.producer_id, response.producer_epoch = result.producer_id, result.producer_epoch
    answer.complete(response)
