"""Handles AddOffsetsToTxn (api 25), versions 0-4.

KIP-98; PRODUCER_FENCED from 2 (KIP-588), TRANSACTION_ABORTABLE from 4 (KIP-890).

The partition of `__consumer_offsets` that holds the group's offsets becomes part of the transaction.
"""

from __future__ import annotations

from ottla.broker.handlers.transactions.end_txn import known_error
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import DelayedAnswer, RequestContext
from ottla.coordination.internal_topics import GROUP_METADATA_TOPIC
from ottla.coordination.transactions.metadata import VERSION_0, ProducerIdAndEpoch
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.schema.message import Message


def handle_add_offsets_to_txn(request: AddOffsetsToTxnRequest, context: RequestContext) -> Message | Answer:
    """Add the group's partition."""
    if not context.is_authorized(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    broker = context.broker
    answer = DelayedAnswer(context)
    broker.coordinators.transactions.add_partitions(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        {GROUP_METADATA_TOPIC: frozenset((broker.coordinators.groups.partition_for(request.group_id),))},
        VERSION_0,
        lambda error: answer.complete(AddOffsetsToTxnResponse(error_code=known_error(error, context.api_version))),
    )
    return answer.answer()
