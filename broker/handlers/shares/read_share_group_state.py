"""Handles ReadShareGroupState (api 84), version 0: tell a new leader the state of its share partitions (KIP-932)."""

from __future__ import annotations

from typing import Any

from ottla.broker.handlers.shares.state_requests import Results, answer_states
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import RequestContext
from ottla.coordination.shares.state.coordinator import Reply, StateResult
from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.protocol.messages.read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from ottla.protocol.schema.message import Message


async def handle_read_share_group_state(request: ReadShareGroupStateRequest, context: RequestContext) -> Message | Answer:
    """Ask the coordinator for each share partition."""
    coordinator = context.broker.coordinators.shares

    def ask(key: SharePartitionKey, asked: PartitionData, reply: Reply) -> None:
        coordinator.read(key, asked.leader_epoch, reply)

    return await answer_states(request.group_id, request.topics, context, ask, _response)


def _response(results: Results) -> ReadShareGroupStateResponse:
    return ReadShareGroupStateResponse(
        results=[ReadStateResult(topic_id=topic_id, partitions=[_result(*each) for each in partitions]) for topic_id, partitions in results]
    )


def _result(asked: Any, result: StateResult) -> PartitionResult:
    return PartitionResult(
        partition=asked.partition,
        error_code=result.error,
        error_message=result.message,
        state_epoch=result.state_epoch,
        start_offset=result.start_offset,
        state_batches=[
            StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in result.batches
        ],
    )
