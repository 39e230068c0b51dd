"""The committed offsets of one group: what is in the log, and what is on its way there.

Pure bookkeeping, called by the coordinator. An offset counts once its record is in the log and replicated; until then it is pending, and a
reader that wants stable offsets has to come again (KIP-447). Of two commits the one further up in the log wins, whichever answer came
first. Offsets committed in a transaction wait per producer id until its marker is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from storage.topic_partition import TopicPartition

NO_EXPIRY = -1
NO_RECORD_OFFSET = -1


class OffsetAndMetadata(NamedTuple):
    """What a client commits. `expire_timestamp` is -1 unless the client gave a retention time (OffsetCommit 2 to 4)."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_EXPIRY


class CommittedOffset(NamedTuple):
    """A commit and the offset of its batch in the log; -1 for one that is not there yet."""

    record_offset: int
    value: OffsetAndMetadata


class GroupOffsets:
    """See the module."""

    __slots__ = ("by_consumers", "by_transactions", "committed", "pending", "transactional")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self.pending: dict[TopicPartition, OffsetAndMetadata] = {}
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

    def prepare(self, offsets: Iterable[tuple[TopicPartition, OffsetAndMetadata]]) -> None:
        """These are about to be appended."""
        self.by_consumers = True
        self.pending.update(offsets)

    def on_appended(self, offsets: Iterable[tuple[TopicPartition, OffsetAndMetadata]], record_offset: int) -> None:
        """What was prepared is in the log, in the batch at `record_offset`."""
        pending = self.pending
        committed = self.committed
        for partition, value in offsets:
            waiting = pending.get(partition)
            if waiting is None:
                continue  # it was deleted meanwhile
            known = committed.get(partition)
            if known is None or known[0] < record_offset:
                committed[partition] = CommittedOffset(record_offset, value)
            if waiting is value or waiting == value:
                del pending[partition]

    def on_append_failed(self, offsets: Iterable[tuple[TopicPartition, OffsetAndMetadata]]) -> None:
        """What was prepared is not in the log."""
        for partition, value in offsets:
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
            known = self.committed.get(partition)
            if is_commit and commit.record_offset != NO_RECORD_OFFSET and (known is None or known.record_offset < commit.record_offset):
                self.committed[partition] = commit

    # -- reading and forgetting --------------------------------------------------------------------------------------------------

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
            if self.committed.pop(partition, None) is not None:
                removed.append(partition)
        return removed

    def remove_all(self) -> list[TopicPartition]:
        """Forget everything that is committed."""
        return self.remove(list(self.committed))

    def remove_expired(
        self, base_timestamp: Callable[[OffsetAndMetadata], int], now_ms: int, retention_ms: int, subscribed_topics: frozenset[str]
    ) -> list[TopicPartition]:
        """Forget what was kept long enough: `retention_ms` from `base_timestamp` on, or until the time that the client gave.

        Not what a member subscribes to, nor what is being committed.
        """
        expired = [
            partition
            for partition, (_, value) in self.committed.items()
            if partition.topic not in subscribed_topics
            and partition not in self.pending
            and (
                now_ms - base_timestamp(value) >= retention_ms if value.expire_timestamp == NO_EXPIRY else now_ms >= value.expire_timestamp
            )
        ]
        for partition in expired:
            del self.committed[partition]
        return expired
