"""What a partition knows of its idempotent and transactional producers.

Owns, per producer id, the epoch, the last five batches and the open transaction; and from those the offset below which every transaction is
decided and replicated. `PartitionLog` asks `check_append` before it writes a batch and tells `on_append` after, so a batch that is refused
changes nothing; recovery replays the log through `on_append` and `on_marker` alone. Nothing here does I/O: `producer_state_manager` keeps
the snapshot files.

Invariants: a producer's batches carry consecutive sequence numbers of one epoch; `first_unstable_offset` never exceeds the first offset of
an open transaction; a batch without a producer id never reaches this module.
"""

import logging
from collections.abc import Iterable
from typing import NamedTuple

from storage.disk.topic_partition import TopicPartition
from storage.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence, TransactionCoordinatorFenced
from storage.producers.limits import BATCHES_RETAINED, MAX_SEQUENCE, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, NONE, SEQUENCES
from storage.producers.thawing_producers import ThawingProducers
from storage.producers.verification import VerificationStateEntry

log = logging.getLogger(__name__)

LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000
"""How long beyond its timeout a transaction may stay open before it is called late (Kafka's constant)."""


class BatchMetadata(NamedTuple):
    """One batch of a producer: enough to recognise it when it is sent again and to answer as the first time."""

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
    """A transaction whose marker stands in the log, as the transaction index records it."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    last_stable_offset: int
    is_aborted: bool


class ProducerStateEntry:
    """One producer.

    `batches` holds tuples in the shape of BatchMetadata, oldest first: a plain tuple costs 30 ns where a named one costs 250.
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
        """The last sequence number of the current epoch, -1 when it has written no data."""
        batches = self.batches
        return batches[len(batches) - 1][0] if batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """The offset of the last data record remembered, -1 when there is none."""
        batches = self.batches
        return batches[len(batches) - 1][1] if batches else NONE

    @property
    def last_offset_delta(self) -> int:
        """Records in the last batch less one."""
        batches = self.batches
        return batches[len(batches) - 1][2] if batches else 0

    def batch_with_range(self, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """The remembered batch that has exactly these sequence numbers."""
        for batch in self.batches:
            if batch[0] == last_sequence and (last_sequence - batch[2]) % SEQUENCES == first_sequence:
                return BatchMetadata(*batch)
        return None

    def move_to_epoch(self, producer_epoch: int) -> None:
        """Forgets the batches of another epoch: sequence numbers start again with each."""
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch

    def copy(self) -> "ProducerStateEntry":
        """One that changes on its own."""
        found = ProducerStateEntry(
            self.producer_id, self.producer_epoch, self.coordinator_epoch, self.last_timestamp, self.current_txn_first_offset
        )
        found.batches.extend(self.batches)
        return found

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)
        return f"ProducerStateEntry({fields})"


