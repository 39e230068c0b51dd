"""Finds hanging transactions: open on a partition, while no coordinator will write a marker to that partition.

They hold the last stable offset back until an operator aborts them. The rule is that of kafka-transactions.sh
find-hanging: older than the largest transaction timeout, and not among the partitions that the coordinator describes.

A leader or a coordinator that does not answer hides no hanging transaction of the others, and makes none: a transaction that its
coordinator may know is never called hanging.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, ConnectionLost
from ottla.client.reachable import Errors
from ottla.client.transaction_admin import (
    DescribedTransaction,
    Producer,
    UnknownTransactionalId,
    describe_transaction,
    reachable_producers,
    reachable_transactions,
)
from ottla.protocol.topic_partition import TopicPartition

DEFAULT_MAX_TIMEOUT_MS: Final = 900_000
"""The default of transaction.max.timeout.ms, in milliseconds."""


class OpenTransaction(NamedTuple):
    """A transaction that is open on a partition; the transactional id is None if no coordinator knows its producer."""

    partition: TopicPartition
    producer: Producer
    transactional_id: str | None = None


class HangingSearch(NamedTuple):
    """The hanging transactions that were found, and the parts of the cluster that did not answer."""

    hanging: list[OpenTransaction]
    undecided: list[OpenTransaction]
    """Transactions that may hang, or may be known to a coordinator that did not answer."""
    missing: Errors
    """The partitions without an answer from their leader or replica, with the reason."""
    coordinators: list[ClientError]
    """The errors of coordinators that did not answer."""


def find_hanging(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, max_timeout_ms: int, now_ms: int, broker_id: int | None = None
) -> HangingSearch:
    """The hanging transactions of partitions, from their leaders or from the replicas on one broker.

    Raises ClientError for a partition that does not exist, and if no broker can be asked for the leaders.
    """
    producers, missing = reachable_producers(cluster, partitions, broker_id)
    late = late_transactions(producers, max_timeout_ms=max_timeout_ms, now_ms=now_ms)
    return search(cluster, late)._replace(missing=missing)


def search(cluster: Cluster, late: Sequence[OpenTransaction]) -> HangingSearch:
    """Which of the late transactions hang, by the coordinators of their producers.

    A coordinator that is lost after it has listed its transactional ids takes the timeout once.
    """
    if not late:
        return HangingSearch([], [], {}, [])
    producer_ids = sorted({each.producer.producer_id for each in late})
    listed, silent = reachable_transactions(cluster, producer_ids=producer_ids)
    known = {each.producer_id: each for each in listed}
    coordinators = list(silent.values())
    described: dict[int, DescribedTransaction] = {}
    # A coordinator that does not answer may know any producer that no other coordinator knows.
    unknown = set(producer_ids).difference(known) if silent else set()
    lost: set[int] = set()
    for producer_id, each in known.items():
        if each.coordinator in lost:
            unknown.add(producer_id)
            continue
        try:
            described[producer_id] = describe_transaction(cluster, each.transactional_id)
        except UnknownTransactionalId:
            continue  # it has expired since it was listed
        except ClientError as error:
            coordinators.append(error)
            unknown.add(producer_id)
            if isinstance(error, ConnectionLost):
                lost.add(each.coordinator)
    undecided = [each for each in late if each.producer.producer_id in unknown]
    decided = [each for each in late if each.producer.producer_id not in unknown]
    return HangingSearch(hanging(decided, described), undecided, {}, coordinators)


def late_transactions(producers: Mapping[TopicPartition, Iterable[Producer]], *, max_timeout_ms: int, now_ms: int) -> list[OpenTransaction]:
    """The open transactions whose last record is older than the timeout, in the order of partitions and offsets."""
    found = [
        OpenTransaction(name, each)
        for name, listed in producers.items()
        for each in listed
        if each.start_offset is not None and now_ms - each.last_timestamp > max_timeout_ms
    ]
    return sorted(found, key=lambda each: (each.partition, each.producer.start_offset))


def hanging(late: Iterable[OpenTransaction], described: Mapping[int, DescribedTransaction]) -> list[OpenTransaction]:
    """Those of the late transactions whose partition the coordinator does not describe for their producer id.

    A coordinator describes the partitions of an open transaction, and those without a marker of an ended one.
    """
    found = []
    for each in late:
        known = described.get(each.producer.producer_id)
        if known is None or each.partition not in known.partitions:
            found.append(each._replace(transactional_id=None if known is None else known.transactional_id))
    return found
