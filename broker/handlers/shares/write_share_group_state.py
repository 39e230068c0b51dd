"""Handles WriteShareGroupState (api 85), versions 0-1: store the changes of share partitions (KIP-932)."""

from __future__ import annotations

from ottla.broker.handlers.shares.state_requests import AnswerTypes, answer_states
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import RequestContext
from ottla.coordination.shares.record_states import StateBatch
from ottla.coordination.shares.state.coordinator import StateWrite
from ottla.protocol.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from ottla.protocol.schema.message import Message

_TYPES = AnswerTypes(WriteShareGroupStateResponse, WriteStateResult, PartitionResult)


def _write(asked: PartitionData) -> StateWrite:
    batches = [StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in asked.state_batches]
    return StateWrite(asked.state_epoch, asked.leader_epoch, asked.start_offset, asked.delivery_complete_count, batches)


async def handle_write_share_group_state(request: WriteShareGroupStateRequest, context: RequestContext) -> Message | Answer:
    """Ask the coordinator for each share partition."""
    coordinator = context.broker.coordinators.shares
    return await answer_states(request, context, lambda key, asked, reply: coordinator.write(key, _write(asked), reply), _TYPES)
