"""The counters of topics: totals never fall, and nobody can make topics up."""

import pytest

from ottla.broker.handlers.data.topic_counters import count_failed_fetch, count_refused_produce
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.errors import NotEnoughReplicas, NotLeaderOrFollower
from ottla.replication.ports.topic_stats import COUNTERS, BrokerTopicStats, TopicStats
from ottla.storage.errors import CorruptRecord, OffsetOutOfRange, RecordTooLarge

PARTITION = TopicPartition("orders", 0)


class Replicas:
    """What the handlers' counters need of a replica manager."""

    def __init__(self) -> None:
        self.topic_stats = BrokerTopicStats()


def test_the_total_keeps_what_a_topic_did_that_is_gone() -> None:
    stats = BrokerTopicStats()
    stats.of("orders").bytes_in += 5
    stats.of("users").bytes_in += 2
    stats.forget("orders")
    stats.forget("orders")
    assert set(stats.topics) == {"users"}
    assert stats.total("bytes_in") == 7
    stats.of("orders").bytes_in += 1
    assert stats.total("bytes_in") == 8


def test_every_counter_begins_at_nought() -> None:
    assert set(COUNTERS) == set(TopicStats.__slots__)
    assert not any(getattr(TopicStats(), name) for name in COUNTERS)


@pytest.mark.parametrize(
    ("error", "rejected", "failed"),
    [
        (NotLeaderOrFollower("orders", 0, 2, 1), 0, 0),
        (CorruptRecord(PARTITION, "the CRC is wrong"), 0, 0),
        (RecordTooLarge(PARTITION, 10, 5), 10, 0),
        (NotEnoughReplicas(PARTITION, 1, 2), 0, 1),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_refused_produce_is_a_request_but_not_always_a_failure(error: Exception, rejected: int, failed: int) -> None:
    replicas = Replicas()
    stats = replicas.topic_stats.of("orders")
    count_refused_produce(replicas, "orders", error, 10)  # type: ignore[arg-type]  # all that is needed of one
    assert (stats.produce_requests, stats.bytes_rejected, stats.failed_produce_requests) == (1, rejected, failed)


def test_a_topic_that_a_client_made_up_is_counted_only_in_the_totals() -> None:
    replicas = Replicas()
    count_refused_produce(replicas, "no such topic", NotLeaderOrFollower("no such topic", 0, -1, -1), 10)  # type: ignore[arg-type]  # enough
    assert not replicas.topic_stats.topics
    assert replicas.topic_stats.total("produce_requests") == 1


def test_a_fetch_out_of_range_is_the_clients_business() -> None:
    replicas = Replicas()
    stats = replicas.topic_stats.of("orders")
    count_failed_fetch(replicas, "orders", OffsetOutOfRange(PARTITION, 9, 0, 5))  # type: ignore[arg-type]  # all that is needed of one
    assert stats.failed_fetch_requests == 0
    count_failed_fetch(replicas, "orders", CorruptRecord(PARTITION, "unreadable"))  # type: ignore[arg-type]  # all that is needed of one
    assert stats.failed_fetch_requests == 1
