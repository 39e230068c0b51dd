"""Answers the requests between brokers about the state of share partitions (KIP-932): each has many partitions, with a result for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from ottla.broker.network.request_channel import Answer, Pending
from ottla.broker.request.context import DelayedAnswer, RequestContext
from ottla.coordination.shares.state.coordinator import Reply, StateResult, refused
from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema.message import Message

Ask: TypeAlias = Callable[[SharePartitionKey, Any, Reply], None]
"""Asks the coordinator for a result, with the key and the partition of the request."""

Results: TypeAlias = list[tuple[bytes, list[tuple[Any, StateResult]]]]
"""By topic id, the partitions of the request and their results."""

Respond: TypeAlias = Callable[[Results], Message]


async def answer_states(group_id: str, topics: Sequence[Any], context: RequestContext, ask: Ask, respond: Respond) -> Message | Answer:
    """Ask for each partition, and respond when all results are there."""
    is_authorized = context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    if is_authorized and not group_id:
        return respond([])
    gathered = _Gathered(topics, DelayedAnswer(context), respond)
    for topic, results in zip(topics, gathered.results, strict=True):
        for at, asked in enumerate(topic.partitions):
            reply = partial(gathered.on_result, results[1], at, asked)
            if is_authorized:
                ask(SharePartitionKey(group_id, topic.topic_id, asked.partition), asked, reply)
            else:
                reply(refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            await pause()
    answer = gathered.answer.answer()
    if isinstance(answer, Pending):
        return answer
    return respond(gathered.results)


class _Gathered:
    """The results of one request so far."""

    __slots__ = ("_left", "_respond", "answer", "results")

    def __init__(self, topics: Sequence[Any], answer: DelayedAnswer, respond: Respond) -> None:
        self.results: Results = [(topic.topic_id, [(None, StateResult())] * len(topic.partitions)) for topic in topics]
        self.answer = answer
        self._respond = respond
        self._left = sum(len(topic.partitions) for topic in topics)
        if not self._left:
            answer.complete(respond(self.results))

    def on_result(self, results: list[tuple[Any, StateResult]], at: int, asked: object, result: StateResult) -> None:
        """The result of one partition."""
        results[at] = asked, result
        self._left -= 1
        if not self._left:
            self.answer.complete(self._respond(self.results))
