"""Handles InitializeShareGroupState (api 83), version 0: begin the state of share partitions anew (KIP-932)."""

from __future__ import annotations

from typing import Any

from ottla.broker.handlers.shares.state_requests import Results, answer_states
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import RequestContext
from ottla.coordination.shares.state.coordinator import Reply, StateResult
from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionData,
    PartitionResult,
)
from ottla.protocol.schema.message import Message


async def handle_initialize_share_group_state(request: InitializeShareGroupStateRequest, context: RequestContext) -> Message | Answer:
    """Ask the coordinator for each share partition."""
    coordinator = context.broker.coordinators.shares

    def ask(key: SharePartitionKey, asked: PartitionData, reply: Reply) -> None:
        coordinator.initialize(key, asked.state_epoch, asked.start_offset, reply)

    return await answer_states(request.group_id, request.topics, context, ask, _response)


def _response(results: Results) -> InitializeShareGroupStateResponse:
    return InitializeShareGroupStateResponse(
        results=[
            InitializeStateResult(topic_id=topic_id, partitions=[_result(*each) for each in partitions]) for topic_id, partitions in results
        ]
    )


def _result(asked: Any, result: StateResult) -> PartitionResult:
    return PartitionResult(
        partition=asked.partition,
        error_code=result.error,
        error_message=result.message,
    )
