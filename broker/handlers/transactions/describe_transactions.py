"""Handles DescribeTransactions (api 65), version 0.

KIP-664: the coordinator gives state, timeout, age and partitions of transactional ids.
"""

from __future__ import annotations

from ottla.broker.request.context import RequestContext
from ottla.broker.request.repeats import Repeats
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


async def handle_describe_transactions(request: DescribeTransactionsRequest, context: RequestContext) -> DescribeTransactionsResponse:
    """Describe each id that is coordinated here. Topics that the client may not describe are left out."""
    response = DescribeTransactionsResponse()
    repeats = Repeats(context)
    for transactional_id in request.transactional_ids:
        if repeats.are_too_many(transactional_id):
            described = TransactionState(transactional_id=transactional_id, error_code=ErrorCode.INVALID_REQUEST)
        else:
            described = await _describe(transactional_id, context)
        response.transaction_states.append(described)
        await pause()
    return response


async def _describe(transactional_id: str, context: RequestContext) -> TransactionState:
    described = TransactionState(transactional_id=transactional_id)
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        described.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return described
    error, txn = context.broker.coordinators.transactions.describe(transactional_id)
    if txn is None:
        described.error_code = error
        return described
    described.producer_id = txn.producer_id
    described.producer_epoch = txn.producer_epoch
    described.transaction_state = txn.state.label
    described.transaction_timeout_ms = txn.timeout_ms
    described.transaction_start_time_ms = txn.start_ms
    for topic, indexes in txn.partitions.items():
        if context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            described.topics.append(TopicData(topic=topic, partitions=sorted(indexes)))
            await pause()
    return described
