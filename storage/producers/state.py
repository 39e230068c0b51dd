"""Tracks the idempotent and transactional producers of a partition.

Owns, per producer id, the epoch, the last five batches and the open transaction. From them it derives the offset below which every
transaction has ended and is replicated. `PartitionLog` calls `check_append` before it writes a batch and `on_append` after, so a refused
batch changes nothing. Recovery replays the log through `on_append` and `on_marker` alone. Nothing here does I/O: `state_manager` has the
snapshot files.

Invariants: a producer's batches have consecutive sequence numbers of one epoch. `first_unstable_offset` never exceeds the first offset of
an open transaction. Batches without a producer id never get here.
"""

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple, final

from ottla.protocol.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence, TransactionCoordinatorFenced
from ottla.storage.producers.copy_on_write_producers import CopyOnWriteProducers
from ottla.storage.producers.verification import VerificationStateEntry

log = logging.getLogger(__name__)

NONE: Final = -1
BATCHES_RETAINED: Final = 5
"""Batches per producer that are recognised as duplicates. A Java producer has at most that many in flight."""
MAX_EPOCH: Final = 0x7FFF
"""Never assigned to a producer: with it a transaction coordinator can always fence the last producer of a producer id."""
MAX_SEQUENCE: Final = 2**31 - 1
SEQUENCES: Final = 2**31
"""Number of sequence numbers. After the last one they begin again with 0."""

LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000
"""Time beyond its timeout after which an open transaction counts as late (Kafka's constant)."""


class BatchMetadata(NamedTuple):
    """One batch of a producer, with the data to recognise a duplicate and to repeat the answer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence number of the first record, which may have wrapped."""
        return (self.last_sequence - self.offset_delta) % SEQUENCES

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.last_offset - self.offset_delta


