"""Tracks a cluster for a client: bootstrap servers, brokers by id, leaders and coordinators, which it looks up again
after a move.

Other modules get connections to brokers here. `until_done` repeats attempts that failed for a transient reason, until
the timeout.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from typing import Final, Generic, Self, TypeVar

from ottla.client.connection import Address, AnyResponse, Connection
from ottla.client.errors import ClientError, ConnectionLost, Refused, Unreachable, check
from ottla.protocol.client_security import PLAINTEXT, ClientSecurity
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition

DEFAULT_PORT: Final = 9092
_PORT_DIGITS: Final = 5
NO_LEADER: Final = -1
_BACKOFF_SECONDS: Final = 0.1
_LEAST_SECONDS: Final = 0.05
"""Time for one attempt to connect when no time is left, in seconds."""
_MOST_SHARES: Final = 10
"""If there are many brokers, each has at least the timeout divided by this number to accept a connection, which includes the login."""
_ANSWER_SHARES: Final = 3
"""If there are several brokers, each has at least the timeout divided by this number, to accept a connection, or to answer a request that
any broker answers at once."""
_LOOK_SHARES: Final = 30
"""A client that waits for an answer looks whether the broker is still alive in intervals of the timeout divided by this number."""
_GROUP: Final = 0
_TRANSACTION: Final = 1

Result = TypeVar("Result")


def parse_bootstrap(text: str) -> list[Address]:
    """Parses `host:port,host:port`; the port is optional, IPv6 addresses are in brackets. Raises ClientError."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]"):
            host, port = part, str(DEFAULT_PORT)
        is_bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if is_bracketed else host
        if not host.strip("[]:") or {*"[]"} & {*host} or not port.isdecimal() or len(port) > _PORT_DIGITS or not 0 < int(port) < 65536:
            raise ClientError(f"{part!r} is not an address of a broker; write host:port")
        found.append(Address(host, int(port)))
    if not found:
        raise ClientError("no bootstrap server is given; write host:port")
    return found


