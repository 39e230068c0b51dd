"""The offsets of one group: what is in the log (`committed`), and what is on its way there.

Pure bookkeeping, called by the coordinator. An offset counts once its record is in the log and replicated; until then it is pending, and a
reader that wants stable offsets has to come again (KIP-447). Of two commits the one further up in the log wins, whichever answer came
first. Offsets committed in a transaction wait per producer id until its marker is written.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from broker.groups.commits import Commit
from broker.groups.committed import CommittedOffset, CommittedOffsets, record_offset_of
from broker.groups.offset_records import OffsetAndMetadata, offset_value
from storage.disk.topic_partition import TopicPartition

NO_RECORD_OFFSET = -1


class GroupOffsets:
    """See the module."""

    __slots__ = ("by_consumers", "by_transactions", "committed", "pending", "transactional")

    def __init__(self) -> None:
        self.committed = CommittedOffsets()
        self.pending: dict[TopicPartition, bytes] = {}
        self.transactional: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        self.by_consumers = False
        self.by_transactions = False

    def __bool__(self) -> bool:
        """Whether there is anything to keep the group for."""
        return bool(self.committed or self.pending or self.transactional)

    def on_new_generation(self) -> None:
        """Mixing both kinds of commits is worth a warning within one generation only."""
        self.by_consumers = self.by_transactions = False

    @property
    def is_mixed(self) -> bool:
        """Whether consumers and transactional producers both commit."""
        return self.by_consumers and self.by_transactions

    # -- commits of consumers ------------------------------------------------------------------------------------------------

    def prepare(self, commit: Commit) -> None:
        """These are about to be appended."""
        self.by_consumers = True
        self.pending.update(commit)

    def on_appended(self, commit: Commit, record_offset: int) -> None:
        """What was prepared is in the log, in the batch at `record_offset`."""
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
        """What was not prepared, because nothing had to be waited for, is in the log."""
        self.by_consumers = True
        place = record_offset_of(record_offset)
        for topic in commit.topics:
            self.committed.put_topic(topic.name, topic.values, place)

    def on_append_failed(self, commit: Commit) -> None:
        """What was prepared is not in the log."""
        for partition, value in commit:
            if self.pending.get(partition) == value:
                del self.pending[partition]

    # -- commits in transactions -----------------------------------------------------------------------------------------------

    def prepare_in_transaction(self, producer_id: int, offsets: Iterable[tuple[TopicPartition, OffsetAndMetadata]]) -> None:
        """These are about to be appended, as part of a transaction."""
        self.by_transactions = True
        of_producer = self.transactional.setdefault(producer_id, {})
        for partition, value in offsets:
            of_producer[partition] = CommittedOffset(NO_RECORD_OFFSET, value)

    def on_appended_in_transaction(
        self, producer_id: int, offsets: Iterable[tuple[TopicPartition, OffsetAndMetadata]], record_offset: int
    ) -> None:
        """What was prepared is in the log; the marker decides."""
        of_producer = self.transactional.get(producer_id, {})
        for partition, value in offsets:
            known = of_producer.get(partition)
            if known is not None and known.value == value:
                of_producer[partition] = CommittedOffset(record_offset, value)

    def on_append_failed_in_transaction(self, producer_id: int, offsets: Iterable[tuple[TopicPartition, OffsetAndMetadata]]) -> None:
        """What was prepared is not in the log."""
        of_producer = self.transactional.get(producer_id)
        if of_producer is not None:
            for partition, _ in offsets:
                of_producer.pop(partition, None)
            if not of_producer:
                del self.transactional[producer_id]

    def complete_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The marker of the producer's transaction is written."""
        for partition, commit in self.transactional.pop(producer_id, {}).items():
            if is_commit and commit.record_offset != NO_RECORD_OFFSET:
                self.committed.put(partition, record_offset_of(commit.record_offset), offset_value(commit.value))

    # -- reading and forgetting --------------------------------------------------------------------------------------------------

    @property
    def is_all_stable(self) -> bool:
        """Whether no commit is on its way."""
        return not self.pending and not self.transactional

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a commit of this partition is on its way."""
        return partition in self.pending or any(partition in of_producer for of_producer in self.transactional.values())

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget these; returns those that had been committed."""
        removed = []
        for partition in partitions:
            self.pending.pop(partition, None)
            for of_producer in self.transactional.values():
                of_producer.pop(partition, None)
            if self.committed.discard(partition):
                removed.append(partition)
        return removed

    def remove_all(self) -> list[TopicPartition]:
        """Forget everything that is committed."""
        return self.remove(list(self.committed))

    def remove_of_topic(self, topic: str, gone: Container[int]) -> list[TopicPartition]:
        """Forget these partitions of a topic as `remove` does."""
        committed = self.committed.by_topic.get(topic, ())
        if not committed and self.is_all_stable:
            return []
        known = {index for index in committed if index in gone}
        known |= {index for name, index in self.pending if name == topic and index in gone}
        for of_producer in self.transactional.values():
            known |= {index for name, index in of_producer if name == topic and index in gone}
        return self.remove([TopicPartition(topic, index) for index in known])

    def remove_expired(self, topic: str, since_ms: int | None, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Forget what was kept long enough of a topic (`CommittedOffsets.expired`), but not what is being committed."""
        expired = [
            partition for partition in self.committed.expired(topic, since_ms, now_ms, retention_ms) if partition not in self.pending
        ]
        for partition in expired:
            self.committed.discard(partition)
        return expired
