"""Handles InitializeShareGroupState (api 83), version 0: begin the state of share partitions anew (KIP-932)."""

from __future__ import annotations

from ottla.broker.handlers.shares.state_requests import AnswerTypes, answer_states
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import RequestContext
from ottla.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)
from ottla.protocol.schema.message import Message

_TYPES = AnswerTypes(InitializeShareGroupStateResponse, InitializeStateResult, PartitionResult)


async def handle_initialize_share_group_state(request: InitializeShareGroupStateRequest, context: RequestContext) -> Message | Answer:
    """Ask the coordinator for each share partition."""
    initialize = context.broker.coordinators.shares.initialize
    return await answer_states(
        request, context, lambda key, asked, reply: initialize(key, asked.state_epoch, asked.start_offset, reply), _TYPES
    )
