"""Finds hanging transactions: open on a partition, while no coordinator will write a marker to that partition.

They hold the last stable offset back until an operator aborts them. The rule is that of kafka-transactions.sh
find-hanging: older than the largest transaction timeout, and not among the partitions that the coordinator describes.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker.client.cluster import Cluster, TopicPartition
from broker.client.transaction_admin import (
    DescribedTransaction,
    Producer,
    UnknownTransactionalId,
    describe_producers,
    describe_transaction,
    list_transactions,
)

DEFAULT_MAX_TIMEOUT_MS: Final = 900_000
"""The default of transaction.max.timeout.ms, in milliseconds."""


class OpenTransaction(NamedTuple):
    """A transaction that is open on a partition; the transactional id is None if no coordinator knows its producer."""

    partition: TopicPartition
    producer: Producer
    transactional_id: str | None = None


def find_hanging(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, max_timeout_ms: int, now_ms: int, broker_id: int | None = None
) -> list[OpenTransaction]:
    """The hanging transactions of partitions, from their leaders or from the replicas on one broker. Raises ClientError."""
    late = late_transactions(describe_producers(cluster, partitions, broker_id), max_timeout_ms=max_timeout_ms, now_ms=now_ms)
    if not late:
        return []
    producer_ids = sorted({each.producer.producer_id for each in late})
    names = {each.producer_id: each.transactional_id for each in list_transactions(cluster, producer_ids=producer_ids)}
    described: dict[int, DescribedTransaction] = {}
    for producer_id, transactional_id in names.items():
        try:
            described[producer_id] = describe_transaction(cluster, transactional_id)
        except UnknownTransactionalId:
            continue  # it has expired since it was listed
    return hanging(late, described)


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
