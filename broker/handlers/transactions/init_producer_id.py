"""InitProducerId (api 22), versions 0-5: an id of one's own for an idempotent producer (KIP-98), a producer may go on with its id from 3
(KIP-360), PRODUCER_FENCED from 4 (KIP-588).

There is no transaction coordinator here: a transactional id is checked as far as it can be, and then answered with
COORDINATOR_NOT_AVAILABLE. Apache Kafka answers COORDINATOR_LOAD_IN_PROGRESS while it has no block of producer ids; here the request waits
for the block.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.request.context import RequestContext
from broker.security.authorizer import Operation, ResourceType
from config.keys.transactions import TRANSACTION_MAX_TIMEOUT_MS
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


def handle_init_producer_id(
    request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Coroutine[Any, Any, InitProducerIdResponse]:
    """Give a producer id."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not context.is_authorized(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not context.is_authorized(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER) and not context.access.may_on_any(
        Operation.WRITE, ResourceType.TOPIC
    ):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        producer_id = context.broker.data.producer_ids.next_now()
        return _wait_for_block(context) if producer_id is None else InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    if not transactional_id:
        return _refused(ErrorCode.INVALID_REQUEST)
    if not 0 < request.transaction_timeout_ms <= context.broker.config[TRANSACTION_MAX_TIMEOUT_MS]:
        return _refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def _wait_for_block(context: RequestContext) -> InitProducerIdResponse:
    producer_id = await context.broker.data.producer_ids.next()
    if producer_id is None:
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)
