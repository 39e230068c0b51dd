"""Handles ReadShareGroupState (api 84), version 0: tell a new leader the state of its share partitions (KIP-932)."""

from __future__ import annotations

from typing import Any

from ottla.broker.handlers.shares.state_requests import AnswerTypes, answer_states
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import RequestContext
from ottla.coordination.shares.state.coordinator import StateResult
from ottla.protocol.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from ottla.protocol.schema.message import Message


def _state(result: StateResult) -> dict[str, Any]:
    batches = [
        StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in result.batches
    ]
    return {"state_epoch": result.state_epoch, "start_offset": result.start_offset, "state_batches": batches}


_TYPES = AnswerTypes(ReadShareGroupStateResponse, ReadStateResult, PartitionResult, _state)


async def handle_read_share_group_state(request: ReadShareGroupStateRequest, context: RequestContext) -> Message | Answer:
    """Ask the coordinator for each share partition."""
    coordinator = context.broker.coordinators.shares
    return await answer_states(request, context, lambda key, asked, reply: coordinator.read(key, asked.leader_epoch, reply), _TYPES)
