"""Handles EndTxn (api 26), versions 0-4.

KIP-98; PRODUCER_FENCED from 2 (KIP-588), TRANSACTION_ABORTABLE from 4 (KIP-890).

The answer is sent when the outcome is stored. Markers are written afterwards.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.handlers.delayed_answer import DelayedAnswer
from ottla.broker.handlers.transactions.fencing import known_error
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import RequestContext
from ottla.broker.request.turns import Steps
from ottla.broker.transactions.metadata import ProducerIdAndEpoch
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.schema.message import Message


def handle_end_txn(request: EndTxnRequest, context: RequestContext) -> Message | Answer | Steps[Message]:
    """Commit or abort."""
    if not context.is_authorized(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    answer = DelayedAnswer(context)
    context.broker.coordinators.transactions.end(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        request.committed,
        partial(_complete, answer, context.api_version),
    )
    return answer.answer()


def _complete(answer: DelayedAnswer, version: int, error: ErrorCode) -> None:
    answer.complete(EndTxnResponse(error_code=known_error(error, version)))
