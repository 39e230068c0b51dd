"""A broker that serves before the controller has told it of the cluster: who asks it for metadata waits until it was.

So do Metadata, DescribeCluster and DescribeTopicPartitions. FindCoordinator says COORDINATOR_NOT_AVAILABLE meanwhile, and is asked again.

An empty answer, or one that says that topics do not exist, is worse for a client than none. librdkafka (2.16) gives up every broker that
an answer leaves out; if it leaves out all of them, it may never look for one again. A topic that it has known for 30 s does not exist any
more when one answer says so, and what is produced to that fails. Apache Kafka answers what it knows.

A controller that takes over speaks of brokers first, and of partitions when this broker has dealt with its LeaderAndIsr: no topics are all
there is to know only if the metadata store has none, which `MissedDeletions` finds out after a controller's first word.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import iscoroutine
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar

from broker.network.request_channel import CLOSE

if TYPE_CHECKING:
    from broker.request.context import RequestContext
    from broker.request.services import Services

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")

WAIT_MS = 3_000
"""How long a request waits at most: clients give one up after some seconds, and with it all that they sent behind it."""


class FirstPicture:
    """Whether this broker was told of the cluster. Once it was, that stays true."""

    __slots__ = ("_is_there", "_services", "has_no_topics")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._is_there = False
        self.has_no_topics = False
        """Whether none existed, but those being deleted, after a controller had spoken."""

    @property
    def is_there(self) -> bool:
        """Whether there is something to say."""
        if not self._is_there:
            cluster = self._services.cluster
            self._is_there = bool(cluster.brokers) and (bool(cluster.topics) or self.has_no_topics)
        return self._is_there

    async def wait(self) -> bool:
        """Wait until it is there, at most WAIT_MS; whether it is.

        If no partition was given to this broker in that time either, the store could not say, or nobody leads what exists.
        """
        services = self._services
        if not await services.metadata_waits.until(lambda: self.is_there, WAIT_MS):
            self._is_there = bool(services.cluster.brokers) and not services.replica_manager.partitions
            if self._is_there:
                services.metadata_waits.notify()  # those that came later need not have the same patience
        return self._is_there


def after_first_picture(
    handler: Callable[[_Request, RequestContext], _Answer],
) -> Callable[[_Request, RequestContext], _Answer | Coroutine[Any, Any, Any]]:
    """A handler that answers from what the broker was told of the cluster: it is asked once there is something to say.

    If that takes too long the connection closes.
    """

    @wraps(handler)
    def handle(request: _Request, context: RequestContext) -> _Answer | Coroutine[Any, Any, Any]:
        return handler(request, context) if context.broker.first_picture.is_there else _later(handler, request, context)

    return handle


async def _later(handler: Callable[[_Request, RequestContext], Any], request: _Request, context: RequestContext) -> Any:
    if not await context.broker.first_picture.wait():
        return CLOSE
    answer = handler(request, context)
    if type(answer) is GeneratorType:
        answer = await context.broker.turns.spread(answer)
    return await answer if iscoroutine(answer) else answer
