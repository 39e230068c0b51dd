"""Counts written and read bytes, records and requests by topic: the counters of Kafka's BrokerTopicMetrics.

Partitions and the Produce and Fetch handlers count always, because an increment costs less than a check for readers. The numbers of
deleted topics stay in the totals, so a total never falls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

COUNTERS = (
    "messages_in",
    "bytes_in",
    "bytes_out",
    "bytes_rejected",
    "produce_requests",
    "fetch_requests",
    "failed_produce_requests",
    "failed_fetch_requests",
    "replication_bytes_in",
    "replication_bytes_out",
    "reassignment_bytes_in",
    "reassignment_bytes_out",
    "produce_message_conversions",
    "fetch_message_conversions",
    "share_fetch_requests",
    "failed_share_fetch_requests",
    "share_acknowledgement_requests",
    "failed_share_acknowledgement_requests",
)


@final
class TopicStats:
    """The counters of one topic. A produce or fetch request counts once per partition in it, as in Apache Kafka; a request of a member of a
    share group counts once."""

    __slots__ = COUNTERS

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.produce_requests = 0
        self.fetch_requests = 0
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.reassignment_bytes_in = 0
        self.reassignment_bytes_out = 0
        self.produce_message_conversions = 0
        self.fetch_message_conversions = 0
        self.share_fetch_requests = 0
        self.failed_share_fetch_requests = 0
        self.share_acknowledgement_requests = 0
        self.failed_share_acknowledgement_requests = 0


@final
class BrokerTopicStats:
    """The counters of all topics of a broker, including the sum of deleted topics."""

    __slots__ = (
        "_gone",
        "follower_fetch_expirations",
        "follower_fetches",
        "invalid_checksums",
        "invalid_magic_numbers",
        "invalid_offsets_or_sequences",
        "on_conversion",
        "records_without_key",
        "topics",
    )

    def __init__(self) -> None:
        self.topics: dict[str, TopicStats] = {}
        self.follower_fetches: dict[int, int] = {}
        """Fetch requests of other brokers, by version. All other fetch requests are those of consumers."""
        self.follower_fetch_expirations = 0
        """Fetch requests of other brokers that ended with their time limit."""
        self.invalid_magic_numbers = 0
        self.invalid_checksums = 0
        self.invalid_offsets_or_sequences = 0
        """Refused batches of producers, by reason."""
        self.records_without_key = 0
        """Refused records of producers without a key for a compacted topic."""
        self.on_conversion: Callable[[str, int, int], None] = _ignore
        """Called with `Produce` or `Fetch`, nanoseconds and bytes, when records were converted between message formats."""
        self._gone = TopicStats()

    def on_produce_conversion(self, topic: str, records: int, nanoseconds: int, temporary_bytes: int) -> None:
        """Count records of an old producer that were converted."""
        stats = self.of_any(topic)
        stats.produce_message_conversions += records
        self.on_conversion("Produce", nanoseconds, temporary_bytes)

    def on_fetch_conversion(self, topic: str, records: int, nanoseconds: int, temporary_bytes: int) -> None:
        """Count records that were converted for an old consumer."""
        stats = self.of_any(topic)
        stats.fetch_message_conversions += records
        self.on_conversion("Fetch", nanoseconds, temporary_bytes)

    def of(self, topic: str) -> TopicStats:
        """The counters of a hosted topic, made on first use."""
        stats = self.topics.get(topic)
        if stats is None:
            stats = self.topics[topic] = TopicStats()
        return stats

    def of_any(self, topic: str) -> TopicStats:
        """The counters for a topic that may be unknown. Unknown topics count in the totals only, so that clients cannot create entries."""
        return self.topics.get(topic, self._gone)

    def forget(self, topic: str) -> None:
        """Remove a topic without partitions here. Its numbers stay in the totals."""
        stats = self.topics.pop(topic, None)
        if stats is not None:
            for name in COUNTERS:
                setattr(self._gone, name, getattr(self._gone, name) + getattr(stats, name))

    def total(self, counter: str) -> int:
        """One counter over all topics."""
        total: int = getattr(self._gone, counter)
        for stats in self.topics.values():
            total += getattr(stats, counter)
        return total


def _ignore(api: str, nanoseconds: int, temporary_bytes: int) -> None:
    """Replaces a reader of the costs where metrics are not exposed."""
