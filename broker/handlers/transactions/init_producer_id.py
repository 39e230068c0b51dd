"""Handles InitProducerId (api 22), versions 0-5.

Ids for idempotent and transactional producers (KIP-98); a producer may keep its id from 3 (KIP-360); PRODUCER_FENCED from 4 (KIP-588).

Apache Kafka answers COORDINATOR_LOAD_IN_PROGRESS while it has no block of producer ids. Here a request that needs a new producer id waits
for the block. A transactional id that keeps its producer id needs none, and does not depend on the controller.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.handlers.transactions.end_txn import known_error
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import DelayedAnswer, RequestContext
from ottla.coordination.transactions.coordinator import ProducerReply
from ottla.coordination.transactions.effects import ProducerResult
from ottla.coordination.transactions.metadata import ProducerIdAndEpoch
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.protocol.schema.message import Message

FIRST_VERSION_WITH_PRODUCER_FENCED = 4


def handle_init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> Message | Answer:
    """Give a producer id, or the next epoch of one."""
    refused = _refusal(request, context)
    if refused:
        return _response(ProducerResult(refused), context)
    broker = context.broker
    answer = DelayedAnswer(context)
    init = partial(_init, request, context, lambda result: answer.complete(_response(result, context)))
    transactional_id = request.transactional_id
    if transactional_id is None or broker.coordinators.transactions.needs_producer_id(transactional_id):
        broker.cluster.producer_ids.when_next(init)
    else:
        init()
    return answer.answer()


def _refusal(request: InitProducerIdRequest, context: RequestContext) -> ErrorCode:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not context.is_authorized(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not context.is_authorized(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, log_if_denied=False) and not context.access.may_on_any(
        Operation.WRITE, ResourceType.TOPIC
    ):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    is_half = (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH)
    return ErrorCode.INVALID_REQUEST if is_half else ErrorCode.NONE


def _init(request: InitProducerIdRequest, context: RequestContext, reply: ProducerReply) -> None:
    broker = context.broker
    if request.transactional_id is None:
        producer_id = broker.cluster.producer_ids.next_now()
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        reply(ProducerResult(error) if producer_id is None else ProducerResult(ErrorCode.NONE, producer_id, 0))
        return
    expected = None if request.producer_id == NO_PRODUCER_ID else ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    broker.coordinators.transactions.init_producer_id(request.transactional_id, request.transaction_timeout_ms, expected, reply)


def _response(result: ProducerResult, context: RequestContext) -> InitProducerIdResponse:
    error = known_error(result.error, context.api_version, FIRST_VERSION_WITH_PRODUCER_FENCED)
    return InitProducerIdResponse(error_code=error, producer_id=result.producer_id, producer_epoch=result.producer_epoch)
