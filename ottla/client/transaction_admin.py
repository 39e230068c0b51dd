"""Lists, describes, fences and aborts transactions (KIP-664), over all coordinators and leaders."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, Refused, check
from ottla.client.offsets import by_topic
from ottla.client.reachable import Errors, of_brokers, of_leaders
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.protocol.messages.describe_transactions import TransactionState as TransactionDescription
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.topic_partition import TopicPartition

NO_FILTER: Final = -1
OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""States in which markers are still to be written."""
_DURATION_SINCE: Final = 1
_SHORTEST_TIMEOUT_MS: Final = 1
"""The smallest transaction timeout, which every broker accepts, in milliseconds."""
_PARTITIONS_IN_REQUEST: Final = 500
"""Partitions in one DescribeProducers, as in kafka-transactions.sh; a broker works through all of them at once."""


class ListedTransaction(NamedTuple):
    """A transactional id in a list, with the broker that coordinates it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class DescribedTransaction(NamedTuple):
    """A transactional id as its coordinator knows it. The start time is that of the current or last transaction, None
    before the first; the partitions are those without a marker."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    partitions: list[TopicPartition]


class Producer(NamedTuple):
    """A producer as a replica of a partition knows it; `start_offset` is that of its open transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    start_offset: int | None


class Marker(NamedTuple):
    """The parts of an abort marker that identify the transaction on a partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


Producers = dict[TopicPartition, list[Producer]]


def list_transactions(
    cluster: Cluster, *, states: Sequence[str] = (), producer_ids: Sequence[int] = (), longer_than_ms: int = NO_FILTER
) -> list[ListedTransaction]:
    """The transactional ids of all coordinators. Raises ClientError when one does not answer, or cannot filter by duration."""
    found, errors = reachable_transactions(cluster, states=states, producer_ids=producer_ids, longer_than_ms=longer_than_ms)
    for error in errors.values():
        raise error
    return found


def reachable_transactions(
    cluster: Cluster, *, states: Sequence[str] = (), producer_ids: Sequence[int] = (), longer_than_ms: int = NO_FILTER
) -> tuple[list[ListedTransaction], dict[int, ClientError]]:
    """The transactional ids of all coordinators that answer, and the error of each other broker."""

    def listed(own: Cluster, broker_id: int) -> list[ListedTransaction]:
        connection = own.broker(broker_id)
        if longer_than_ms != NO_FILTER and connection.version_of(ApiKey.LIST_TRANSACTIONS) < _DURATION_SINCE:
            raise ClientError(f"the broker at {connection.address} cannot filter transactions by duration")
        request = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=list(producer_ids), duration_filter=longer_than_ms
        )
        answer = own.ask_broker(broker_id, request, ListTransactionsResponse)
        check(f"the transactions of broker {broker_id}", answer.error_code)
        return [
            ListedTransaction(found.transactional_id, broker_id, found.producer_id, found.transaction_state)
            for found in answer.transaction_states
        ]

    found, errors = of_brokers(cluster, listed)
    return sorted(each for of_one in found.values() for each in of_one), errors


def describe_transaction(cluster: Cluster, transactional_id: str) -> DescribedTransaction:
    """A transactional id as its coordinator knows it. Raises UnknownTransactionalId, Refused."""

    def attempt() -> DescribedTransaction:
        coordinator = cluster.transaction_coordinator(transactional_id)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (found,) = cluster.ask_broker(coordinator, request, DescribeTransactionsResponse).transaction_states
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise UnknownTransactionalId(transactional_id)
        check(_name(transactional_id), found.error_code)
        return _described(coordinator, found)

    return cluster.until_done(attempt)


def _described(coordinator: int, found: TransactionDescription) -> DescribedTransaction:
    return DescribedTransaction(
        found.transactional_id,
        coordinator,
        found.producer_id,
        found.producer_epoch,
        found.transaction_state,
        found.transaction_timeout_ms,
        None if found.transaction_start_time_ms < 0 else found.transaction_start_time_ms,
        sorted(TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions),
    )


def describe_producers(cluster: Cluster, partitions: Iterable[TopicPartition], broker_id: int | None = None) -> Producers:
    """The producers of each partition as its leader knows them, or as the replica on one broker. Raises ClientError."""
    wanted = list(partitions)
    found, errors = reachable_producers(cluster, wanted, broker_id)
    for error in errors.values():
        raise error
    return {name: found[name] for name in wanted}


