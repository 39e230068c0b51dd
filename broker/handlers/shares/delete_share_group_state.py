"""Handles DeleteShareGroupState (api 86), version 0: forget the state of share partitions (KIP-932)."""

from __future__ import annotations

from ottla.broker.handlers.shares.state_requests import AnswerTypes, answer_states
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import RequestContext
from ottla.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)
from ottla.protocol.schema.message import Message

_TYPES = AnswerTypes(DeleteShareGroupStateResponse, DeleteStateResult, PartitionResult)


async def handle_delete_share_group_state(request: DeleteShareGroupStateRequest, context: RequestContext) -> Message | Answer:
    """Ask the coordinator for each share partition."""
    coordinator = context.broker.coordinators.shares
    return await answer_states(request, context, lambda key, _, reply: coordinator.delete(key, reply), _TYPES)
