"""Answers the requests between brokers about the state of share partitions (KIP-932): each has many partitions, with a result for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import starmap
from typing import Any, NamedTuple, TypeAlias

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

_Results: TypeAlias = list[tuple[bytes, list[tuple[Any, StateResult]]]]
"""By topic id, the partitions of the request and their results."""


class AnswerTypes(NamedTuple):
    """The structures of the response to one of the requests."""

    response: Callable[..., Message]
    topic: Callable[..., Any]
    partition: Callable[..., Any]
    more: Callable[[StateResult], dict[str, Any]] = lambda _: {}
    """Fields of a partition besides its number and its error."""

    def respond(self, results: _Results) -> Message:
        """The response with these results."""
        return self.response(
            results=[self.topic(topic_id=topic_id, partitions=list(starmap(self._partition, each))) for topic_id, each in results]
        )

    def _partition(self, asked: Any, result: StateResult) -> Any:
        return self.partition(partition=asked.partition, error_code=result.error, error_message=result.message, **self.more(result))


async def answer_states(request: Any, context: RequestContext, ask: Ask, types: AnswerTypes) -> Message | Answer:
    """Ask for each partition, and respond when all results are there."""
    is_authorized = context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    if is_authorized and not request.group_id:
        return types.respond([])
    gathered = _Gathered(request.topics, DelayedAnswer(context), types.respond)
    for topic, results in zip(request.topics, gathered.results, strict=True):
        for at, asked in enumerate(topic.partitions):
            reply = partial(gathered.on_result, results[1], at, asked)
            if is_authorized:
                ask(SharePartitionKey(request.group_id, topic.topic_id, asked.partition), asked, reply)
            else:
                reply(refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            await pause()
    answer = gathered.answer.answer()
    if isinstance(answer, Pending):
        return answer
    return types.respond(gathered.results)


class _Gathered:
    """The results of one request so far."""

    __slots__ = ("_left", "_respond", "answer", "results")

    def __init__(self, topics: Sequence[Any], answer: DelayedAnswer, respond: Callable[[_Results], Message]) -> None:
        self.results: _Results = [(topic.topic_id, [(None, StateResult())] * len(topic.partitions)) for topic in topics]
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
