"""Handles ReadShareGroupStateSummary (api 87), versions 0-1: tell where share partitions start, for descriptions (KIP-932)."""

from __future__ import annotations

from typing import Any

from ottla.broker.handlers.shares.state_requests import AnswerTypes, answer_states
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import RequestContext
from ottla.coordination.shares.state.coordinator import StateResult
from ottla.protocol.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from ottla.protocol.schema.message import Message


def _summary(result: StateResult) -> dict[str, Any]:
    return {
        "state_epoch": result.state_epoch,
        "leader_epoch": result.leader_epoch,
        "start_offset": result.start_offset,
        "delivery_complete_count": result.complete_count,
    }


_TYPES = AnswerTypes(ReadShareGroupStateSummaryResponse, ReadStateSummaryResult, PartitionResult, _summary)


async def handle_read_share_group_state_summary(request: ReadShareGroupStateSummaryRequest, context: RequestContext) -> Message | Answer:
    """Ask the coordinator for each share partition."""
    coordinator = context.broker.coordinators.shares
    return await answer_states(request, context, lambda key, _, reply: coordinator.summarize(key, reply), _TYPES)