class ProducerState:
    """All producers of one partition."""

    __slots__ = ("_ongoing", "first_unstable_offset", "producers", "topic_partition", "unreplicated", "verifications")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.producers: dict[int, ProducerStateEntry] | ThawingProducers = {}
        self.first_unstable_offset = NONE
        """The first offset of a transaction that is open, or whose marker is not below the high watermark; -1 without one."""
        self._ongoing: dict[int, int] = {}
        """First offset -> producer id, in order of the offset."""
        self.unreplicated: dict[int, int] = {}
        """First offset -> offset of the marker, for decided transactions whose marker is not yet below the high watermark."""
        self.verifications: dict[int, VerificationStateEntry] = {}
        """Producer id -> the verification that its next transactional batch needs."""

    @property
    def is_empty(self) -> bool:
        """Whether no producer is known and nothing waits for replication."""
        return not self.producers and not self.unreplicated

    def has_open_transaction(self, producer_id: int) -> bool:
        """Whether the producer has written to a transaction here that is not decided."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset >= 0

    def check_verified(self, producer_id: int, guard: object, first_offset: int) -> None:
        """Whether a batch may begin a transaction: if the coordinator has confirmed it since the last one ended. Raises InvalidTxnState."""
        entry = self.verifications.get(producer_id)
        if entry is None or entry is not guard:
            raise InvalidTxnState(self.topic_partition, producer_id, f"a batch at offset {first_offset} of no open transaction")

    def check_overtakes(self, producer_id: int, first_sequence: int, first_offset: int) -> None:
        """Whether a batch that begins a transaction is the first of those that asked. Raises OutOfOrderSequence."""
        entry = self.verifications.get(producer_id)
        if entry is not None and first_sequence > entry.lowest_sequence:
            reason = f"sequence {first_sequence} at offset {first_offset}, where {entry.lowest_sequence} is not written yet"
            raise OutOfOrderSequence(self.topic_partition, producer_id, reason)

    def duplicate_of(self, producer_id: int, producer_epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """The batch that stands in the log already under these numbers, None if there is none."""
        entry = self.producers.get(producer_id)
        if entry is None or entry.producer_epoch != producer_epoch:
            return None
        return entry.batch_with_range(first_sequence, last_sequence)

    def check_append(
        self, producer_id: int, producer_epoch: int, first_sequence: int, last_sequence: int, is_transactional: bool, first_offset: int
    ) -> BatchMetadata | None:
        """Whether a client's batch may be written at `first_offset`: None if it may, its metadata if it stands in the log already.

        Raises InvalidProducerEpoch, OutOfOrderSequence and InvalidTxnState. Changes nothing.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            # Retention or DeleteRecords may have removed all that the producer wrote, so any sequence number may come first.
            return None
        batches = entry.batches
        epoch = entry.producer_epoch
        if not (producer_epoch == epoch and batches and first_sequence == batches[len(batches) - 1][0] + 1):
            if producer_epoch == epoch:
                duplicate = entry.batch_with_range(first_sequence, last_sequence)
                if duplicate is not None:
                    return duplicate
            elif producer_epoch < epoch:
                raise self._old_epoch(entry, producer_epoch, first_offset)
            self._check_sequence(entry, producer_epoch, first_sequence, first_offset)
        if entry.current_txn_first_offset >= 0 and not is_transactional:
            raise self._not_transactional(producer_id, first_offset)
        return None

    def check_coordinator_append(self, producer_id: int, producer_epoch: int, is_transactional: bool, first_offset: int) -> None:
        """Whether a coordinator may write a batch in a producer's name: it carries no sequence numbers, only the epoch counts.

        Raises InvalidProducerEpoch and InvalidTxnState. Changes nothing.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return
        if producer_epoch < entry.producer_epoch:
            raise self._old_epoch(entry, producer_epoch, first_offset)
        if entry.current_txn_first_offset >= 0 and not is_transactional:
            raise self._not_transactional(producer_id, first_offset)

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int, offset: int) -> None:
        """Whether a transaction coordinator may write its marker at `offset`.

        Raises InvalidProducerEpoch and TransactionCoordinatorFenced. Changes nothing.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return
        if producer_epoch < entry.producer_epoch:
            raise self._old_epoch(entry, producer_epoch, offset)
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
        """A data batch stands in the log. `timestamp` is the batch's greatest."""
        entry = self.producers.get(producer_id)
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
        """A marker stands in the log at `offset`. Returns the transaction it ends, if it had data here.

        The transaction stays undecided until `complete` is told, which comes after the transaction index has its entry: when that fails,
        nobody may read past it.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerStateEntry(producer_id, producer_epoch)
        elif producer_epoch < entry.producer_epoch:
            self._warn_of_old_epoch(entry, producer_epoch, offset)
        self.verifications.pop(producer_id, None)
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
        """The transaction is decided; it becomes stable when its marker is below the high watermark."""
        del self._ongoing[completed.first_offset]
        self.unreplicated[completed.first_offset] = completed.last_offset
        self._find_first_unstable_offset()

    def on_high_watermark(self, high_watermark: int) -> None:
        """Markers below `high_watermark` are replicated, so their transactions are stable."""
        if self.unreplicated:
            self.unreplicated = {first: last for first, last in self.unreplicated.items() if last >= high_watermark}
            self._find_first_unstable_offset()

    def has_late_transaction(self, now_ms: int, max_transaction_timeout_ms: int) -> bool:
        """Whether the oldest open transaction is past every timeout: its coordinator has forgotten it.

        Kafka counts such partitions in a metric.
        """
        producer_id = next(iter(self._ongoing.values()), None)
        entry = None if producer_id is None else self.producers.get(producer_id)
        if entry is None or entry.last_timestamp <= 0:
            return False
        return now_ms - entry.last_timestamp > max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    def remove_expired(self, now_ms: int, producer_id_expiration_ms: int, producer_ids: Iterable[int] | None = None) -> int:
        """Forgets the producers, of `producer_ids` if given, that were idle that long and have no open transaction; returns how many.

        While they are frozen none is forgotten.
        """
        producers = self.producers
        if isinstance(producers, ThawingProducers):
            return 0
        entries: Iterable[ProducerStateEntry] = producers.values()
        if producer_ids is not None:
            entries = [entry for producer_id in producer_ids if (entry := producers.get(producer_id)) is not None]
        expired = [entry.producer_id for entry in entries if is_expired(entry, now_ms, producer_id_expiration_ms)]
        for producer_id in expired:
            del producers[producer_id]
        return len(expired)

    def freeze(self) -> dict[int, ProducerStateEntry] | None:
        """All producers as they are now, for a snapshot to be made of them; until `thaw` what is returned does not change.

        None when they are frozen already: `thaw` will return them. Only the last such request counts.
        """
        producers = self.producers
        if isinstance(producers, ThawingProducers):
            producers.freeze_again()
            return None
        self.producers = ThawingProducers(producers)
        return producers

    def thaw(self) -> dict[int, ProducerStateEntry] | None:
        """The snapshot is done. Returns what is frozen still, for the next one. Costs as much as producers wrote meanwhile."""
        producers = self.producers
        if isinstance(producers, ThawingProducers):
            frozen = producers.frozen_again()
            if frozen is not None:
                return frozen
            self.producers = producers.thawed()
        return None

    def load(self, entries: Iterable[ProducerStateEntry]) -> None:
        """Takes the entries of a snapshot in place of what is known."""
        self.clear()
        self.producers = {entry.producer_id: entry for entry in entries}
        open_transactions = [(entry.current_txn_first_offset, entry.producer_id) for entry in self.producers.values()]
        self._ongoing = {first: producer_id for first, producer_id in sorted(open_transactions) if first >= 0}
        self._find_first_unstable_offset()

    def clear(self) -> None:
        """Forgets everything."""
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
            reason = f"sequence {first_sequence} of epoch {producer_epoch} at offset {first_offset}, where {expected} was to come"
            raise OutOfOrderSequence(self.topic_partition, entry.producer_id, reason)

    def _find_first_unstable_offset(self) -> None:
        undecided = next(iter(self._ongoing), NONE)
        if self.unreplicated:
            unreplicated = min(self.unreplicated)
            self.first_unstable_offset = unreplicated if undecided < 0 else min(undecided, unreplicated)
        else:
            self.first_unstable_offset = undecided

    def _old_epoch(self, entry: ProducerStateEntry, producer_epoch: int, offset: int) -> InvalidProducerEpoch:
        reason = f"epoch {producer_epoch} at offset {offset}, after epoch {entry.producer_epoch}"
        return InvalidProducerEpoch(self.topic_partition, entry.producer_id, reason)

    def _not_transactional(self, producer_id: int, offset: int) -> InvalidTxnState:
        return InvalidTxnState(self.topic_partition, producer_id, f"a batch at offset {offset} outside its open transaction")

    def _warn_of_old_epoch(self, entry: ProducerStateEntry, producer_epoch: int, offset: int) -> None:
        # The leader accepted it, so a replica and a recovery take it too (as Kafka does).
        log.warning(
            "%s: producer %d wrote at offset %d with epoch %d, below the epoch %d seen before; kept because the leader accepted it",
            self.topic_partition,
            entry.producer_id,
            offset,
            producer_epoch,
            entry.producer_epoch,
        )


def is_expired(entry: ProducerStateEntry, now_ms: int, producer_id_expiration_ms: int) -> bool:
    """Whether the producer was idle that long and has no open transaction."""
    return entry.current_txn_first_offset < 0 and now_ms - entry.last_timestamp >= producer_id_expiration_ms
