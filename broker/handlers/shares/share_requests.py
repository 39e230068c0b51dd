"""Carries out what ShareFetch and ShareAcknowledge have in common: finding partitions, and acknowledging records in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from ottla.broker.handlers.data.partition_errors import partition_error
from ottla.broker.request.context import RequestContext
from ottla.coordination.shares.acknowledgements import Acknowledgements
from ottla.coordination.shares.sessions import Place
from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.replication.errors import ReplicationError
from ottla.replication.leader.partition import Partition
from ottla.storage.errors import StorageError

AT_ONCE: Final = 1000
"""Batches of acknowledgements that are joined between two pauses: half a millisecond."""


class Located(NamedTuple):
    """A partition that a member names. `partition` is the one that this broker leads, if there is no error."""

    error: ErrorCode
    name: str | None = None
    partition: Partition | None = None


def locate(place: Place, context: RequestContext) -> Located:
    """Find a partition that the member may read, and that this broker leads."""
    topic_id, index = place
    broker = context.broker
    name = broker.metadata.names_by_id.get(topic_id)
    if name is None:
        return Located(ErrorCode.UNKNOWN_TOPIC_ID)
    if not context.is_authorized(Operation.READ, ResourceType.TOPIC, name):
        return Located(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    if broker.metadata.partition(name, index) is None:
        return Located(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    try:
        partition = broker.data.replica_manager.partition_or_raise(name, index)
        partition.check_leader()
    except (StorageError, ReplicationError) as error:
        return Located(partition_error(error, broker.data), name)
    return Located(ErrorCode.NONE, name, partition)


async def acknowledged_in(topics: Iterable[Any]) -> dict[Place, Acknowledgements]:
    """The acknowledgements in a request, by partition."""
    found: dict[Place, Acknowledgements] = {}
    for topic in topics:
        for each in topic.partitions:
            await pause()
            left = iter(each.acknowledgement_batches)
            while some := list(islice(left, AT_ONCE)):
                place = topic.topic_id, each.partition_index
                if place not in found:
                    found[place] = Acknowledgements()
                found[place].add(some)
                await pause()
    return found


class Acknowledging:
    """Acknowledges records in many partitions, and calls `then` once with the error of each. It counts topics, their errors and records."""

    __slots__ = ("_context", "_left", "_names", "_then", "errors")

    def __init__(self, context: RequestContext, then: Callable[[dict[Place, ErrorCode]], object]) -> None:
        self.errors: dict[Place, ErrorCode] = {}
        self._context = context
        self._left = 1
        self._names: dict[Place, str] = {}
        self._then = then

    async def acknowledge(self, acknowledged: Mapping[Place, Acknowledgements], group_id: str, member_id: str, *, may_renew: bool) -> None:
        """Acknowledge records of all partitions."""
        for place, of_partition in acknowledged.items():
            self._acknowledge(place, of_partition, group_id, member_id, may_renew=may_renew)
            await pause()
        self._finish()

    def _acknowledge(self, place: Place, acknowledged: Acknowledgements, group_id: str, member_id: str, *, may_renew: bool) -> None:
        self.errors[place] = ErrorCode.NONE
        located = locate(place, self._context)
        if located.name is not None:
            self._names[place] = located.name
        error = located.error if acknowledged.is_valid(may_renew=may_renew) else ErrorCode.INVALID_REQUEST
        led = self._context.broker.coordinators.share_leader.led
        share_partition = None if error else led.find(SharePartitionKey(group_id, *place))
        if error or share_partition is None:
            self.errors[place] = error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        self._left += 1
        led.acknowledge(share_partition, member_id, acknowledged.batches, partial(self._on_acknowledged, place, acknowledged.counts))

    def _on_acknowledged(self, place: Place, counts: Mapping[int, int], error: ErrorCode) -> None:
        self.errors[place] = error
        if not error:
            self._context.broker.coordinators.share_leader.acknowledged.update(counts)
        self._finish()

    def _finish(self) -> None:
        """All partitions of the request were begun, or one of them is done."""
        self._left -= 1
        if not self._left:
            self._count()
            self._then(self.errors)

    def _count(self) -> None:
        stats = self._context.broker.data.replica_manager.topic_stats
        for name in set(self._names.values()):
            stats.of_any(name).share_acknowledgement_requests += 1
        for name in {name for place, name in self._names.items() if self.errors[place]}:
            stats.of_any(name).failed_share_acknowledgement_requests += 1