def reachable_producers(cluster: Cluster, partitions: Iterable[TopicPartition], broker_id: int | None = None) -> tuple[Producers, Errors]:
    """The producers of the partitions whose leaders answer, or of the replicas on one broker, and the error of each other partition.

    Raises ClientError for a partition that does not exist.
    """

    def ask(own: Cluster, replica: int, names: list[TopicPartition]) -> dict[TopicPartition, list[Producer] | ClientError]:
        found: dict[TopicPartition, list[Producer] | ClientError] = {}
        for at in range(0, len(names), _PARTITIONS_IN_REQUEST):
            try:
                found |= _producers_on(own, replica, names[at : at + _PARTITIONS_IN_REQUEST])
            except ClientError as error:
                return {**dict.fromkeys(names, error), **found}
        return found

    return of_leaders(cluster, partitions, ask, seconds=cluster.timeout_seconds, broker_id=broker_id)


def _producers_on(cluster: Cluster, broker_id: int, names: Iterable[TopicPartition]) -> dict[TopicPartition, list[Producer] | ClientError]:
    topics = [TopicRequest(name=topic, partition_indexes=numbers) for topic, numbers in by_topic(names).items()]
    answer = cluster.ask_broker(broker_id, DescribeProducersRequest(topics=topics), DescribeProducersResponse)
    found: dict[TopicPartition, list[Producer] | ClientError] = {}
    for topic in answer.topics:
        for part in topic.partitions:
            name = TopicPartition(topic.name, part.partition_index)
            if part.error_code:
                found[name] = Refused(str(name), part.error_code, part.error_message)
                continue
            found[name] = [
                Producer(
                    each.producer_id,
                    each.producer_epoch,
                    each.coordinator_epoch,
                    each.last_sequence,
                    each.last_timestamp,
                    None if each.current_txn_start_offset < 0 else each.current_txn_start_offset,
                )
                for each in part.active_producers
            ]
    return found


def marker_of_transaction(cluster: Cluster, partition: TopicPartition, start_offset: int) -> Marker:
    """The abort marker for the open transaction that begins at an offset. Raises ClientError when there is none."""
    for producer in describe_producers(cluster, [partition])[partition]:
        if producer.start_offset == start_offset:
            return Marker(producer.producer_id, producer.producer_epoch, producer.coordinator_epoch)
    raise ClientError(f"{partition} has no open transaction that begins at offset {start_offset}")


def abort_transaction(cluster: Cluster, partition: TopicPartition, marker: Marker) -> None:
    """Write an abort marker to one partition, past the coordinator of the transaction. Raises Refused.

    Coordinator epoch -1, of a producer without a completed transaction, is sent as 0, which no coordinator is below.
    """
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
                coordinator_epoch=max(marker.coordinator_epoch, 0),
            )
        ]
    )

    def attempt() -> None:
        answer = cluster.ask_broker(cluster.leader(partition), request, WriteTxnMarkersResponse)
        for written in (part for each in answer.markers for topic in each.topics for part in topic.partitions):
            check(str(partition), written.error_code)

    cluster.until_done(attempt)


def forget_transaction(cluster: Cluster, transactional_id: str) -> None:
    """Have the coordinator abort the open transaction of a transactional id, and fence its producers.

    Sends InitProducerId, as Admin.fenceProducers does, but never for an id that the coordinator does not know, because
    that would create it. The id keeps its transaction timeout, unless `transaction.max.timeout.ms` is smaller by now; the next producer
    sets its own. Raises UnknownTransactionalId, Refused.
    """
    known = describe_transaction(cluster, transactional_id)

    def fence(timeout_ms: int) -> int:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        coordinator = cluster.transaction_coordinator(transactional_id)
        return cluster.ask_broker(coordinator, request, InitProducerIdResponse).error_code

    def attempt() -> None:
        code = fence(known.timeout_ms)
        if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            code = fence(_SHORTEST_TIMEOUT_MS)
        check(_name(transactional_id), code)

    cluster.until_done(attempt)


class UnknownTransactionalId(Refused):
    """The coordinator does not know the transactional id."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(_name(transactional_id), ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "there is no such transactional id")


def _name(transactional_id: str) -> str:
    return f"transactional id {transactional_id}"
