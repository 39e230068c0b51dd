"""Takes the inventory of a cluster: the disks and versions of its brokers, and the sizes of its topics.

One request to each broker gives its log directories with all replicas, so the whole inventory costs as much as a part of it. A value is
None if no broker reports it: it is unknown, and not zero. Answers that cost the brokers as much are kept for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ottla.client.cluster import NO_LEADER, Cluster
from ottla.client.config_admin import ConfigResourceType
from ottla.client.connection import AnyResponse, Connection
from ottla.client.errors import ClientError, ConnectionLost, Refused
from ottla.client.offsets import LEADER_SECONDS
from ottla.client.reachable import at_once
from ottla.client.versions import ApiTable, with_other_requests
from ottla.console.answers import one_line
from ottla.console.views import View, overview_of
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult
from ottla.protocol.messages.metadata import MetadataResponseTopic

KEPT_SECONDS: Final = 10.0
"""Time in which an answer is given again, seconds."""
KEPT_FACTOR: Final = 4.0
"""An answer is kept for KEPT_SECONDS, or for the duration of its requests multiplied by this factor if that is longer. So brokers spend at
most a fifth of their time on such requests."""
ANSWER_SECONDS: Final = 20.0
"""Time for the answers of all brokers, seconds; one with many replicas needs some of them."""
PROTOCOL_VERSION: Final = "inter.broker.protocol.version"
_NO_DIRECTORY: Final = "the broker gives no log directory; the right to describe the cluster may be missing"
_NOT_ALIVE: Final = "the broker is not alive"

Value = TypeVar("Value")

_Bytes = dict[str, dict[int, int]]
"""The bytes of replicas by topic and partition."""


class Inventory(NamedTuple):
    """The answers of the API to `brokers` and `topic-sizes`."""

    brokers: View
    sizes: View


@dataclass(frozen=True, slots=True)
class _Told:
    """The answers of a broker about itself. With an `error` it did not report its directories."""

    error: str | None = None
    log_dirs: Sequence[View] = ()
    sizes: _Bytes = field(default_factory=dict)
    protocol_version: str | None = None
    versions: ApiTable = field(default_factory=dict)


def take_inventory(cluster: Cluster) -> Inventory:
    """Ask all brokers once, at the same time. Those that do not answer have an error instead.

    Raises ClientError if the cluster does not answer.
    """
    answer = cluster.refresh(None)
    found = overview_of(answer)
    told = _told_by_all(cluster, [broker["id"] for broker in found["brokers"]])
    for broker in found["brokers"]:
        own = told[broker["id"]]
        broker |= {"error": own.error, "protocol_version": own.protocol_version, "log_dirs": own.log_dirs}
    brokers = {
        "controller": found["controller"],
        "missing": found["missing"],
        "other_requests": with_other_requests({broker_id: own.versions for broker_id, own in told.items() if own.versions}),
        "brokers": found["brokers"],
    }
    bytes_of = {broker_id: own.sizes for broker_id, own in told.items()}
    topics = [_topic_size(topic, bytes_of) for topic in answer.topics if topic.name is not None]
    topics.sort(key=lambda topic: str(topic["name"]))
    return Inventory(brokers, {"topics": topics, "errors": list(_reasons(told, found["missing"]))})


def _told_by_all(cluster: Cluster, broker_ids: Sequence[int]) -> dict[int, _Told]:
    """The answers of each broker."""
    until = time.monotonic() + min(ANSWER_SECONDS, cluster.timeout_seconds)

    def ask(own: Cluster, broker_id: int) -> _Told:
        connection = own.broker_briefly(broker_id, LEADER_SECONDS)
        try:
            connection.send(DescribeLogDirsRequest(topics=None))
            connection.send(_protocol_version_request(broker_id))
            return _told(broker_id, connection, until)
        except ClientError as error:
            return _Told(one_line(error), versions=connection.versions)

    told, errors = at_once(cluster, broker_ids, ask)
    return {broker_id: told.get(broker_id) or _Told(one_line(errors[broker_id])) for broker_id in broker_ids}


def _protocol_version_request(broker_id: int) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name=str(broker_id), configuration_keys=[PROTOCOL_VERSION]
    )
    return DescribeConfigsRequest(resources=[resource])


def _told(broker_id: int, connection: Connection, until: float) -> _Told:
    """The answers of a broker. Raises ClientError."""
    answer = _received(connection, DescribeLogDirsResponse, until - time.monotonic())
    configs = _received(connection, DescribeConfigsResponse, until - time.monotonic())
    error = None
    if answer.error_code:
        error = one_line(Refused(f"the log directories of broker {broker_id}", answer.error_code))
    elif not answer.results:  # before version 3 this is the refusal
        error = _NO_DIRECTORY
    log_dirs, sizes = _directories(answer.results)
    version = next((each.value for result in configs.results for each in result.configs if each.name == PROTOCOL_VERSION), None)
    return _Told(error, log_dirs, sizes, version, connection.versions)


def _received(connection: Connection, response: type[AnyResponse], seconds: float) -> AnyResponse:
    answer = connection.receive(max(seconds, 0.0))
    if answer is None:
        raise ConnectionLost(f"the broker at {connection.address} did not answer in time")
    assert isinstance(answer, response)
    return answer


def _directories(results: Iterable[DescribeLogDirsResult]) -> tuple[list[View], _Bytes]:
    """The directories of a broker, and the bytes of the replicas in them. A copy that is being moved there is no replica yet."""
    found: _Bytes = {}
    views: list[View] = []
    for result in results:
        replicas = total = 0
        for topic in result.topics:
            of_topic = found.setdefault(topic.name, {})
            for each in topic.partitions:
                replicas += 1
                total += each.partition_size
                if not each.is_future_key:
                    of_topic[each.partition_index] = each.partition_size
        views.append(
            {
                "path": result.log_dir,
                "error": ErrorCode.of(result.error_code).name if result.error_code else None,
                "total_bytes": result.total_bytes if result.total_bytes >= 0 else None,
                "usable_bytes": result.usable_bytes if result.usable_bytes >= 0 else None,
                "replicas": replicas,
                "replica_bytes": total,
            }
        )
    return views, found


def _topic_size(topic: MetadataResponseTopic, bytes_of: Mapping[int, _Bytes]) -> View:
    """The bytes of the leaders of a topic, and of all its replicas. A sum is None if the size of one replica is unknown."""
    name = topic.name or ""
    own = {broker_id: of_broker[name] for broker_id, of_broker in bytes_of.items() if name in of_broker}
    of_leaders: int | None = 0
    of_replicas: int | None = 0
    for partition in topic.partitions:
        number = partition.partition_index
        if of_leaders is not None:
            size = None if partition.leader_id == NO_LEADER else own.get(partition.leader_id, {}).get(number)
            of_leaders = None if size is None else of_leaders + size
        for replica in partition.replica_nodes:
            if of_replicas is None:
                break
            size = own.get(replica, {}).get(number)
            of_replicas = None if size is None else of_replicas + size
    return {"name": topic.name, "bytes": of_leaders, "replica_bytes": of_replicas}


def _reasons(told: Mapping[int, _Told], missing: Iterable[int]) -> Iterator[View]:
    """Why sizes may be unknown, by broker."""
    for broker_id, own in told.items():
        if own.error is not None:
            yield {"broker": broker_id, "error": own.error}
        for directory in own.log_dirs:
            if directory["error"] is not None:
                yield {"broker": broker_id, "error": f"{directory['path']}: {directory['error']}"}
    for broker_id in missing:
        yield {"broker": broker_id, "error": _NOT_ALIVE}


class Kept(Generic[Value]):
    """An answer that costs the brokers much: taken once for all requests that come meanwhile, and kept for a while. For the event loop.

    `take` takes it. An error is for those that wait for it, and is not kept.
    """

    def __init__(self, take: Callable[[], Awaitable[Value]], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._take = take
        self._monotonic = monotonic
        self._kept: Value | None = None
        self._kept_until = 0.0
        self._taking: asyncio.Task[Value] | None = None

    async def get(self) -> Value:
        """The answer as it was some seconds ago, or a new one. Raises ClientError."""
        if self._kept is not None and self._monotonic() < self._kept_until:
            return self._kept
        if self._taking is None:
            self._taking = asyncio.create_task(self._taken())
            self._taking.add_done_callback(_looked_at)
        return await asyncio.shield(self._taking)  # a client that leaves does not end it for the others

    async def _taken(self) -> Value:
        began_at = self._monotonic()
        try:
            taken = self._kept = await self._take()
            now = self._monotonic()
            self._kept_until = now + max(KEPT_SECONDS, KEPT_FACTOR * (now - began_at))
            return taken
        finally:
            self._taking = None


def _looked_at(taking: asyncio.Task[Any]) -> None:
    """Take the error. Otherwise the event loop logs it if no request waits for it any longer."""
    if not taking.cancelled():
        taking.exception()
