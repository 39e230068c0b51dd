"""Handles ReadShareGroupStateSummary (api 87), versions 0-1: tell where share partitions start, for descriptions (KIP-932)."""

from __future__ import annotations

from typing import Any

from ottla.broker.handlers.shares.state_requests import Results, answer_states
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import RequestContext
from ottla.coordination.shares.state.coordinator import Reply, StateResult
from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.protocol.messages.read_share_group_state_summary import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from ottla.protocol.schema.message import Message


async def handle_read_share_group_state_summary(request: ReadShareGroupStateSummaryRequest, context: RequestContext) -> Message | Answer:
    """Ask the coordinator for each share partition."""
    coordinator = context.broker.coordinators.shares

    def ask(key: SharePartitionKey, asked: PartitionData, reply: Reply) -> None:
        coordinator.summarize(key, reply)

    return await answer_states(request.group_id, request.topics, context, ask, _response)


def _response(results: Results) -> ReadShareGroupStateSummaryResponse:
    return ReadShareGroupStateSummaryResponse(
        results=[
            ReadStateSummaryResult(topic_id=topic_id, partitions=[_result(*each) for each in partitions])
            for topic_id, partitions in results
        ]
    )


def _result(asked: Any, result: StateResult) -> PartitionResult:
    return PartitionResult(
        partition=asked.partition,
        error_code=result.error,
        error_message=result.message,
        state_epoch=result.state_epoch,
        leader_epoch=result.leader_epoch,
        start_offset=result.start_offset,
        delivery_complete_count=result.complete_count,
    )