class Cluster:
    """A client of a cluster. Used as a context manager, which closes the connections."""

    def __init__(
        self, bootstrap: str, *, client_id: str = "ottla", timeout_seconds: float = 30.0, security: ClientSecurity = PLAINTEXT
    ) -> None:
        self._bootstrap = parse_bootstrap(bootstrap)
        self._bootstrap_text = bootstrap
        self._client_id = client_id
        self.timeout_seconds = timeout_seconds
        self.security = security
        self.patience_seconds = math.inf
        """Time for a broker to accept a connection, if others may answer instead, and for repeating a request that failed for a transient
        reason. An answer has the timeout."""
        self._brokers: dict[int, Address] = {}
        self._seen: set[tuple[int, Address]] = set()
        """Ids and addresses of brokers that were alive once."""
        self._was_reached = False
        """Whether a connection was established."""
        self._controller_id = NO_LEADER
        self._topics: dict[str, MetadataResponseTopic] = {}
        self._connections: dict[Address, Connection] = {}
        self._failed: set[Address] = set()
        """Addresses that could not be connected to, or whose connection failed, and that were not connected to since."""
        self._deadline = math.inf
        self._is_repeating = True

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def another(self) -> "Cluster":
        """A client of the same cluster, with the same settings and connections of its own. It tries brokers that failed last."""
        found = Cluster(self._bootstrap_text, client_id=self._client_id, timeout_seconds=self.timeout_seconds, security=self.security)
        found._failed = self._failed
        return found

    def apart(self, broker_id: int) -> Self:
        """A client for another thread, which gets the connection to a broker, if there is one; `take_back` ends it."""
        found = copy(self)
        found._topics = dict(self._topics)
        found._connections = {}
        address = self._brokers.get(broker_id)
        if address is not None and address in self._connections:
            found._connections[address] = self._connections.pop(address)
        return found

    def take_back(self, other: "Cluster") -> None:
        """Take the connections of a client that was apart; its thread has ended."""
        for address, connection in other._connections.items():
            if self._connections.setdefault(address, connection) is not connection:
                connection.close()
        other._connections = {}

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ---- connections

    def connection(self, address: Address) -> Connection:
        """The connection to an address, opened if there is none. Raises Unreachable."""
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = self.new_connection(address)
        return found

    def new_connection(self, address: Address) -> Connection:
        """A separate connection, for requests that make the broker wait; the caller closes it.

        Raises NotAuthenticated, Unreachable, or ConnectionLost once the cluster was reached: brokers that ran may come back.
        """
        try:
            seconds = max(self._seconds_left(self.timeout_seconds / min(self._broker_count, _ANSWER_SHARES)), _LEAST_SECONDS)
            if self._was_reached:
                seconds = min(seconds, self.patience_seconds)
            made = Connection(address, self._client_id, seconds, self.security)
        except Unreachable as error:
            raise self._unreachable(str(error)) from None
        self._was_reached = True
        made.timeout_seconds = self.timeout_seconds  # of the requests that follow
        return made

    @property
    def _broker_count(self) -> int:
        """The number of brokers that this client knows."""
        return len(self._brokers) or len(self._bootstrap)

    def drop(self, connection: Connection) -> None:
        """Remove a connection that failed."""
        connection.close()
        self._failed.add(connection.address)
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]

    def any_connection(self) -> Connection:
        """A connection to any broker that can be reached. Raises Unreachable with the reason of each.

        All of them together have the timeout: one that does not answer leaves time for those after it. Those that failed before come last.
        """
        for connection in self._connections.values():
            return connection
        reasons = []
        addresses = sorted(dict.fromkeys((*self._bootstrap, *self._brokers.values())), key=self._failed.__contains__)
        until = time.monotonic() + self._seconds_left(self.timeout_seconds)
        for at, address in enumerate(addresses):
            now = time.monotonic()
            share = max((until - now) / (len(addresses) - at), self.timeout_seconds / _MOST_SHARES)
            if at + 1 < len(addresses):
                share = min(share, self.patience_seconds)
            try:
                with self.until(min(now + share, until)):
                    found = self.connection(address)
            except (Unreachable, ConnectionLost) as error:
                reasons.append(str(error))
                self._failed.add(address)
                continue
            self._failed.discard(address)
            return found
        raise self._unreachable("\n".join(reasons))

    def _unreachable(self, text: str) -> ClientError:
        """The error of a broker that cannot be connected to."""
        return (ConnectionLost if self._was_reached or self._brokers else Unreachable)(text)

    def broker_address(self, broker_id: int) -> Address:
        """The address of the broker with this id. Raises ClientError when there is none, ConnectionLost when it was alive before."""
        if broker_id not in self._brokers:
            self.refresh([])
        if broker_id not in self._brokers:
            error = ConnectionLost if any(seen == broker_id for seen, _ in self._seen) else ClientError
            raise error(f"there is no broker {broker_id}; alive are {', '.join(map(str, sorted(self._brokers)))}")
        return self._brokers[broker_id]

    def broker(self, broker_id: int) -> Connection:
        """The connection to a broker by its id. Raises ConnectionLost."""
        address = self.broker_address(broker_id)
        try:
            return self.connection(address)
        except ConnectionLost as error:
            raise ConnectionLost(f"broker {broker_id} is registered at {address}: {error}") from None

    def broker_ids(self) -> list[int]:
        """The ids of live brokers."""
        if not self._brokers:
            self.refresh([])
        return sorted(self._brokers)

    # ---- requests

    def until_done(self, attempt: Callable[[], Result], *, timeout_seconds: float | None = None) -> Result:
        """Call `attempt` until it does not fail for a transient reason: a lost connection, a moved leader or
        coordinator."""
        seconds = self._seconds_left(self.timeout_seconds if timeout_seconds is None else timeout_seconds)
        deadline = time.monotonic() + min(seconds, self.patience_seconds)
        while True:
            try:
                return attempt()
            except (ConnectionLost, Refused) as error:
                if not (may_pass(error) and self._is_repeating) or time.monotonic() + _BACKOFF_SECONDS > deadline:
                    raise
            time.sleep(_BACKOFF_SECONDS)
            self._topics.clear()

    @contextmanager
    def until(self, deadline: float, *, once: bool = False) -> Iterator[None]:
        """In this block attempts end at a time (monotonic), even if the timeout is longer. With `once` a failed one is not repeated."""
        before = self._deadline, self._is_repeating
        self._deadline, self._is_repeating = min(self._deadline, deadline), self._is_repeating and not once
        try:
            yield
        finally:
            self._deadline, self._is_repeating = before

    def _seconds_left(self, timeout_seconds: float) -> float:
        return min(timeout_seconds, self._deadline - time.monotonic())

    def ask(
        self,
        find: Callable[[], Connection],
        request: Message,
        response: type[AnyResponse],
        *,
        timeout_seconds: float | None = None,
        looks: bool = True,
    ) -> AnyResponse:
        """Send one request to the broker that `find` returns; drops the connection when it breaks. Raises
        ConnectionLost.

        `looks`: whether it ends as soon as the broker leaves the cluster, see `ask_on`.
        """
        connection = find()
        try:
            if not looks:
                return connection.ask(request, response, timeout_seconds=timeout_seconds)
            answer = self.ask_on(connection, request, response, timeout_seconds=timeout_seconds)
        except (ConnectionLost, KeyboardInterrupt):  # after an interrupt the answer is still to come, and no other request may be sent
            self.drop(connection)
            raise
        if self._connections.setdefault(connection.address, connection) is not connection:
            connection.close()  # another one was opened while this one waited
        return answer

    def ask_on(
        self, connection: Connection, request: Message, response: type[AnyResponse], *, timeout_seconds: float | None = None
    ) -> AnyResponse:
        """Send one request on a connection. Raises ConnectionLost, also as soon as the broker leaves the cluster.

        A broker that hangs leaves the cluster when its session ends, often before the timeout. Then another one takes its place.
        """

        def look() -> None:
            if self._connections.get(connection.address) is connection:
                del self._connections[connection.address]  # it is occupied
            if self.has_left(connection.address):
                raise ConnectionLost(f"the broker at {connection.address} did not answer, and has left the cluster")

        answer = connection.ask(request, response, timeout_seconds=timeout_seconds, look=look, look_seconds=self.look_seconds)
        self._failed.discard(connection.address)
        return answer

    @property
    def look_seconds(self) -> float:
        """Time without an answer after which `has_left` is worth a request, and between two of them."""
        return max(self.timeout_seconds / _LOOK_SHARES, _LEAST_SECONDS)

    def has_left(self, address: Address) -> bool:
        """Whether the broker at this address was alive once, and is not any more. Asks other brokers first, for a part of the timeout."""
        self._failed.add(address)
        with suppress(ClientError), self.until(time.monotonic() + self.timeout_seconds / _MOST_SHARES, once=True):
            self.refresh([])
        return bool(self._brokers) and address not in self._brokers.values() and any(seen == address for _, seen in self._seen)

    def ask_any(self, request: Message, response: type[AnyResponse]) -> AnyResponse:
        """Send one request to any broker; all of them must be able to answer it at once, and it may be sent twice. Raises ConnectionLost.

        A broker that does not answer leaves time for the next attempt, which goes to another one.
        """
        seconds = max(self._seconds_left(self.timeout_seconds / min(self._broker_count, _ANSWER_SHARES)), _LEAST_SECONDS)
        return self.ask(self.any_connection, request, response, timeout_seconds=seconds, looks=False)

    def ask_broker(self, broker_id: int, request: Message, response: type[AnyResponse]) -> AnyResponse:
        """Send one request to a broker by its id. Raises ConnectionLost, whose text names the broker."""
        with _naming(broker_id):
            return self.ask(lambda: self.broker(broker_id), request, response)

    def broker_briefly(self, broker_id: int, seconds: float) -> Connection:
        """The connection to a broker by its id; connecting takes so long at most. Raises ConnectionLost."""
        with self.until(time.monotonic() + seconds, once=True):
            return self.broker(broker_id)

    def ask_briefly(self, broker_id: int, request: Message, response: type[AnyResponse], seconds: float) -> AnyResponse:
        """Send one request to a broker by its id; connecting and waiting take so long at most. Raises ConnectionLost."""
        return self.ask(lambda: self.broker_briefly(broker_id, seconds), request, response, timeout_seconds=seconds)

    def ask_controller(self, request: Message, response: type[AnyResponse]) -> AnyResponse:
        """Send one request to the controller."""
        return self.until_done(lambda: self.ask(self.controller, request, response))

    def controller(self) -> Connection:
        """The connection to the controller."""
        self.refresh([])
        if self._controller_id not in self._brokers:  # there is none, or it just died
            raise Refused("the cluster has no controller now", ErrorCode.NOT_CONTROLLER)
        return self.broker(self._controller_id)

    def coordinator(self, group: str) -> Address:
        """The address of a group's coordinator. Waits while the internal topic is being created. Raises Refused."""

        answer = self._find_coordinator(group, _GROUP, f"the coordinator of group {group}")
        return Address(answer.host, answer.port)

    def transaction_coordinator(self, transactional_id: str) -> int:
        """The id of the broker that coordinates a transactional id. Waits while the internal topic is being created.
        Raises Refused."""
        return self._find_coordinator(transactional_id, _TRANSACTION, f"the coordinator of transactional id {transactional_id}").node_id

    def _find_coordinator(self, key: str, key_type: int, what: str) -> FindCoordinatorResponse:
        def attempt() -> FindCoordinatorResponse:
            answer = self.ask_any(FindCoordinatorRequest(key=key, key_type=key_type), FindCoordinatorResponse)
            check(what, answer.error_code, answer.error_message)
            return answer

        return self.until_done(attempt)

    # ---- metadata

    def refresh(self, topics: Iterable[str] | None, *, may_create: bool = False) -> MetadataResponse:
        """Request the metadata of topics, of all when None, and store the answer."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=may_create)
        answer = self.until_done(lambda: self.ask_any(request, MetadataResponse))
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        self._seen.update(self._brokers.items())
        self._controller_id = answer.controller_id
        for topic in answer.topics:
            if topic.name is not None:
                self._topics[topic.name] = topic
        return answer

    def topic(self, name: str, *, may_create: bool = False) -> MetadataResponseTopic:
        """A topic with its partitions. Raises Refused if it does not exist."""
        found = self._topics.get(name)
        if found is None or found.error_code:
            self.refresh([name], may_create=may_create)
            found = self._topics[name]
            if found.error_code:
                del self._topics[name]
                if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not may_create:
                    raise UnknownTopic(name)
            check(f"topic {name}", found.error_code)
        return found

    def partitions(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions. Raises Refused."""
        return sorted(partition.partition_index for partition in self.topic(topic).partitions)

    def leader(self, topic_partition: TopicPartition) -> int:
        """The id of the partition's leader. Raises Refused when there is no such partition, or no leader."""
        partition = self._partition(topic_partition)
        if partition is None:
            self._topics.pop(topic_partition.topic, None)
            partition = self._partition(topic_partition)
        if partition is None:
            count = len(self.topic(topic_partition.topic).partitions)
            raise ClientError(f"topic {topic_partition.topic} has no partition {topic_partition.partition}: its last one is {count - 1}")
        if partition.leader_id not in self._brokers:  # no leader, or one that just died
            self._topics.pop(topic_partition.topic, None)
            raise Refused(str(topic_partition), ErrorCode.LEADER_NOT_AVAILABLE)
        return partition.leader_id

    def _partition(self, wanted: TopicPartition) -> MetadataResponsePartition | None:
        found = (partition for partition in self.topic(wanted.topic).partitions if partition.partition_index == wanted.partition)
        return next(found, None)

    def forget(self, topic: str) -> None:
        """Drop the metadata of a topic, because it is out of date."""
        self._topics.pop(topic, None)

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions by the id of their leader."""
        found: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            found.setdefault(self.leader(partition), []).append(partition)
        return found

    def led(self, partitions: Iterable[TopicPartition]) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
        """The partitions by the id of their leader, and those that have none now. Raises ClientError for one that does not exist.

        Unlike `by_leader` it uses the metadata that is known; `forget` has it asked for again.
        """
        by_topic: dict[str, list[TopicPartition]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(partition)
        found: dict[int, list[TopicPartition]] = {}
        without: list[TopicPartition] = []
        for topic, wanted in by_topic.items():
            leaders = {each.partition_index: each.leader_id for each in self.topic(topic).partitions}
            for partition in wanted:
                leader = leaders[partition.partition] if partition.partition in leaders else self.leader(partition)
                if leader in self._brokers:
                    found.setdefault(leader, []).append(partition)
                else:
                    without.append(partition)
        return found, without


class ClusterChange(Generic[AnyResponse]):
    """Sends a request that changes the cluster. An attempt without an answer may have been carried out; then the next one is refused."""

    def __init__(self, cluster: Cluster, request: Message, response: type[AnyResponse], repeated: ErrorCode) -> None:
        """`repeated` is the error of a change that was made before."""
        self._cluster = cluster
        self._request = request
        self._response = response
        self._repeated = repeated
        self._may_be_made = False

    def ask(self, find: Callable[[], Connection]) -> AnyResponse:
        """One attempt; see `Cluster.ask`."""
        is_found = False

        def noted() -> Connection:
            nonlocal is_found
            found = find()
            is_found = True
            return found

        try:
            return self._cluster.ask(noted, self._request, self._response)
        except ConnectionLost:
            self._may_be_made |= is_found
            raise

    def explained(self, error: Refused) -> Refused:
        """The error of this attempt, which says whether an earlier attempt may be its reason."""
        if self._may_be_made and error.code == self._repeated:
            error.add("; an earlier attempt of this command, whose answer was lost, may have done this")
        return error


@contextmanager
def _naming(broker_id: int) -> Iterator[None]:
    """Puts the broker into the text of a ConnectionLost that is raised in this block."""
    try:
        yield
    except ConnectionLost as error:
        text = str(error)
        raise ConnectionLost(text if text.startswith(f"broker {broker_id} ") else f"broker {broker_id}: {text}") from None


def may_pass(error: ClientError) -> bool:
    """Whether the same request may succeed later: after a lost connection, or while a leader or a coordinator moves."""
    if isinstance(error, Refused):
        return error.code.retriable and not isinstance(error, UnknownTopic)
    return isinstance(error, ConnectionLost)


class UnknownTopic(Refused):
    """The topic does not exist. Not retried, although the error code is retriable: commands do not wait for topics to
    appear."""

    def __init__(self, name: str) -> None:
        super().__init__(f"topic {name}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
