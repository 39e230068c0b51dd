"""Keeps the offsets of one group: those in the log (`committed`), and pending ones.

The coordinator calls these pure functions. An offset is committed when its record is in the log and replicated. Until then it is pending,
and a client that requires stable offsets has to retry (KIP-447). Of two commits the one with the higher position in the log wins, whichever
is replicated first. Offsets of a transaction are kept by producer id until the marker is written.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from itertools import chain, islice

from ottla.coordination.groups.commits import Commit
from ottla.coordination.groups.committed import CommittedOffsets, record_offset_of
from ottla.protocol.topic_partition import TopicPartition


class GroupOffsets:
    """See the module."""

    __slots__ = ("by_consumers", "by_transactions", "committed", "pending", "transactional")

    def __init__(self) -> None:
        self.committed = CommittedOffsets()
        self.pending: dict[TopicPartition, bytes] = {}
        self.transactional: dict[int, CommittedOffsets] = {}
        """By producer id, the offsets of transactions that have no marker yet."""
        self.by_consumers = False
        """Whether consumers have committed in this generation."""
        self.by_transactions = False
        """Whether transactional producers have."""

    def __bool__(self) -> bool:
        """Whether there are offsets for which the group is kept."""
        return bool(self.committed or self.pending or self.transactional)

    @property
    def is_mixed(self) -> bool:
        """Whether consumers and transactional producers both commit."""
        return self.by_consumers and self.by_transactions

    # -- commits of consumers ------------------------------------------------------------------------------------------------

    def prepare(self, commit: Commit) -> None:
        """Mark these offsets as pending: they are in the log, and not replicated yet."""
        self.by_consumers = True
        self.pending.update(commit)

    def on_appended(self, commit: Commit, record_offset: int) -> None:
        """Prepared offsets are in the log, in the batch at `record_offset`."""
        pending = self.pending
        put = self.committed.put
        place = record_offset_of(record_offset)
        for partition, value in commit:
            waiting = pending.get(partition)
            if waiting is None:
                continue  # it was deleted meanwhile
            put(partition, place, value)
            if waiting == value:
                del pending[partition]

    def on_appended_at_once(self, commit: Commit, record_offset: int) -> None:
        """Offsets are in the log and need not wait; they were not prepared."""
        self.by_consumers = True
        place = record_offset_of(record_offset)
        for topic in commit.topics:
            self.committed.put_topic(topic.name, topic.values, place)

    def on_append_failed(self, commit: Commit) -> None:
        """Prepared offsets are not in the log."""
        for partition, value in commit:
            if self.pending.get(partition) == value:
                del self.pending[partition]

    # -- commits in transactions -----------------------------------------------------------------------------------------------

    def on_appended_in_transaction(self, producer_id: int, commit: Commit, record_offset: int) -> None:
        """These offsets are in the log, in the batch at `record_offset` of a transaction; its marker commits or drops them. The transaction
        keeps them even if replicas are too slow for the answer, because the marker follows them in the log.
        """
        self.by_transactions = True
        of_producer = self.transactional.setdefault(producer_id, CommittedOffsets())
        place = record_offset_of(record_offset)
        for topic in commit.topics:
            of_producer.put_topic(topic.name, topic.values, place)

    def complete_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The marker of the producer's transaction is written."""
        of_producer = self.transactional.pop(producer_id, None)
        if of_producer is not None and is_commit:
            self.committed.merge(of_producer)

    # -- reading and forgetting --------------------------------------------------------------------------------------------------

    @property
    def is_all_stable(self) -> bool:
        """Whether no commit is pending."""
        return not self.pending and not self.transactional

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a commit of this partition is pending."""
        return partition in self.pending or self._is_in_transaction(partition)

    def _is_in_transaction(self, partition: TopicPartition) -> bool:
        return any(partition in of_producer for of_producer in self.transactional.values())

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Remove these offsets; returns those that have a record in the log. A pending one has, and would come back with the next load
        without a tombstone."""
        removed = []
        for partition in partitions:
            is_known = self.pending.pop(partition, None) is not None
            is_known |= self.committed.discard(partition)
            for of_producer in self.transactional.values():
                is_known |= of_producer.discard(partition)
            if is_known:
                removed.append(partition)
        return removed

    def remove_some(self, most: int) -> list[TopicPartition]:
        """Remove offsets that are committed, pending, or in a transaction: `most` of them, or the last ones."""
        found: dict[TopicPartition, None] = {}
        for partition in chain(self.committed, self.pending, *self.transactional.values()):
            if len(found) == most:
                break
            found[partition] = None
        return self.remove(found)

    def known_of(self, gone: Mapping[str, Container[int]]) -> list[TopicPartition]:
        """Those of these partitions of topics that have an offset, or a pending one. A group has few topics, but a thousand may be deleted
        together."""
        topics = self.committed.by_topic.keys() & gone.keys()
        if not self.is_all_stable:
            topics.update(topic for topic, _ in self.pending if topic in gone)
            for of_producer in self.transactional.values():
                topics |= of_producer.by_topic.keys() & gone.keys()
        return [TopicPartition(topic, index) for topic in sorted(topics) for index in self._known_of_topic(topic, gone[topic])]

    def _known_of_topic(self, topic: str, gone: Container[int]) -> set[int]:
        known = {index for index in self.committed.by_topic.get(topic, ()) if index in gone}
        known |= {index for name, index in self.pending if name == topic and index in gone}
        for of_producer in self.transactional.values():
            known |= {index for index in of_producer.by_topic.get(topic, ()) if index in gone}
        return known

    def remove_expired(self, topic: str, since_ms: int | None, now_ms: int, retention_ms: int, most: int) -> list[TopicPartition]:
        """Remove at most `most` expired offsets of a topic (`CommittedOffsets.expired`); returns their partitions.

        A partition with a commit in progress keeps its offset. Its tombstone would follow the record of an open transaction in the log, and
        compaction would then delete that record.
        """
        found = self.committed.expired(topic, since_ms, now_ms, retention_ms)
        expired = list(islice((partition for partition in found if not self.is_unstable(partition)), most))
        for partition in expired:
            self.committed.discard(partition)
        return expired