class CompletedTransaction(NamedTuple):
    """A transaction with its marker, as the transaction index records it."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    last_stable_offset: int
    is_aborted: bool


@final
class ProducerStateEntry:
    """One producer.

    `batches` has tuples in the form of BatchMetadata, the oldest first: a plain tuple costs 30 ns where a named one costs 250.
    """

    __slots__ = ("batches", "coordinator_epoch", "current_txn_first_offset", "last_timestamp", "producer_epoch", "producer_id")

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        current_txn_first_offset: int = NONE,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.batches: list[tuple[int, int, int, int]] = []

    @property
    def last_sequence(self) -> int:
        """The last sequence number of the current epoch; -1 if it has no data."""
        batches = self.batches
        return batches[len(batches) - 1][0] if batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """The offset of the last known data record; -1 if there is none."""
        batches = self.batches
        return batches[len(batches) - 1][1] if batches else NONE

    @property
    def last_offset_delta(self) -> int:
        """Records in the last batch minus one."""
        batches = self.batches
        return batches[len(batches) - 1][2] if batches else 0

    def batch_with_range(self, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """The known batch with exactly these sequence numbers."""
        for batch in self.batches:
            if batch[0] == last_sequence and (last_sequence - batch[2]) % SEQUENCES == first_sequence:
                return BatchMetadata(*batch)
        return None

    def move_to_epoch(self, producer_epoch: int) -> None:
        """Drop the batches of another epoch, because sequence numbers start again with each epoch."""
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch

    def copy(self) -> "ProducerStateEntry":
        """An independent copy."""
        found = ProducerStateEntry(
            self.producer_id, self.producer_epoch, self.coordinator_epoch, self.last_timestamp, self.current_txn_first_offset
        )
        found.batches.extend(self.batches)
        return found

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)
        return f"ProducerStateEntry({fields})"


@final
class ProducerState:
    """All producers of one partition."""

    __slots__ = ("_ongoing", "first_unstable_offset", "producers", "topic_partition", "unreplicated", "verifications")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.producers: dict[int, ProducerStateEntry] | CopyOnWriteProducers = {}
        self.first_unstable_offset = NONE
        """First offset of the oldest transaction that is open, or whose marker is not below the high watermark; -1 without one."""
        self._ongoing: dict[int, int] = {}
        """First offset -> producer id, in order of the offset."""
        self.unreplicated: dict[int, int] = {}
        """First offset -> offset of the marker, for ended transactions whose marker is not yet below the high watermark.

        In the order of both. A transaction is left out if a later marker ends an earlier transaction, which is unstable for longer.
        """
        self.verifications: dict[int, VerificationStateEntry] = {}
        """Producer id -> the verification that its next transactional batch needs."""

    @property
    def is_empty(self) -> bool:
        """Whether no producer is known and no marker waits for replication."""
        return not self.producers and not self.unreplicated

    def has_open_transaction(self, producer_id: int, producer_epoch: int = NO_PRODUCER_EPOCH) -> bool:
        """Whether the producer has written here in a transaction that is not decided; in one of this epoch, if that is given."""
        entry: ProducerStateEntry | None = self.producers.get(producer_id)
        if entry is None or entry.current_txn_first_offset < 0:
            return False
        return producer_epoch < 0 or producer_epoch == entry.producer_epoch

    def check_epoch(self, producer_id: int, producer_epoch: int, first_offset: int) -> None:
        """Check that the producer is not fenced. A producer without an epoch has -1. Raises InvalidProducerEpoch."""
        entry: ProducerStateEntry | None = self.producers.get(producer_id)
        epoch = NO_PRODUCER_EPOCH if entry is None else entry.producer_epoch
        if producer_epoch < epoch:
            raise self._old_epoch(producer_id, epoch, producer_epoch, first_offset)

    def check_verified(self, producer_id: int, producer_epoch: int, guard: object, first_offset: int) -> None:
        """Check that the coordinator has confirmed the transaction since the last one ended.

        Raises InvalidProducerEpoch, InvalidTxnState.
        """
        self.check_epoch(producer_id, producer_epoch, first_offset)
        entry = self.verifications.get(producer_id)
        if entry is None or entry is not guard:
            raise InvalidTxnState(self.topic_partition, producer_id, f"a batch at offset {first_offset} without an open transaction")

    def check_first(self, producer_id: int, first_sequence: int, first_offset: int) -> None:
        """Check that a batch that begins a transaction is the first of the verified batches. Raises OutOfOrderSequence.

        In version 2 every transaction has a new epoch, so the first batch of an unknown producer has the first sequence number.
        """
        verified = self.verifications.get(producer_id)
        if verified is None:
            return
        if first_sequence > verified.lowest_sequence:
            reason = f"sequence {first_sequence} at offset {first_offset}, but sequence {verified.lowest_sequence} is not written yet"
            raise OutOfOrderSequence(self.topic_partition, producer_id, reason)
        if verified.raises_epochs and first_sequence:
            entry: ProducerStateEntry | None = self.producers.get(producer_id)
            if entry is None or not entry.batches:
                reason = f"sequence {first_sequence} at offset {first_offset}, where 0 was expected of a producer without batches"
                raise OutOfOrderSequence(self.topic_partition, producer_id, reason)

    def duplicate_of(self, producer_id: int, producer_epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """The batch with these sequence numbers that the log has already; None if there is none."""
        entry: ProducerStateEntry | None = self.producers.get(producer_id)
        if entry is None or entry.producer_epoch != producer_epoch:
            return None
        return entry.batch_with_range(first_sequence, last_sequence)

    def check_append(
        self, producer_id: int, producer_epoch: int, first_sequence: int, last_sequence: int, is_transactional: bool, first_offset: int
    ) -> BatchMetadata | None:
        """Check a client's batch before it is written at `first_offset`. Returns its metadata if the log has it already, else None.

        Raises InvalidProducerEpoch, OutOfOrderSequence and InvalidTxnState. Changes nothing.
        """
        entry: ProducerStateEntry | None = self.producers.get(producer_id)
        if entry is None:
            # Retention or DeleteRecords may have removed all earlier batches of the producer, so any sequence number may be the next.
            self.check_epoch(producer_id, producer_epoch, first_offset)
            return None
        batches = entry.batches
        epoch = entry.producer_epoch
        if not (producer_epoch == epoch and batches and first_sequence == batches[len(batches) - 1][0] + 1):
            if producer_epoch == epoch:
                duplicate = entry.batch_with_range(first_sequence, last_sequence)
                if duplicate is not None:
                    return duplicate
            elif producer_epoch < epoch:
                raise self._old_epoch(producer_id, epoch, producer_epoch, first_offset)
            self._check_sequence(entry, producer_epoch, first_sequence, first_offset)
        if entry.current_txn_first_offset >= 0 and not is_transactional:
            raise self._not_transactional(producer_id, first_offset)
        return None

    def check_coordinator_append(self, producer_id: int, producer_epoch: int, is_transactional: bool, first_offset: int) -> None:
        """Check a coordinator's batch with a producer id before it is written. It has no sequence numbers, so only the epoch is checked.

        Raises InvalidProducerEpoch and InvalidTxnState. Changes nothing.
        """
        self.check_epoch(producer_id, producer_epoch, first_offset)
        entry: ProducerStateEntry | None = self.producers.get(producer_id)
        if entry is not None and entry.current_txn_first_offset >= 0 and not is_transactional:
            raise self._not_transactional(producer_id, first_offset)

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int, offset: int, raises_epoch: bool = False) -> None:
        """Check a transaction coordinator's marker before it is written at `offset`. With `raises_epoch` the marker is of version 2, and so
        has an epoch above that of the transaction that it ends.

        Raises InvalidProducerEpoch and TransactionCoordinatorFenced. Changes nothing.
        """
        entry: ProducerStateEntry | None = self.producers.get(producer_id)
        if entry is None:
            self.check_epoch(producer_id, producer_epoch, offset)
            return
        epoch = entry.producer_epoch
        # A marker that comes once more must not end the next transaction, which has its epoch.
        is_late = raises_epoch and producer_epoch == epoch < MAX_EPOCH and entry.current_txn_first_offset >= 0
        if producer_epoch < epoch or is_late:
            raise self._old_epoch(producer_id, epoch, producer_epoch, offset)
        if coordinator_epoch < entry.coordinator_epoch:
            reason = f"marker at offset {offset} of coordinator epoch {coordinator_epoch}, after one of epoch {entry.coordinator_epoch}"
            raise TransactionCoordinatorFenced(self.topic_partition, producer_id, reason)

    def on_append(
        self,
        producer_id: int,
        producer_epoch: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        is_transactional: bool,
    ) -> None:
        """Record a data batch that the log has. `timestamp` is the batch's largest."""
        entry: ProducerStateEntry | None = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerStateEntry(producer_id, producer_epoch)
        elif producer_epoch != entry.producer_epoch:
            if producer_epoch < entry.producer_epoch:
                self._warn_of_old_epoch(entry, producer_epoch, first_offset)
            entry.move_to_epoch(producer_epoch)
        batches = entry.batches
        if len(batches) == BATCHES_RETAINED:
            del batches[0]
        batches.append((last_sequence, last_offset, last_offset - first_offset, timestamp))
        entry.last_timestamp = timestamp
        if is_transactional and entry.current_txn_first_offset < 0:
            self.verifications.pop(producer_id, None)
            entry.current_txn_first_offset = first_offset
            self._ongoing[first_offset] = producer_id
            self._find_first_unstable_offset()

    def on_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, offset: int, *, timestamp: int, is_aborted: bool
    ) -> CompletedTransaction | None:
        """Record a marker that the log has at `offset`. Returns the transaction that it ends, if that had data here.

        The transaction counts as open until `complete`, which is called after the transaction index has its entry. If writing the entry
        fails, consumers must not read beyond the transaction.
        """
        entry: ProducerStateEntry | None = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerStateEntry(producer_id, producer_epoch)
        elif producer_epoch < entry.producer_epoch:
            self._warn_of_old_epoch(entry, producer_epoch, offset)
        verified = self.verifications.get(producer_id)
        if verified is not None and not (verified.raises_epochs and verified.producer_epoch >= producer_epoch):
            del self.verifications[producer_id]
        completed = None
        first_offset = entry.current_txn_first_offset
        if first_offset >= 0:
            stable = next((start for start, owner in self._ongoing.items() if owner != producer_id), offset + 1)
            completed = CompletedTransaction(producer_id, first_offset, offset, stable, is_aborted)
        entry.move_to_epoch(producer_epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.current_txn_first_offset = NONE
        return completed

    def complete(self, completed: CompletedTransaction) -> None:
        """End the transaction. It becomes stable when its marker is below the high watermark."""
        del self._ongoing[completed.first_offset]
        unreplicated = self.unreplicated
        while unreplicated and next(reversed(unreplicated)) > completed.first_offset:
            unreplicated.popitem()
        unreplicated[completed.first_offset] = completed.last_offset
        self._find_first_unstable_offset()

    def on_high_watermark(self, high_watermark: int) -> None:
        """Make the transactions stable whose markers are below `high_watermark`, and so replicated."""
        if self.unreplicated:
            self.unreplicated = {first: last for first, last in self.unreplicated.items() if last >= high_watermark}
            self._find_first_unstable_offset()

    def has_late_transaction(self, now_ms: int, max_transaction_timeout_ms: int) -> bool:
        """Whether the oldest open transaction has exceeded every timeout, so that its coordinator has lost it.

        Kafka counts such partitions in a metric.
        """
        producer_id = next(iter(self._ongoing.values()), None)
        entry = None if producer_id is None else self.producers.get(producer_id)
        if entry is None or entry.last_timestamp <= 0:
            return False
        return now_ms - entry.last_timestamp > max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    def remove_expired(self, now_ms: int, producer_id_expiration_ms: int, producer_ids: Iterable[int] | None = None) -> int:
        """Drop idle producers without an open transaction. Returns their number.

        Idle means `producer_id_expiration_ms` without a batch. Considers only `producer_ids`, if given. Drops none while the producers
        are frozen.
        """
        producers = self.producers
        if isinstance(producers, CopyOnWriteProducers):
            return 0
        entries: Iterable[ProducerStateEntry] = producers.values()
        if producer_ids is not None:
            entries = [entry for producer_id in producer_ids if (entry := producers.get(producer_id)) is not None]
        expired = [entry.producer_id for entry in entries if is_expired(entry, now_ms, producer_id_expiration_ms)]
        for producer_id in expired:
            del producers[producer_id]
        return len(expired)

    def freeze(self) -> dict[int, ProducerStateEntry] | None:
        """Freeze the producers for a snapshot. The returned entries do not change until `unfreeze`.

        None when they are frozen already. Then `unfreeze` returns the entries for the second snapshot. A further call replaces that one.
        """
        producers = self.producers
        if isinstance(producers, CopyOnWriteProducers):
            producers.freeze_next()
            return None
        self.producers = CopyOnWriteProducers(producers)
        return producers

    def unfreeze(self) -> dict[int, ProducerStateEntry] | None:
        """End the first snapshot. Returns the frozen entries for the second one, if any. The cost is that of the changes meanwhile."""
        producers = self.producers
        if isinstance(producers, CopyOnWriteProducers):
            frozen = producers.begin_next()
            if frozen is not None:
                return frozen
            self.producers = producers.merged()
        return None

    def load(self, entries: Iterable[ProducerStateEntry]) -> None:
        """Replace all producers by the entries of a snapshot."""
        self.clear()
        self.producers = {entry.producer_id: entry for entry in entries}
        open_transactions = [(entry.current_txn_first_offset, entry.producer_id) for entry in self.producers.values()]
        self._ongoing = {first: producer_id for first, producer_id in sorted(open_transactions) if first >= 0}
        self._find_first_unstable_offset()

    def clear(self) -> None:
        """Drop all producers."""
        self.producers = {}
        self._ongoing.clear()
        self.unreplicated.clear()
        self.first_unstable_offset = NONE

    def _check_sequence(self, entry: ProducerStateEntry, producer_epoch: int, first_sequence: int, first_offset: int) -> None:
        if entry.producer_epoch == NO_PRODUCER_EPOCH:
            return
        if producer_epoch != entry.producer_epoch:
            expected = 0
        else:
            last_sequence = entry.last_sequence
            expected = 0 if last_sequence == MAX_SEQUENCE else last_sequence + 1
        if first_sequence != expected:
            reason = f"sequence {first_sequence} of epoch {producer_epoch} at offset {first_offset}, where {expected} was expected"
            raise OutOfOrderSequence(self.topic_partition, entry.producer_id, reason)

    def _find_first_unstable_offset(self) -> None:
        undecided = next(iter(self._ongoing), NONE)
        if self.unreplicated:
            unreplicated = next(iter(self.unreplicated))  # recovery has those of a whole segment
            self.first_unstable_offset = unreplicated if undecided < 0 else min(undecided, unreplicated)
        else:
            self.first_unstable_offset = undecided

    def _old_epoch(self, producer_id: int, known_epoch: int, producer_epoch: int, offset: int) -> InvalidProducerEpoch:
        reason = f"epoch {producer_epoch} at offset {offset}, after epoch {known_epoch}"
        return InvalidProducerEpoch(self.topic_partition, producer_id, reason)

    def _not_transactional(self, producer_id: int, offset: int) -> InvalidTxnState:
        return InvalidTxnState(self.topic_partition, producer_id, f"a batch at offset {offset} outside its open transaction")

    def _warn_of_old_epoch(self, entry: ProducerStateEntry, producer_epoch: int, offset: int) -> None:
        # The leader accepted the batch, so a replica and a recovery accept it, too, as in Kafka.
        log.warning(
            "%s: producer %d wrote at offset %d with epoch %d, below the epoch %d seen before; kept because the leader accepted it",
            self.topic_partition,
            entry.producer_id,
            offset,
            producer_epoch,
            entry.producer_epoch,
        )


def is_expired(entry: ProducerStateEntry, now_ms: int, producer_id_expiration_ms: int) -> bool:
    """Whether the producer was idle for `producer_id_expiration_ms` and has no open transaction."""
    # Clients choose the timestamps, so a difference to one may be beyond the numbers of C.
    return entry.current_txn_first_offset < 0 and entry.last_timestamp <= now_ms - producer_id_expiration_ms
